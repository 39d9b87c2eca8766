package ctl

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/verification"
)

// For each case of the Python verifier's tests, `fairpactctl verify` must report the same verdict
// and the same failed checks. FAIRPACT_URL is empty, so `fairpactctl verify` fetches nothing.
func TestVerifyAgreesWithTheIndependentVerifier(t *testing.T) {
	text, err := exec.Command("python3", "../../e2e/verifier/cases.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Certificate json.RawMessage
		Head        json.RawMessage `json:"tree_head"`
		Inputs      json.RawMessage
		Params      json.RawMessage
		Keys        json.RawMessage
		Failed      []string
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAIRPACT_URL", "")
	dir := t.TempDir()
	file := func(name string, content json.RawMessage) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	verdicts, late := map[int]int{}, 0
	for i, x := range cases {
		args := []string{"verify", file("cert.json", x.Certificate), "--tree-head", file("head.json", x.Head), "--json"}
		code := ExitOK
		if len(x.Failed) > 0 {
			code = ExitFailed
		}
		var labels []string
		if json.Unmarshal(x.Keys, &labels) == nil && string(x.Keys) != "null" {
			for _, key := range labels {
				args = append(args, "--pubkey", key)
			}
			if len(labels) == 0 {
				code = ExitUsage
			}
		} else {
			args = append(args, "--keys", file("keys.json", x.Keys))
			if slices.Equal(x.Failed, []string{"unreadable"}) {
				code = ExitUsage
			}
		}
		if string(x.Inputs) != "null" {
			args = append(args, "--inputs", file("inputs.json", x.Inputs))
			if x.Inputs[0] != '[' {
				code = ExitUsage // inputs that are not an array are a usage error, as in verify.py
			}
		}
		if string(x.Params) != "null" {
			args = append(args, "--params", file("params.json", x.Params))
		}
		r := run(t, "", args...)
		if r.code != code {
			t.Errorf("case %d: exit code %d, want %d: %s%s", i, r.code, code, r.out, r.err)
		}
		verdicts[r.code]++
		if code == ExitUsage {
			continue
		}
		report, failed := r.report(t)
		slices.Sort(failed)
		if slices.Equal(failed, []string{verification.KeyInForce}) {
			late++
		}
		if !slices.Equal(failed, x.Failed) || report.Valid != (len(failed) == 0) {
			t.Errorf("case %d: the checks %v fail (valid: %t), want %v as in the Python verifier", i, failed, report.Valid, x.Failed)
		}
	}
	if verdicts[ExitOK] < 10 || verdicts[ExitFailed] < 300 || verdicts[ExitUsage] < 30 || late < 8 {
		t.Errorf("cases by exit code: %v, want at least 10 of 0, 300 of 1 and 30 of 2; in %d a retired key signed too late, want 8", verdicts, late)
	}
}
