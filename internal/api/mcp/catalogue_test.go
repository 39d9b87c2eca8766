package mcp

import (
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/api/ops"
	"github.com/fairpact/fairpact/internal/platform/caller"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// A model reads the whole catalogue before its first call. Some clients cut the instructions, and each
// description of a tool, at 2,048 characters: e2e/mcp plays deals from the instructions that are left.
func TestTheCatalogueIsSmall(t *testing.T) {
	for _, development := range []bool{false, true} {
		handler, err := New(Config{
			Services: ops.Services{Callers: &caller.Policy{}}, Logger: slog.New(slog.DiscardHandler),
			Deployment: docs.Deployment{Chain: drand.Quicknet(), Development: development},
		})
		if err != nil {
			t.Fatal(err)
		}
		hello := post(handler, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`).Body
		list := post(handler, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).Body
		const perAlgorithm = 1000 // the tools describe the params and the input of a further algorithm
		if size, most := hello.Len()+list.Len(), 30_000+perAlgorithm*(len(algorithm.All())-3); size > most {
			t.Errorf("initialize and tools/list have %d and %d bytes, want at most %d together", hello.Len(), list.Len(), most)
		}
		if strings.Contains(list.String(), "outputSchema") {
			t.Error("a tool has an output schema: no client needs one, and a model reads it before its first call")
		}
	}
	for _, tool := range tools {
		if d, _, err := describe(tool.name()); err != nil || utf8.RuneCountInString(d.Description) > 2048 {
			t.Errorf("the description of %s has %d characters (%v), want at most 2048", tool.name(), utf8.RuneCountInString(d.Description), err)
		}
	}
}
