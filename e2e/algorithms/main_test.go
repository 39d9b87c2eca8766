// Package algorithms tests binaries with an additional algorithm, max.v1. An overlay (go build
// -overlay) adds the files of max.v1 to package algorithm, and lists max.v1 in the catalogue.
package algorithms

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

func TestMain(m *testing.M) {
	overlay, err := writeOverlay()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("FAIRPACT_E2E_BUILD", strings.TrimSpace(os.Getenv("FAIRPACT_E2E_BUILD")+" -overlay="+overlay))
	os.Exit(e2e.Main(m))
}

const before, after = "loadSchemas(splitV1, randomV1, shapleyV1)", "loadSchemas(splitV1, randomV1, shapleyV1, maxV1)"

// writeOverlay writes the file for go build -overlay and returns its path. The path is the same in
// each run, so that later runs reuse the binaries.
func writeOverlay() (string, error) {
	catalogue, err := os.ReadFile(e2e.Repo("internal/rules/algorithm/catalogue.go"))
	if err != nil {
		return "", err
	}
	if strings.Count(string(catalogue), before) != 1 {
		return "", fmt.Errorf("catalogue.go does not contain %q exactly once: change the constants `before` and `after` in e2e/algorithms/main_test.go to match catalogue.go", before)
	}
	dir := e2e.Repo("bin/e2e/max.v1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "catalogue") // without the suffix .go, because ./... would include a .go file
	if err := os.WriteFile(changed, []byte(strings.Replace(string(catalogue), before, after, 1)), 0o600); err != nil {
		return "", err
	}
	files := e2e.Repo("e2e/algorithms/testdata")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {
		e2e.Repo("internal/rules/algorithm/max.go"):              filepath.Join(files, "max.go"),
		e2e.Repo("internal/rules/algorithm/schemas/max.v1.json"): filepath.Join(files, "schemas.json"),
		e2e.Repo("internal/rules/algorithm/vectors/max.v1.json"): filepath.Join(files, "vectors.json"),
		e2e.Repo("internal/rules/algorithm/catalogue.go"):        changed,
	}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
