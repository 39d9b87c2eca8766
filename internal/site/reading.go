package site

import (
	"bytes"
	"html"
	"net/http"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

// markdown writes no raw HTML, and no inline styles because the Content-Security-Policy
// blocks them.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignNone))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// readable returns a handler for path. It sends a browser the Markdown text as an HTML page
// inside frame. Other clients, and a browser that asks for ?format=markdown, get the answer
// of plain. text must begin with "# " and the title.
func readable(frame, path, text string, plain http.Handler) http.Handler {
	var body bytes.Buffer
	if err := markdown.Convert([]byte(text), &body); err != nil {
		panic(err) // the texts are embedded
	}
	title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	frame = strings.Replace(frame, `<a href="`+path+`"`, `<a href="`+path+`" aria-current="page"`, 1)
	browsers := page([]byte(strings.NewReplacer("{{title}}", html.EscapeString(title), "{{text}}", body.String()).Replace(frame)))
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
