// Package docs holds and serves the published texts of Fairpact: the protocol
// specification, the trust model, the pages for agents, and the test vectors.
package docs

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"

	"github.com/fairpact/fairpact/e2e/verifier"
	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Protocol is the protocol specification in Markdown.
//
//go:embed protocol.md
var Protocol string

//go:embed trust.md
var trust string

// Compare and UseCases are pages in Markdown: the alternatives to Fairpact, and examples of deals.
var (
	//go:embed compare.md
	Compare string
	//go:embed use-cases.md
	UseCases string
)

//go:embed llms.txt
var llms string

//go:embed manual.md
var manual string

// Deployment holds the facts of a deployment that appear in the texts, such as llms.txt.
type Deployment struct {
	Chain       drand.Chain
	PublicURL   string // "": not known
	Development bool   // the deployment signs with a development key
}

// Trust returns the trust model in Markdown, for a deployment with this beacon chain.
func Trust(chain drand.Chain) string {
	values := map[string]string{
		"draw":   "The round's BLS signature is that of drand quicknet, not the operator's.",
		"before": "nobody before its beacon round",
		"early":  "A threshold of drand's operators together could read it early; this operator cannot, and nobody else.",
		"unless": "",
	}
	if chain.Hash != drand.Quicknet().Hash {
		values = map[string]string{
			"draw":   "This deployment\n  uses a different beacon chain, not drand quicknet. The operator may run that chain, and could then know the draw early.",
			"before": "whoever runs the beacon before its round",
			"early":  "This deployment uses a different beacon chain, not drand quicknet. Whoever runs that chain could open the seals at any time, and the operator may run it.",
			"unless": ", unless a timelock seal holds it and the operator runs the beacon",
		}
	}
	return algorithm.Fill(trust, values)
}

// LLMs returns /llms.txt, the short manual for agents that use REST.
func LLMs(d Deployment) string {
	base, development := "?set it to the URL that you read this page from, without /llms.txt", ""
	if d.PublicURL != "" {
		base = "-" + d.PublicURL
	}
	if d.Development {
		development = "\n\n**This deployment signs with a development key: its certificates prove nothing.**"
	}
	values := d.Chain.Words()
	values["base"], values["development"] = base, development
	return algorithm.Fill(llms, values)
}

// Full returns /llms-full.txt: the text of LLMs, its continuation, the table of errors and the protocol.
func Full(d Deployment) string {
	var b strings.Builder
	b.WriteString(LLMs(d))
	b.WriteString("\n" + algorithm.Fill(manual, d.Chain.Words()))
	b.WriteString("\n## Every error code\n\n| Code | Status | When |\n|---|---|---|\n")
	for _, e := range problem.Table {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", e.Code, e.Status, e.When)
	}
	b.WriteString("\n---\n\n")
	b.WriteString(Protocol)
	return b.String()
}

// Pages returns the handlers of the texts by path, for GET and HEAD. Web pages of any origin may
// read the texts (CORS).
func Pages(d Deployment) map[string]http.Handler {
	vectors, err := canon.Marshal(algorithm.Vectors())
	if err != nil {
		panic(err) // impossible: the vectors are embedded in the binary, and tests encode them
	}
	return map[string]http.Handler{
		"/llms.txt":      page("text/plain; charset=utf-8", []byte(LLMs(d))),
		"/llms-full.txt": page("text/plain; charset=utf-8", []byte(Full(d))),
		"/protocol":      page("text/markdown; charset=utf-8", []byte(Protocol)),
		"/trust":         page("text/markdown; charset=utf-8", []byte(Trust(d.Chain))),
		"/compare":       page("text/markdown; charset=utf-8", []byte(Compare)),
		"/use-cases":     page("text/markdown; charset=utf-8", []byte(UseCases)),
		"/vectors.json":  page("application/json", vectors),
		"/verify.py":     page("text/x-python; charset=utf-8", []byte(verifier.OneFile())),
	}
}

func page(contentType string, body []byte) http.Handler {
	return web.Cached(web.CachePublic, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	}))
}
