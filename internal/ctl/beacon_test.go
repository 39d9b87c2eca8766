package ctl

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/verification"
)

// The round is real. A forged one may be consistent and still lacks the beacon's signature.
func TestBeaconSignature(t *testing.T) {
	const genuine = "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394"
	const quicknet = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
	cert := func(chain, signature string, round int64) any {
		raw, err := hex.DecodeString(signature)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(raw)
		return map[string]any{"algorithm": "random.v1", "outcome": "COMPUTED", "result": map[string]any{"beacon": map[string]any{
			"chain_hash": chain, "round": round, "signature": signature, "randomness": hex.EncodeToString(sum[:])}}}
	}
	for _, row := range []struct {
		what  string
		cert  any
		check string // "" if the check is not made
	}{
		{"the round", cert(quicknet, genuine, 12040883), "OK"},
		{"another round", cert(quicknet, genuine, 12040884), "FAIL"},
		{"another signature", cert(quicknet, strings.Replace(genuine, "9299", "9298", 1), 12040883), "FAIL"},
		{"a short signature", cert(quicknet, "00", 12040883), "FAIL"},
		{"an unknown chain", cert(strings.Repeat("0", 64), genuine, 12040883), ""},
		{"another algorithm", map[string]any{"algorithm": "split.v1", "outcome": "COMPUTED", "result": map[string]any{}}, ""},
	} {
		report := verification.Report{Valid: true}
		checkBeacon(&report, row.cert, nil)
		got := ""
		for _, check := range report.Checks {
			got = "FAIL"
			if check.OK {
				got = "OK"
			}
		}
		if got != row.check || report.Valid != (got != "FAIL") {
			t.Errorf("%s: %q, want %q", row.what, got, row.check)
		}
	}
}
