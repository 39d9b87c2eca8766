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

// LLMs returns /llms.txt, the manual for agents that use REST, for a deployment with
// this beacon chain.
func LLMs(chain beacon.Chain) string { return chain.Fill(algorithm.Fill(llms)) }

// Full returns /llms-full.txt: the text of LLMs, the table of errors and the protocol.
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

// Vectors returns all published test vectors as one JSON array.
func Vectors() ([]byte, error) { return canon.Marshal(algorithm.Vectors()) }

// Pages returns the handlers of the texts by path. Web pages of any origin may read the
// texts (CORS). The handlers do not check the method, because package httpapi passes only
// GET and HEAD to them.
func Pages(chain beacon.Chain) map[string]http.Handler {
	vectors, err := Vectors()
	if err != nil {
		panic(err) // the vectors are embedded and tested
	}
	return map[string]http.Handler{
		"/llms.txt":      page("text/plain; charset=utf-8", []byte(LLMs(chain))),
		"/llms-full.txt": page("text/plain; charset=utf-8", []byte(Full(chain))),
		"/protocol":      page("text/markdown; charset=utf-8", []byte(Protocol)),
		"/trust":         page("text/markdown; charset=utf-8", []byte(Trust)),
		"/vectors.json":  page("application/json", vectors),
	}
}

// page returns a handler that serves fixed bytes with an entity tag.
func page(contentType string, body []byte) http.Handler {
	return httpcache.Handler(httpcache.Public, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	}))
}
