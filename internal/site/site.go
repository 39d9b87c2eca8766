// Package site is the page for people: what Fairpact is, a deal to play, the
// API reference, and a verifier that runs in the browser alone. It is plain
// HTML, CSS and ES modules, served as they are written.
package site

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/httpcache"
	"github.com/fairpact/fairpact/internal/problem"
)

//go:embed static
var static embed.FS

// policy lets a page run its own scripts and talk to its own origin, and
// nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// mark stands in the pages for the folder of the assets. Its name changes with
// any of them, so that browsers may keep them for ever.
const mark = "{{assets}}"

var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Pages gives the handlers by path.
func Pages() map[string]http.Handler {
	files := map[string][]byte{}
	digest := sha256.New()
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, entry := range entries { // sorted by name
		body, err := fs.ReadFile(static, "static/"+entry.Name())
		if err != nil {
			panic(err)
		}
		files[entry.Name()] = body
		digest.Write([]byte(entry.Name()))
		digest.Write(body)
	}
	version := hex.EncodeToString(digest.Sum(nil)[:6])
	return map[string]http.Handler{
		"/{$}":                     page(files["index.html"], version),
		"/reference":               page(files["reference.html"], version),
		"/favicon.ico":             reads(httpcache.Handler(httpcache.Public, file("icon.svg", files["icon.svg"]))),
		"/assets/{version}/{file}": reads(assets(files, version)),
	}
}

func page(text []byte, version string) http.Handler {
	body := []byte(strings.NewReplacer(mark, "/assets/"+version, "{{algorithms}}", algorithms()).Replace(string(text)))
	return reads(httpcache.Handler(httpcache.Public, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Add("Link", `</openapi.json>; rel="service-desc"`)
		file("index.html", body).ServeHTTP(w, r)
	})))
}

// algorithms is the catalogue as the rows of a list.
func algorithms() string {
	var rows strings.Builder
	for _, a := range algorithm.All() {
		fmt.Fprintf(&rows, "<div><dt>%s <code>%s</code></dt><dd>%s. %d to %d parties.</dd></div>\n",
			html.EscapeString(a.Purpose), a.ID, html.EscapeString(a.Name), a.MinParties, a.MaxParties)
	}
	return rows.String()
}

// assets serves a file under any version: while replicas are being replaced, a
// page of one may ask another. Only under the right one is it kept for ever.
func assets(files map[string][]byte, version string) http.Handler {
	fixed, other := map[string]http.Handler{}, map[string]http.Handler{}
	for name, body := range files {
		if path.Ext(name) != ".html" {
			fixed[name] = httpcache.Handler(httpcache.Fixed, file(name, body))
			other[name] = httpcache.Handler(httpcache.Public, file(name, body))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		choice := other
		if r.PathValue("version") == version {
			choice = fixed
		}
		if serve, ok := choice[r.PathValue("file")]; ok {
			serve.ServeHTTP(w, r)
			return
		}
		answer.Error(w, problem.New(problem.NotFound, "no such asset; the page is at GET /"))
	})
}

func file(name string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kinds[path.Ext(name)])
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body)
	})
}

func reads(next http.Handler) http.Handler {
	const allow = "GET, HEAD, OPTIONS"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			next.ServeHTTP(w, r)
		case http.MethodOptions:
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", allow)
			answer.Error(w, problem.New(problem.MethodNotAllowed, "this path serves pages; use one of %s", allow))
		}
	})
}
