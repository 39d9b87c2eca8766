package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestBuildsAreReproducible(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte("a bundle\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	small := image{name: "clustertool", packages: []string{"hack/clustertool"}, test: true}
	var archives, bills [2][]byte
	for i := range archives {
		if i > 0 {
			t.Setenv("GOAMD64", "v3")
			t.Setenv("GOARM64", "v8.1")
			t.Setenv("GOEXPERIMENT", "nodwarf5")
			t.Setenv("GOFIPS140", "latest")
			t.Setenv("GOWORK", filepath.Join(t.TempDir(), "none.work"))
			t.Setenv("GOFLAGS", "-tags=crashpoints")
		}
		o := options{root: "../..", out: t.TempDir(), repository: "localhost/fairpact", tag: "v9.9.9", version: "v9.9.9", arch: runtime.GOARCH, ca: ca}
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
			t.Errorf("the image has user %q and entrypoint %q, want 65532:65532 and /clustertool", c.User, c.Entrypoint)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) || !bytes.Equal(bills[0], bills[1]) {
		t.Errorf("two builds of one source: archives equal: %t, bills of materials equal: %t; want both", bytes.Equal(archives[0], archives[1]), bytes.Equal(bills[0], bills[1]))
	}
	var bill struct {
		Components []struct {
			Purl       string
			Hashes     []any
			Properties []struct{ Name, Value string }
		}
	}
	if err := json.Unmarshal(bills[0], &bill); err != nil || len(bill.Components) < 3 {
		t.Errorf("the bill of materials has %d components (error %v), want at least 3", len(bill.Components), err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range bill.Components {
		if strings.HasPrefix(c.Purl, "pkg:golang/std@") {
			continue
		}
		// go:h1 is a hash of file hashes, so it must not be listed in Hashes.
		if len(c.Hashes) != 0 || len(c.Properties) != 1 || c.Properties[0].Name != "go:h1" || !strings.Contains(string(sums), " "+c.Properties[0].Value+"\n") {
			t.Errorf("%s: hashes %v, properties %v; want no hashes, and the sum of go.sum as the property go:h1", c.Purl, c.Hashes, c.Properties)
		}
	}
}

// The linker ignores -X for a variable that does not exist, so the test searches a binary for
// the version and the revision. The test builds a small program, because the build flags of an
// image make Go compile all imports again.
func TestVersionAndRevisionAreLinked(t *testing.T) {
	t.Parallel()
	o := options{root: "../..", version: "v9.9.9-linked", revision: "5e4d5e4d5e4d5e4d5e4d", arch: runtime.GOARCH}
	file := filepath.Join(t.TempDir(), "linked")
	if err := o.compile("hack/images/testdata/linked", file); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, linked := range []string{o.version, o.revision} {
		if !bytes.Contains(binary, []byte(linked)) {
			t.Errorf("the binary does not contain the linked value %q", linked)
		}
	}
}

func TestATagIsRequired(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"", "latest"} {
		if err := (options{tag: tag}).check(); err == nil {
			t.Errorf("tag %q was accepted, want an error", tag)
		}
	}
}
