package ctl

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/verification"
)

// The command line agrees with the other verifiers on the shared bundle cases, and also
// checks the beacon's signature. Nothing is fetched.
func TestVerifyRefusesForgedBundles(t *testing.T) {
	t.Setenv("FAIRPACT_URL", "")
	files, err := filepath.Glob("../../e2e/testdata/bundles/*.json")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d cases, %v", len(files), err)
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
			Unproven     string
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
			args = append(args, "--party", party+"="+key)
		}
		r := run(t, "", args...)
		var report verification.Report
		if err := json.Unmarshal([]byte(r.out), &report); err != nil {
			t.Fatalf("%s: %+v", file, r)
		}
		var failed []string
		beaconChecked := false
		for _, check := range report.Checks {
			if !check.OK {
				failed = append(failed, check.Name)
			}
			beaconChecked = beaconChecked || check.Name == "beacon_signature"
		}
		want, name := c.Failed, strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "beacon-signature" {
			want = append(want, "beacon_signature")
		}
		code := ExitOK
		if len(want) > 0 {
			code = ExitFailed
		}
		if !slices.Equal(failed, want) || r.code != code || !strings.Contains(r.out, c.Says) {
			t.Errorf("%s: exits %d, fails %v, want %v with %q", name, r.code, failed, want, c.Says)
		}
		if unproven := strings.Join(report.Notes, "\n"); report.Valid && !strings.Contains(unproven, c.Unproven) {
			t.Errorf("%s: not proven are %q, want %q", name, unproven, c.Unproven)
		}
		if !beaconChecked && !slices.Contains(want, "bundle") {
			t.Errorf("%s: the beacon's signature was not checked", name)
		}
	}
}

// A party's input and salt go into its bundle only if they open its commitment.
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
	of := func(salt string) *sealed {
		members, err := canon.ParseObject(input)
		if err != nil {
			t.Fatal(err)
		}
		return &sealed{members, canon.Encode(members), salt}
	}
	var noted bytes.Buffer
	out := &terminal{err: &noted}
	text, err := withInput(out, served.Bundle, of(bundle.Own.Salt))
	if err != nil || noted.Len() > 0 {
		t.Fatal(err, noted.String())
	}
	if r := run(t, string(text), "verify", "-", "--pubkey", served.Pubkeys[0]); r.code != ExitOK || !strings.Contains(r.out, "OK   own_input") || !strings.Contains(r.out, "OK   input_path") {
		t.Errorf("with the input: %+v", r)
	}
	if _, err := withInput(out, served.Bundle, of("salt")); err == nil || !strings.Contains(err.Error(), "does not open the commitment of party 1") {
		t.Errorf("another salt: %v", err)
	}
	text, err = withInput(out, served.Bundle, nil)
	if err != nil || !strings.Contains(noted.String(), "--sealed FILE") {
		t.Errorf("without a sealed file: %v, %q", err, noted.String())
	}
	if r := run(t, string(text), "verify", "-", "--pubkey", served.Pubkeys[0]); r.code != ExitOK || !strings.Contains(r.out, "your input was not checked") {
		t.Errorf("as served: %+v", r)
	}
	if r := run(t, "", "deal", "certificate", "--sealed", "sealed.json"); r.code == ExitOK || !strings.Contains(r.err, "--bundle FILE") {
		t.Errorf("--sealed alone: %+v", r)
	}
}

// A draw from a beacon value that the chain did not sign fails, even if everything else
// fits: quicknet under its pinned key, another chain under the bundle's key.
func TestBeaconOfABundle(t *testing.T) {
	t.Parallel()
	quicknet := beacon.Quicknet()
	var good struct {
		Bundle struct {
			Certificate map[string]any
			Beacon      map[string]any
		}
	}
	text, err := os.ReadFile("../../e2e/testdata/bundles/good.json")
	if err == nil {
		err = json.Unmarshal(text, &good)
	}
	if err != nil {
		t.Fatal(err)
	}
	shown := good.Bundle.Certificate["result"].(map[string]any)["beacon"].(map[string]any)
	chain := func(hash, key string) map[string]any {
		return map[string]any{"chain_hash": hash, "public_key": key, "period": int64(3), "genesis_time": int64(1692803367)}
	}
	key, other := hex.EncodeToString(quicknet.PublicKey), strings.Repeat("0", 64)
	for name, row := range map[string]struct {
		hash  string
		given map[string]any
		round int64
		want  string
	}{
		"quicknet":                   {quicknet.Hash, chain(quicknet.Hash, key), 0, "OK"},
		"quicknet under another key": {quicknet.Hash, chain(quicknet.Hash, strings.Repeat("0", 192)), 0, "FAIL"},
		"another round of it":        {quicknet.Hash, chain(quicknet.Hash, key), 7, "FAIL"},
		"a chain that is not known":  {other, chain(other, key), 0, "OK"},
		"that chain under a bad key": {other, chain(other, strings.Repeat("0", 192)), 0, "FAIL"},
		"that chain, another round":  {other, chain(other, key), 7, "FAIL"},
		"a chain without a key":      {other, nil, 0, ""},
	} {
		result := map[string]any{"chain_hash": row.hash, "round": int64(shown["round"].(float64)), "signature": shown["signature"]}
		if row.round > 0 {
			result["round"] = row.round
		}
		report := verification.Report{Valid: true}
		checkBeacon(&report, map[string]any{"algorithm": "random.v1", "outcome": "COMPUTED", "result": map[string]any{"beacon": result}}, row.given)
		got := ""
		for _, check := range report.Checks {
			got = "FAIL"
			if check.OK {
				got = "OK"
			}
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q: %+v", name, got, row.want, report.Checks)
		}
	}
}
