package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairpact/fairpact/internal/localstack"
)

// An edit that breaks a patch is noticed at once and not by the next campaign.
func TestPatchesApply(t *testing.T) {
	root, err := localstack.Root()
	if err != nil {
		t.Fatal(err)
	}
	patches, err := filepath.Glob(filepath.Join(root, "hack/faults/plant/*.patch"))
	if err != nil || len(patches) < 6 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	for _, patch := range patches {
		cmd := exec.Command("git", "apply", "--check", patch)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(patch), err, out)
		}
	}
}
