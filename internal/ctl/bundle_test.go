package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

// All verifiers share the cases in e2e/testdata/bundles. In each case, the member `failed` lists
// the checks that must fail. FAIRPACT_URL is empty, so `fairpactctl verify` fetches nothing.
func TestVerifyRefusesForgedBundles(t *testing.T) {
	t.Setenv("FAIRPACT_URL", "")
	files, err := filepath.Glob("../../e2e/testdata/bundles/*.json")
	if err != nil || len(files) < 25 {
		t.Fatalf("e2e/testdata/bundles has %d cases (error %v), want at least 25", len(files), err)
	}
	dir := t.TempDir()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Bundle       json.RawMessage
			Policy, Says string
			Pubkeys      []string
			Parties      map[string]string
			Failed       []string
			Openings     []json.RawMessage
			Claims       map[string]verification.Status
			Agreed       []verification.Status
		}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		write := func(name string, content []byte) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		args := []string{"verify", write("bundle.json", c.Bundle), "--json"}
		if c.Policy != "" {
			args = append(args, "--policy", write("policy", []byte(c.Policy)))
		}
		for _, key := range c.Pubkeys {
			args = append(args, "--pubkey", key)
		}
		for party, key := range c.Parties {
			args = append(args, "--seat-key", party+"="+key)
		}
		for i, opening := range c.Openings {
			args = append(args, "--opening", write(fmt.Sprintf("opening%d.json", i), opening))
		}
		r := run(t, "", args...)
		report, failed := r.report(t)
		beaconChecked := strings.Contains(r.out, `"beacon_signature"`)
		want, name := c.Failed, strings.TrimSuffix(filepath.Base(file), ".json")
		code := ExitOK
		if len(want) > 0 {
			code = ExitFailed
		} else if c.Claims[verification.Issued] != verification.Proven {
			code = ExitUnknownIssuer
		}
		if !slices.Equal(failed, want) || r.code != code || !strings.Contains(r.out, c.Says) {
			t.Errorf("%s: exit code %d with the failed checks %v, want %d with %v and the text %q", name, r.code, failed, code, want, c.Says)
		}
		statuses, agreed := map[string]verification.Status{}, []verification.Status{}
		for _, claim := range report.Claims {
			statuses[claim.Claim] = claim.Status
			for _, party := range claim.Parties {
				agreed = append(agreed, party.Status)
			}
		}
		if !maps.Equal(statuses, c.Claims) || !slices.Equal(agreed, c.Agreed) {
			t.Errorf("%s: the claims are %v, the parties %v, want %v, %v", name, statuses, agreed, c.Claims, c.Agreed)
		}
		if !beaconChecked && c.Claims[verification.Drawn] != verification.NotApplicable && !slices.Contains(want, "bundle") && !slices.Contains(want, "shape") {
			t.Errorf("%s: the report has no check beacon_signature", name)
		}
	}
}

// A reader of the verdict sees which deal it is about, whatever a stranger wrote into the bundle, and can require one.
func TestVerifySaysWhichDeal(t *testing.T) {
	text, err := os.ReadFile("../../e2e/testdata/bundles/rows-split.json")
	ok(t, err)
	var c struct {
		Bundle  json.RawMessage
		Pubkeys []string
	}
	ok(t, json.Unmarshal(text, &c))
	file := write(t, "bundle.json", string(c.Bundle))
	r := run(t, "", "verify", file, "--pubkey", c.Pubkeys[0], "--deal", "d_rows")
	for _, want := range []string{"d_rows, split.v1, COMPUTED\n", `0 "Ann", 1 "Bob"`, `{"method":"adjusted_winner"`, " rows.example\n"} {
		if r.code != ExitOK || !strings.Contains(r.out, want) {
			t.Errorf("verify: %+v, want exit code 0 and %q", r, want)
		}
	}
	var of decided
	r = run(t, "", "verify", file, "--pubkey", c.Pubkeys[0], "--json")
	ok(t, json.Unmarshal([]byte(r.out), &of))
	if of.DealID != "d_rows" || of.Outcome != "COMPUTED" || !slices.Equal(of.Labels, []string{"Ann", "Bob"}) || of.Parties != 2 || !strings.HasPrefix(of.Result, `{"method"`) || of.Log != "rows.example" {
		t.Errorf("verify --json: %+v", of)
	}
	r = run(t, "", "verify", file, "--pubkey", c.Pubkeys[0], "--deal", "d_other")
	if r.code != ExitFailed || !strings.Contains(r.out, "FAIL deal ") || !strings.Contains(r.out, "NOT VALID") {
		t.Errorf("verify --deal of another deal: %+v, want exit code %d", r, ExitFailed)
	}
	forged := strings.ReplaceAll(string(c.Bundle), `"label": "Ann"`, `"label": "\u001b[31m\n`+strings.Repeat("x", 5000)+`"`)
	r = run(t, "", "verify", write(t, "forged.json", forged))
	lines := strings.Split(r.out, "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "parties ") })
	if r.code != ExitFailed || at < 0 || len(lines[at]) > 500 || !strings.Contains(lines[at], `1b[31m`) || strings.Contains(r.out, "\x1b") {
		t.Errorf("verify of a forged label: exit code %d, line %d", r.code, at)
	}
}

// withInput adds an input and a salt to a party's bundle only if they open the party's
// commitment.
func TestInputIsPutIntoABundle(t *testing.T) {
	t.Parallel()
	var served, whole struct {
		Bundle  json.RawMessage
		Pubkeys []string
	}
	for name, v := range map[string]any{"good-as-served": &served, "good": &whole} {
		text, err := os.ReadFile("../../e2e/testdata/bundles/" + name + ".json")
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var bundle struct {
		Own sealedFile `json:"own_input"`
	}
	if err := json.Unmarshal(whole.Bundle, &bundle); err != nil {
		t.Fatal(err)
	}
	input := bundle.Own.Input
	of := func(salt string) sealed {
		members, err := canon.ParseObject(input)
		if err != nil {
			t.Fatal(err)
		}
		return sealed{members, canon.Encode(members), salt}
	}
	var noted bytes.Buffer
	out := &terminal{err: &noted}
	text, err := withInput(out, served.Bundle, of(bundle.Own.Salt))
	if err != nil || noted.Len() > 0 {
		t.Fatalf("withInput of the committed input: error %v, notes %q, want neither", err, noted.String())
	}
	if r := run(t, string(text), "verify", "-", "--pubkey", served.Pubkeys[0]); r.code != ExitOK || !strings.Contains(r.out, "OK   own_input") || !strings.Contains(r.out, "OK   input_path") {
		t.Errorf("verify of the bundle with its input: %+v, want own_input and input_path OK", r)
	}
	if _, err := withInput(out, served.Bundle, of("salt")); err == nil || !strings.Contains(err.Error(), "does not open the commitment of party 1") {
		t.Errorf("withInput of another salt: error %v, want one that names the commitment of party 1", err)
	}
	text, err = withInput(out, served.Bundle, sealed{})
	if err != nil || !strings.Contains(noted.String(), "--sealed FILE") {
		t.Errorf("withInput without a sealed file: error %v, notes %q, want a note with --sealed FILE", err, noted.String())
	}
	if r := run(t, string(text), "verify", "-", "--pubkey", served.Pubkeys[0]); r.code != ExitOK || strings.Contains(r.out, "own_input") {
		t.Errorf("verify of the bundle as served: %+v, want no check of the input", r)
	}
}
