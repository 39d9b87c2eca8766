// Package texts holds and serves the published texts of Fairpact: the protocol
// specification, the trust model, the pages for agents, and the test vectors.
package texts

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/httpcache"
	"github.com/fairpact/fairpact/internal/problem"
)

// Protocol is the protocol specification in Markdown.
//
//go:embed protocol.md
var Protocol string

// Trust is the trust model in Markdown.
//
//go:embed trust.md
var Trust string

//go:embed llms.txt
var llms string

// LLMs returns the page that tells an agent with an HTTP client all it needs, for a
// deployment with this beacon chain.
func LLMs(chain beacon.Chain) string { return chain.Fill(algorithm.Fill(llms)) }

// Full returns LLMs followed by the table of errors and the protocol.
func Full(chain beacon.Chain) string {
	var b strings.Builder
	b.WriteString(LLMs(chain))
	b.WriteString("\n## Every error code\n\n| Code | Status | When |\n|---|---|---|\n")
	for _, e := range problem.Table {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", e.Code, e.Status, e.When)
	}
	b.WriteString("\n---\n\n")
	b.WriteString(Protocol)
	return b.String()
}

// Vectors returns all published vectors as one JSON array.
func Vectors() ([]byte, error) { return canon.Marshal(algorithm.Vectors()) }

// Pages returns the handlers of reads of this package by path. The answers are readable from any
// origin and have an ETag.
func Pages(chain beacon.Chain) map[string]http.Handler {
	vectors, err := Vectors()
	if err != nil {
		panic(err) // the texts are embedded and tested
	}
	return map[string]http.Handler{
		"/llms.txt":      page("text/plain; charset=utf-8", []byte(LLMs(chain))),
		"/llms-full.txt": page("text/plain; charset=utf-8", []byte(Full(chain))),
		"/protocol":      page("text/markdown; charset=utf-8", []byte(Protocol)),
		"/trust":         page("text/markdown; charset=utf-8", []byte(Trust)),
		"/vectors.json":  page("application/json", vectors),
	}
}

// page returns a handler of reads that serves fixed bytes.
func page(contentType string, body []byte) http.Handler {
	return httpcache.Handler(httpcache.Public, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	}))
}
