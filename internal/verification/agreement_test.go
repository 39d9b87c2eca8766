package verification_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/verification"
)

// keysOf gives the reader's keys as a command line would.
func keysOf(labels []string) []verification.Key {
	keys := make([]verification.Key, len(labels))
	for i, label := range labels {
		keys[i].Label = label
		set, err := signing.NewVerifyingKey(label)
		if err != nil {
			keys[i].Problem = err
			continue
		}
		keys[i].Verify = set.Verify
	}
	return keys
}

// The independent verifier shares no code with this one. What its own tests
// accept and refuse, this one accepts and refuses, and names the same checks.
func TestAgreesWithTheIndependentVerifier(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("python3", "../../e2e/verifier/cases.py")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var cases []struct {
		Certificate, Inputs, Params json.RawMessage
		TreeHead                    json.RawMessage `json:"tree_head"`
		Keys                        []string
		Failed                      []string
	}
	if err := json.Unmarshal(out, &cases); err != nil {
		t.Fatal(err)
	}
	tree := func(raw json.RawMessage) any {
		v, err := canon.Parse(raw)
		if err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		return v
	}
	accepted := 0
	for i, c := range cases {
		params, _ := tree(c.Params).(map[string]any)
		report := verification.Verify(verification.Evidence{
			Certificate: tree(c.Certificate), TreeHead: tree(c.TreeHead), Keys: keysOf(c.Keys), Inputs: tree(c.Inputs), Params: params,
		})
		failed := []string{}
		for _, check := range report.Checks {
			if !check.OK {
				failed = append(failed, check.Name)
			}
		}
		slices.Sort(failed)
		if !slices.Equal(failed, c.Failed) || report.Valid != (len(c.Failed) == 0) {
			t.Errorf("case %d: fails %v, the independent verifier fails %v\n%s\n%s", i, failed, c.Failed, c.Certificate, c.TreeHead)
		}
		if report.Valid {
			accepted++
		}
	}
	if accepted < 10 || len(cases)-accepted < 300 {
		t.Errorf("%d accepted of %d cases: too few to mean anything", accepted, len(cases))
	}
}
