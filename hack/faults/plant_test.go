package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// Without this test, only the next run of `make faults-planted` would show a patch that does not
// apply or does not compile.
func TestPatchesApply(t *testing.T) {
	root, err := localstack.Root()
	if err != nil {
		t.Fatal(err)
	}
	patches, err := filepath.Glob(filepath.Join(root, "hack/faults/plant/*.patch"))
	if err != nil || len(patches) < 11 {
		t.Fatalf("hack/faults/plant has %d patches (error %v), want at least 11", len(patches), err)
	}
	for _, patch := range patches {
		t.Run(filepath.Base(patch), func(t *testing.T) {
			command := func(dir, name string, args ...string) string {
				t.Helper()
				cmd := exec.Command(name, args...)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s %s fails; repeat the edit of the patch and overwrite it with git diff: %v\n%s", name, strings.Join(args, " "), err, out)
				}
				return string(out)
			}
			planted := t.TempDir()
			overlay := struct{ Replace map[string]string }{make(map[string]string)}
			var packages []string
			for stat := range strings.Lines(command(root, "git", "apply", "--numstat", patch)) {
				file := strings.Fields(stat)[2]
				overlay.Replace[filepath.Join(root, file)] = filepath.Join(planted, file)
				if text, err := os.ReadFile(filepath.Join(root, file)); err != nil {
					t.Fatal(err)
				} else if err := os.MkdirAll(filepath.Join(planted, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				} else if err := os.WriteFile(filepath.Join(planted, file), text, 0o644); err != nil {
					t.Fatal(err)
				}
				if filepath.Ext(file) == ".go" {
					packages = append(packages, "./"+filepath.Dir(file))
				}
			}
			command(planted, "git", "apply", patch)
			if len(packages) == 0 { // the patch changes no Go file to build
				return
			}
			text, err := json.Marshal(overlay)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(planted, "overlay.json"), text, 0o644); err != nil {
				t.Fatal(err)
			}
			command(root, "go", append([]string{"build", "-overlay", filepath.Join(planted, "overlay.json")}, slices.Compact(packages)...)...)
		})
	}
}
