// Package algorithms tests binaries with an additional algorithm, max.v1. testdata/added has its
// new files by their paths in the repository; edits changes existing files. An overlay (go build
// -overlay) puts both into the binaries. So this package shows which files a new algorithm needs.
package algorithms

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

// mostPlaces is how many files a new algorithm may touch.
const mostPlaces = 10

var edits = []struct{ path, before, after string }{
	{"internal/rules/algorithm/catalogue.go", "shapleyV1)", "shapleyV1, maxV1)"},
	{"internal/api/pages/static/algorithms.js", "const ALL = new Map([split, random, shapley]", "import * as max from './max.v1.js';\n\nconst ALL = new Map([split, random, shapley, max]"},
	{"internal/api/docs/protocol.md", "\n## 5. ", "\n### 4.4 max.v1\n\n2 to 5 parties. The largest bid wins, and the lower index of equal bids.\n\n## 5. "},
}

// places maps the path of each file that max.v1 adds or changes to the file with its new content.
var places map[string]string

func TestMain(m *testing.M) {
	overlay, err := writeOverlay()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("FAIRPACT_E2E_BUILD", strings.TrimSpace(os.Getenv("FAIRPACT_E2E_BUILD")+" -overlay="+overlay))
	os.Exit(e2e.Main(m))
}

// writeOverlay fills places, writes the file for go build -overlay and returns its path. The path is
// the same in each run, so that later runs reuse the binaries.
func writeOverlay() (string, error) {
	dir, added := e2e.Repo("bin/e2e/max.v1"), e2e.Repo("e2e/algorithms/testdata/added")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	places = map[string]string{}
	err := filepath.WalkDir(added, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			places[e2e.Repo(strings.TrimPrefix(path, added+"/"))] = path
		}
		return err
	})
	if err != nil {
		return "", err
	}
	for i, edit := range edits {
		text, err := os.ReadFile(e2e.Repo(edit.path))
		if err != nil {
			return "", err
		}
		if strings.Count(string(text), edit.before) != 1 {
			return "", fmt.Errorf("%s does not contain %q exactly once: change `edits` in e2e/algorithms/main_test.go to match the file", edit.path, edit.before)
		}
		changed := filepath.Join(dir, fmt.Sprintf("changed-%d", i)) // without the suffix .go, because ./... would include a .go file
		if err := os.WriteFile(changed, []byte(strings.Replace(string(text), edit.before, edit.after, 1)), 0o600); err != nil {
			return "", err
		}
		places[e2e.Repo(edit.path)] = changed
	}
	text, err := json.Marshal(map[string]any{"Replace": places})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
