package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The same source gives the same archive and bill of materials, byte for byte.
func TestTheSameSourceGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("a bundle\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	small := image{name: "clustertool", binaries: []string{"hack/clustertool"}, test: true}
	var archives, bills [2][]byte
	for i := range archives {
		o := options{root: "../..", out: t.TempDir(), repository: "localhost/fairpact", tag: "v9.9.9", version: "v9.9.9", ca: ca}
		if err := o.build(small); err != nil {
			t.Fatal(err)
		}
		for ext, into := range map[string]*[]byte{".tar": &archives[i], ".sbom.json": &bills[i]} {
			var err error
			if *into, err = os.ReadFile(filepath.Join(o.out, "clustertool_v9.9.9"+ext)); err != nil {
				t.Fatal(err)
			}
		}
		built, err := tarball.ImageFromPath(filepath.Join(o.out, "clustertool_v9.9.9.tar"), nil)
		if err != nil {
			t.Fatal(err)
		}
		config, err := built.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c := config.Config; c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/clustertool" {
			t.Errorf("%+v", c)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) || !bytes.Equal(bills[0], bills[1]) {
		t.Error("two builds of one source differ")
	}
	var bill struct{ Components []struct{ Purl string } }
	if err := json.Unmarshal(bills[0], &bill); err != nil || len(bill.Components) < 3 {
		t.Errorf("%d components, %v", len(bill.Components), err)
	}
}

func TestATagIsRequired(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"", "latest"} {
		if err := (options{tag: tag}).check(); err == nil {
			t.Errorf("%q was taken", tag)
		}
	}
}
