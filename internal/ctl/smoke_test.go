package ctl

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/api/docs"
	"github.com/fairpact/fairpact/internal/api/pages"
	"github.com/fairpact/fairpact/internal/beacon"
)

// smoke computes the round of a draw from the genesis and period of the deployment's chain.
func TestSmokeReadsTheChainOfTheDeployment(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for path, page := range pages.Pages(docs.Deployment{Chain: beacon.Chain{Genesis: 1_700_000_000, Period: 30}}) {
		mux.Handle(path, page)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	got, err := smokeCommand{BaseURL: server.URL}.chain(t.Context())
	if err != nil || got.Genesis != 1_700_000_000 || got.Period != 30 {
		t.Errorf("the chain is %+v (error %v), want genesis 1700000000 and period 30", got, err)
	}
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html></html>")) }))
	defer empty.Close()
	if got, err := (smokeCommand{BaseURL: empty.URL}).chain(t.Context()); err == nil || !strings.Contains(err.Error(), "--base-url") {
		t.Errorf("a page without the chain: got %+v (error %v), want an error that names --base-url", got, err)
	}
}
