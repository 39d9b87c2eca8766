// Package pages serves the pages for people: the home page with a trial deal and a verifier, the API
// reference, the form for a new deal, and the page of a deal. The pages are HTML, CSS and ES modules
// without a build step.
//
// The page of a deal is the same file for every deal id. Its script reads the invite token from the
// fragment of a party's link, which browsers do not send to the server.
package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/api/invitation"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

//go:embed static
var static embed.FS

// policy restricts a page's scripts, styles and calls to its own origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Pages returns the handlers of all pages and assets by path, including those of package docs.
func Pages(d docs.Deployment) map[string]http.Handler {
	files := map[string][]byte{}
	digest := sha256.New()
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err) // a bug: the directory is embedded in the binary
	}
	for _, entry := range entries { // ReadDir sorts by name, so the hash is stable
		body, err := fs.ReadFile(static, "static/"+entry.Name())
		if err != nil {
			panic(err)
		}
		files[entry.Name()] = body
		digest.Write([]byte(entry.Name()))
		digest.Write(body)
	}
	// The path of the assets contains a hash of all, so that browsers may cache them without revalidation.
	version := hex.EncodeToString(digest.Sum(nil)[:6])
	values := map[string]string{"assets": "/assets/" + version, "algorithms": algorithms(), "facts": html.EscapeString(facts(d.Chain, d.PublicURL, files))}
	fill := func(name string) string { return algorithm.Fill(preloading(files, name), values) }
	page := func(name string) http.Handler { return page([]byte(fill(name))) }
	pages := docs.Pages(d)
	for path, text := range map[string]string{"/protocol": docs.Protocol, "/trust": docs.Trust(d.Chain), "/compare": docs.Compare, "/use-cases": docs.UseCases} {
		pages[path] = readable(fill("text.html"), path, text, pages[path])
	}
	maps.Copy(pages, map[string]http.Handler{
		"/":                        missing([]byte(fill("missing.html"))),
		"/{$}":                     page("index.html"),
		"/reference":               page("reference.html"),
		"/new":                     page("new.html"),
		"/d/{deal_id}":             page("deal.html"),
		"/r/{deal_id}":             page("result.html"),
		"/r/{deal_id}/qr.svg":      web.Cached(web.CachePublic, qrCode(d.PublicURL)),
		"/favicon.ico":             web.Cached(web.CachePublic, file("icon.svg", files["icon.svg"])),
		"/assets/{version}/{file}": assets(files, version),
	})
	return pages
}

var (
	script   = regexp.MustCompile(`<script type="module" src="\{\{assets\}\}/([^"]+)"></script>\n`)
	imported = regexp.MustCompile(`(?m)^import .* from '\./([^']+)';$`)
)

// preloading returns a page that names all modules of its script, so that a browser fetches them at once and not one level of
// imports after the other.
func preloading(files map[string][]byte, name string) string {
	return script.ReplaceAllStringFunc(string(files[name]), func(tag string) string {
		modules := []string{script.FindStringSubmatch(tag)[1]}
		for i := 0; i < len(modules); i++ {
			for _, found := range imported.FindAllSubmatch(files[modules[i]], -1) {
				if module := string(found[1]); !slices.Contains(modules, module) {
					modules = append(modules, module)
					tag += `<link rel="modulepreload" fetchpriority="low" href="{{assets}}/` + module + "\">\n"
				}
			}
		}
		return tag
	})
}

func page(body []byte) http.Handler {
	return web.Cached(web.CachePublic, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		w.Header().Add("Link", `</openapi.json>; rel="service-desc"`)
		file("index.html", body).ServeHTTP(w, r)
	}))
}

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// missing answers an unknown path: a browser gets the page `body`. All other clients, and all under the paths of the API, get a
// JSON error.
func missing(body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		fault := problem.New(problem.NotFound, "no such path; the paths are in GET /openapi.json")
		root, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if r.Method != http.MethodGet && r.Method != http.MethodHead || !browses(r) || root == "v1" || root == "mcp" {
			web.Error(w, fault)
			return
		}
		web.Count(fault)
		secure(w.Header())
		w.Header().Set("Content-Type", kinds[".html"])
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(body)
	})
}

// browses reports whether the client prefers HTML.
func browses(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/html") && !strings.Contains(accept, "text/markdown")
}

func algorithms() string {
	var rows strings.Builder
	for _, a := range algorithm.All() {
		fmt.Fprintf(&rows, "<div><dt><a href=\"/new#%[2]s\">%[1]s</a> <code>%[2]s</code></dt><dd>Settles %[3]s. %[4]s. %[5]d to %[6]d parties.</dd></div>\n",
			html.EscapeString(a.Title), a.ID, html.EscapeString(a.Purpose), html.EscapeString(a.Name), a.MinParties, a.MaxParties)
	}
	return rows.String()
}

// facts returns the JSON that the pages /new, /d/{deal_id} and /r/{deal_id} embed.
func facts(chain drand.Chain, publicURL string, files map[string][]byte) string {
	type known struct {
		ID          string          `json:"id"`
		Title       string          `json:"title"`
		Purpose     string          `json:"purpose"`
		Ready       string          `json:"ready"`
		MinParties  int             `json:"min_parties"`
		MaxParties  int             `json:"max_parties"`
		MaxInput    int             `json:"max_input"`
		NeedsBeacon bool            `json:"needs_beacon"`
		MayReject   bool            `json:"may_reject"`
		Page        bool            `json:"page"` // whether the algorithm has its own forms and pictures
		Params      json.RawMessage `json:"example_params"`
		Input       json.RawMessage `json:"example_input"`
	}
	all := struct {
		PublicURL  string  `json:"public_url"`
		Invitation string  `json:"invitation"`
		Once       string  `json:"invitation_once"`
		Chain      string  `json:"beacon_chain"`
		Genesis    int64   `json:"beacon_genesis"`
		Period     int64   `json:"beacon_period"`
		Algorithms []known `json:"algorithms"`
	}{PublicURL: publicURL, Invitation: invitation.Template, Once: invitation.Once(chain.Hash), Chain: chain.Hash, Genesis: chain.Genesis, Period: chain.Period}
	for _, a := range algorithm.All() {
		_, page := files[a.ID+".page.js"]
		all.Algorithms = append(all.Algorithms, known{
			a.ID, a.Title, a.Purpose, a.Ready, a.MinParties, a.MaxParties, a.MaxInput, a.NeedsBeacon, a.MayReject(), page, a.Params.Example, a.Input.Example,
		})
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // a bug: an embedded example is not valid JSON
	}
	return string(text)
}

// assets serves a file whatever version the path contains: during a rolling update, a page from
// one replica may load its assets from a replica with another version. Browsers may cache only
// the current version without revalidation.
func assets(files map[string][]byte, version string) http.Handler {
	fixed, other := map[string]http.Handler{}, map[string]http.Handler{}
	for name, body := range files {
		if path.Ext(name) != ".html" {
			fixed[name] = web.Cached(web.CacheFixed, file(name, body))
			other[name] = web.Cached(web.CachePublic, file(name, body))
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
		web.Error(w, problem.New(problem.NotFound, "no such asset; the home page is at GET /"))
	})
}

func file(name string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kinds[path.Ext(name)])
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body)
	})
}

// markdown omits raw HTML of the source. It writes no inline styles, because the
// Content-Security-Policy blocks them.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// readable serves a Markdown text to browsers as an HTML page, made from the template `frame`, and
// to all other clients by `plain`. `text` must begin with "# " and the title.
func readable(frame, path, text string, plain http.Handler) http.Handler {
	var body bytes.Buffer
	if err := markdown.Convert([]byte(text), &body); err != nil {
		panic(err) // a bug: the text comes from the binary, not from a user
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	frame = strings.Replace(frame, `<a href="`+path+`"`, `<a href="`+path+`" aria-current="page"`, 1)
	browsers := page([]byte(algorithm.Fill(frame, map[string]string{"title": html.EscapeString(title), "text": body.String()})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if r.URL.Query().Get("format") != "markdown" && browses(r) {
			browsers.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
}
