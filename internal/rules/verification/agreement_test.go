package verification_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

func keysOf(given any) (keys.List, error) {
	labels, ok := given.([]any)
	if !ok {
		return keys.ParsePublished(given)
	}
	var list keys.List
	for _, label := range labels {
		list = append(list, keys.Of(label.(string))...)
	}
	return list, nil
}

type sharedCase struct {
	Certificate, Inputs, Params json.RawMessage
	TreeHead                    json.RawMessage `json:"tree_head"`
	Keys                        json.RawMessage
	Failed                      []string
}

var theirs = sync.OnceValues(func() (cases []sharedCase, err error) {
	cmd := exec.Command("python3", "../../../e2e/verifier/cases.py")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &stderr)
	}
	return cases, json.Unmarshal(out, &cases)
})

func sharedCases(t *testing.T) []sharedCase {
	t.Helper()
	cases, err := theirs()
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestAgreesWithTheIndependentVerifier(t *testing.T) {
	t.Parallel()
	cases := sharedCases(t)
	tree := func(raw json.RawMessage) any {
		v, err := canon.Parse(raw)
		if err != nil {
			t.Fatalf("read the cases of the Python tests: %v in %s", err, raw)
		}
		return v
	}
	accepted, unreadable, beyond := 0, 0, 0
	for i, c := range cases {
		trusted, problem := keysOf(tree(c.Keys))
		if problem != nil {
			unreadable++
			if !slices.Equal(c.Failed, []string{"unreadable"}) {
				t.Errorf("case %d: %s: %v, but the independent verifier reads it", i, c.Keys, problem)
			}
			continue
		}
		params, _ := tree(c.Params).(map[string]any)
		report := verification.Verify(verification.Evidence{
			Certificate: tree(c.Certificate), TreeHead: tree(c.TreeHead), Keys: trusted, Openings: lists(tree(c.Inputs)), Params: params,
		})
		failed := []string{}
		for _, check := range report.Checks {
			if !check.OK {
				failed = append(failed, check.Name)
			}
		}
		slices.Sort(failed)
		if !slices.Equal(failed, c.Failed) || report.Valid != (len(c.Failed) == 0) {
			t.Errorf("case %d: this verifier fails %v and the independent one %v, want the same checks\n%s\n%s", i, failed, c.Failed, c.Certificate, c.TreeHead)
		}
		if report.Valid {
			accepted++
		}
		if slices.Equal(failed, []string{verification.KeyInForce}) {
			beyond++
		}
	}
	if accepted < 10 || len(cases)-accepted < 300 || unreadable < 30 || beyond < 8 {
		t.Errorf("of %d cases %d are accepted, %d have no keys that can be read, in %d a retired key signed too late: too few to mean anything", len(cases), accepted, unreadable, beyond)
	}
}

func lists(inputs any) (known verification.Openings) {
	if inputs != nil {
		known.Lists = []any{inputs}
	}
	return known
}
