package verification_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

// bundleCases is the folder of the cases that this verifier, the Python verifier and the web
// page share: good bundles, forged bundles, and the checks that must fail. No service writes
// forged bundles, so they are stored (see e2e/verifier/README.md).
const bundleCases = "../../../e2e/testdata/bundles"

type bundleCase struct {
	Bundle  any      `json:"bundle"`
	Policy  string   `json:"policy,omitempty"`
	Pubkeys []string `json:"pubkeys,omitempty"`
	Failed  []string `json:"failed"`
	Says    string   `json:"says,omitempty"` // must occur in the detail of a failed check or of a claim

	Parties  map[int]string    `json:"parties,omitempty"`  // known seat keys (the parties' own keys) by party index
	Openings []json.RawMessage `json:"openings,omitempty"` // of single parties
}

func (c bundleCase) report(t *testing.T) verification.Report {
	t.Helper()
	text, err := json.Marshal(c.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := canon.ParseWithin(text, 2)
	if err != nil {
		t.Fatal(err)
	}
	trust := verification.Trust{Known: verification.Known{Parties: c.Parties}}
	if c.Policy != "" {
		if trust.Policy, err = checkpoint.ParsePolicy([]byte(c.Policy)); err != nil {
			t.Fatal(err)
		}
	}
	if c.Pubkeys != nil {
		trust.Keys = keys.Of(c.Pubkeys...)
	}
	for _, text := range c.Openings {
		o, err := canon.ParseObject(text)
		if err != nil {
			t.Fatal(err)
		}
		trust.Files = append(trust.Files, timelock.Opening{
			DealID: o["deal_id"].(string), Party: o["party"].(int64), Input: o["input"].(map[string]any), Salt: o["salt"].(string),
		})
	}
	return verification.VerifyBundle(bundle, trust)
}

func readCase(t *testing.T, name string) (c bundleCase) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bundleCases, name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(name, err)
	}
	return c
}

func TestSeatsAreCheckedByTheGivenFunction(t *testing.T) {
	text, err := json.Marshal(readCase(t, "good-seats").Bundle)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := canon.ParseObject(text)
	if err != nil {
		t.Fatal(err)
	}
	for want, seat := range map[string]func(certificate.Attestation, certificate.Seat) error{
		"": nil, "cannot be checked here": func(certificate.Attestation, certificate.Seat) error { return errors.New("cannot be checked here") },
	} {
		report := verification.Verify(verification.Evidence{Certificate: bundle["certificate"], Seat: seat})
		i := slices.IndexFunc(report.Checks, func(c verification.Check) bool { return c.Name == verification.PartySignatures })
		if i < 0 || report.Checks[i].OK != (want == "") || !strings.Contains(report.Checks[i].Detail, want) || report.Valid {
			t.Errorf("the checks are %+v, want party_signatures with %q in a report that is not valid", report, want)
		}
	}
}

func TestBundlesAndTheirForgeries(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(bundleCases, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	forged := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		c := readCase(t, name)
		report := c.report(t)
		var failed, said []string
		for _, check := range report.Checks {
			if !check.OK {
				failed, said = append(failed, check.Name), append(said, check.Name+": "+check.Detail)
			}
		}
		for _, claim := range report.Claims {
			said = append(said, claim.Claim+": "+claim.Detail)
		}
		if !slices.Equal(failed, c.Failed) || report.Valid != (len(failed) == 0) || !strings.Contains(strings.Join(said, "\n"), c.Says) {
			t.Errorf("%s: fails %v, want %v with %q\n%s", name, failed, c.Failed, c.Says, strings.Join(said, "\n"))
		}
		if len(c.Failed) > 0 {
			forged++
		}
	}
	if forged < 20 || len(files)-forged < 4 {
		t.Errorf("%d forgeries and %d good bundles, want at least 20 and 4", forged, len(files)-forged)
	}
}

// If any one value of a good bundle is changed, the bundle is not valid. The keys are exempt.
func TestEveryPlaceOfABundleCounts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"good", "good-seats"} {
		everyPlaceCounts(t, name)
	}
}

func everyPlaceCounts(t *testing.T, name string) {
	t.Helper()
	c, places := readCase(t, name), 0
	var walk func(path string, holder any)
	walk = func(path string, holder any) {
		each := func(key any, v any) {
			at := fmt.Sprint(path, "/", key)
			if strings.HasPrefix(at, "/keys/") {
				return // the test case sets the keys
			}
			var other any
			switch v := v.(type) {
			case string:
				other = v + "0"
				if len(v) > 0 && v[0] == '1' {
					other = "2" + v[1:]
				} else if len(v) > 0 {
					other = "1" + v[1:]
				}
			case float64:
				other = v + 1
			default:
				walk(at, v)
				return
			}
			places++
			put(holder, key, other)
			if c.report(t).Valid {
				t.Errorf("%s: %s is %v instead of %v and the bundle is valid, want it invalid", name, at, other, v)
			}
			put(holder, key, v)
		}
		switch h := holder.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(h)) {
				each(name, h[name])
			}
		case []any:
			for i, v := range h {
				each(i, v)
			}
		}
	}
	walk("", c.Bundle)
	if places < 40 || !c.report(t).Valid {
		t.Errorf("%d places were changed, or the bundle is not what it was", places)
	}
}
