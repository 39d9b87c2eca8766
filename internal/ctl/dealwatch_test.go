package ctl

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A bundle of another deal is refused. --out makes a file that only its owner reads, and replaces none: a bundle may hold the
// only copy of a salt too.
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
	if r := fetch(out); r.code != ExitOK {
		t.Fatalf("deal certificate: %+v", r)
	}
	if info, err := os.Stat(out); err != nil || info.Mode() != 0o600 {
		t.Errorf("the bundle has the mode %v (%v), want 0600", info.Mode(), err)
	}
	linked, dangling, none := filepath.Join(folder, "linked.json"), filepath.Join(folder, "dangling.json"), filepath.Join(folder, "none.json")
	ok(t, os.Symlink(out, linked))
	ok(t, os.Symlink(none, dangling))
	for what, name := range map[string]string{"over a bundle": out, "over a sealed file": sealed, "through a symlink": linked, "through a dangling symlink": dangling} {
		if r := fetch(name); r.code != ExitUsage || !strings.Contains(r.err, name+" exists") {
			t.Errorf("%s: %+v, want exit code %d", what, r, ExitUsage)
		}
	}
	of = "d_another"
	if r := fetch(none); r.code != ExitFailed || !strings.Contains(r.err, "d_another") {
		t.Errorf("the bundle of another deal: %+v, want exit code %d", r, ExitFailed)
	}
	if text, err := os.ReadFile(sealed); err != nil || string(text) != `{"input":{},"salt":"x"}` {
		t.Errorf("the sealed file holds %s, %v", text, err)
	}
	if _, err := os.Lstat(none); !os.IsNotExist(err) {
		t.Errorf("a refused command left a file (%v)", err)
	}
}
