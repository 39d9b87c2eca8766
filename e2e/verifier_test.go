package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// stranger runs the verifier that shares no code with the project and gives its
// verdict and what it said.
func stranger(t testing.TB, args ...string) (accepted bool, said string) {
	t.Helper()
	out, err := exec.Command("python3", append([]string{"verifier/verify.py"}, args...)...).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && !(ok && exit.ExitCode() == 1) {
		t.Fatalf("independent verifier: %v\n%s", err, out)
	}
	return err == nil, string(out)
}

// file writes bytes, or the JSON of anything else, into a file of its own.
func file(t testing.TB, content any) string {
	t.Helper()
	text, ok := content.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "content.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// independently has the stranger look at a certificate, online, and requires its
// verdict.
func independently(t testing.TB, c *client, certificate []byte, accepted bool) {
	t.Helper()
	if good, said := stranger(t, "--certificate", file(t, certificate), "--base-url", c.base); good != accepted {
		t.Errorf("independent verifier accepted it: %v, want %v\n%s", good, accepted, said)
	}
}

// recomputed has the stranger open the commitments and compute the result anew
// from what the parties revealed.
func (x *cut) recomputed(t testing.TB, c *client, certificate []byte) {
	t.Helper()
	var shown struct {
		RevealsClosedAt *int64 `json:"reveals_closed_at"`
	}
	if err := json.Unmarshal(certificate, &struct{ Timing any }{&shown}); err != nil {
		t.Fatal(err)
	}
	rows := make([]any, len(x.inputs))
	for i, in := range x.inputs {
		if shown.RevealsClosedAt != nil {
			rows[i] = body{"input": in.Input, "salt": in.Salt}
		}
	}
	good, said := stranger(t, "--certificate", file(t, certificate), "--base-url", c.base, "--inputs", file(t, rows), "--params", file(t, x.params))
	if !good {
		t.Errorf("independent verifier:\n%s\n%s", said, certificate)
	}
}
