package pages

import (
	"bytes"
	"html"
	"net/http"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

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
		accept := strings.Join(r.Header.Values("Accept"), ",")
		if r.URL.Query().Get("format") != "markdown" && strings.Contains(accept, "text/html") && !strings.Contains(accept, "text/markdown") {
			browsers.ServeHTTP(w, r)
			return
		}
		plain.ServeHTTP(w, r)
	})
}
