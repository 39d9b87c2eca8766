package ctl

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/site"
)

// smoke times the round of a draw by the deployment's own chain.
func TestSmokeReadsTheChainOfTheDeployment(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for path, page := range site.Pages(beacon.Chain{Genesis: 1_700_000_000, Period: 30}, "") {
		mux.Handle(path, page)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	got, err := smokeCommand{BaseURL: server.URL}.chain(t.Context())
	if err != nil || got.Genesis != 1_700_000_000 || got.Period != 30 {
		t.Errorf("%+v, %v", got, err)
	}
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html></html>")) }))
	defer empty.Close()
	if got, err := (smokeCommand{BaseURL: empty.URL}).chain(t.Context()); err == nil || !strings.Contains(err.Error(), "--base-url") {
		t.Errorf("without facts: %+v, %v", got, err)
	}
}
