package ctl

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bundle of another deal is refused, and --out replaces a bundle, but no other file and not what a symlink names.
func TestCertificateIsOfTheDeal(t *testing.T) {
	var mux http.ServeMux
	of := "d_0123456789abcdefghijkl"
	mux.HandleFunc("GET /v1/deals/d_0123456789abcdefghijkl/bundle", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"bundle_version":"1","certificate":{"deal_id":"` + of + `"}}`))
	})
	mux.HandleFunc("GET /v1/log/status", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
	server := httptest.NewServer(&mux)
	defer server.Close()
	t.Setenv("FAIRPACT_TOKEN", "it_0123456789")
	folder := t.TempDir()
	out, sealed := filepath.Join(folder, "bundle.json"), filepath.Join(folder, "sealed.json")
	ok(t, os.WriteFile(sealed, []byte(`{"input":{},"salt":"x"}`), 0o644))
	fetch := func(name string) ran {
		return run(t, "", "deal", "certificate", "--base-url", server.URL, "--deal", "d_0123456789abcdefghijkl", "--out", name)
	}
	for range 2 { // the second bundle replaces the first
		if r := fetch(out); r.code != ExitOK {
			t.Fatalf("deal certificate: %+v", r)
		}
	}
	if r := fetch(sealed); r.code == ExitOK || !strings.Contains(r.err, "is not a bundle") {
		t.Errorf("over a sealed file: %+v", r)
	}
	linked := filepath.Join(folder, "linked.json")
	ok(t, os.Symlink(sealed, linked))
	if r := fetch(linked); r.code == ExitOK {
		t.Errorf("through a symlink: %+v", r)
	}
	of = "d_another"
	if r := fetch(filepath.Join(folder, "another.json")); r.code != ExitFailed || !strings.Contains(r.err, "d_another") {
		t.Errorf("the bundle of another deal: %+v, want exit code %d", r, ExitFailed)
	}
	if text, err := os.ReadFile(sealed); err != nil || string(text) != `{"input":{},"salt":"x"}` {
		t.Errorf("the sealed file holds %s, %v", text, err)
	}
}
