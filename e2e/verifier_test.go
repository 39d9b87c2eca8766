package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// independently has the verifier that shares no code with the project look at a
// certificate, online, and requires its verdict.
func independently(t testing.TB, c *client, certificate []byte, accepted bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "certificate.json")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "verifier/verify.py", "--certificate", file, "--base-url", c.base).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && !(ok && exit.ExitCode() == 1) {
		t.Fatalf("independent verifier: %v\n%s", err, out)
	}
	if (err == nil) != accepted {
		t.Errorf("independent verifier accepted it: %v, want %v\n%s", err == nil, accepted, out)
	}
}
