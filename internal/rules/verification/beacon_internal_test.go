package verification

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// A beacon value that the chain did not sign fails. The key is the pinned one for quicknet, and that in the
// bundle for any other chain.
func TestBeaconSignature(t *testing.T) {
	t.Parallel()
	const round, genuine = 12040883, "929906c959032ab363c9f26570d215d66f5c06cb0c44fe508c12bb5839f04ec895bb6868e5b9ff13ab289bdb5266b394"
	quicknet := drand.Quicknet()
	key, unknown, bad := hex.EncodeToString(quicknet.PublicKey), strings.Repeat("0", 64), strings.Repeat("0", 192)
	chain := func(key string) map[string]any {
		return map[string]any{"public_key": key, "period": int64(3), "genesis_time": int64(1692803367)}
	}
	for name, row := range map[string]struct {
		hash      string
		round     int64
		signature string
		bundle    any    // the bundle's `beacon` member; nil if the bundle has none
		want      string // the result of the check: OK or FAIL; "" if no check is added
	}{
		"quicknet":                         {quicknet.Hash, round, genuine, nil, "OK"},
		"quicknet in a bundle":             {quicknet.Hash, round, genuine, chain(key), "OK"},
		"quicknet under another key":       {quicknet.Hash, round, genuine, chain(bad), "FAIL"},
		"another round":                    {quicknet.Hash, round + 1, genuine, nil, "FAIL"},
		"another round in a bundle":        {quicknet.Hash, round + 1, genuine, chain(key), "FAIL"},
		"another signature":                {quicknet.Hash, round, strings.Replace(genuine, "9299", "9298", 1), nil, "FAIL"},
		"a short signature":                {quicknet.Hash, round, "00", nil, "FAIL"},
		"an unknown chain":                 {unknown, round, genuine, chain(key), "OK"},
		"an unknown chain under a bad key": {unknown, round, genuine, chain(bad), "FAIL"},
		"an unknown chain, another round":  {unknown, round + 1, genuine, chain(key), "FAIL"},
		"an unknown chain without a key":   {unknown, round, genuine, nil, ""},
	} {
		report, got := Report{Valid: true}, ""
		report.beaconSignature(row.bundle, certificate.Certificate{Payload: certificate.Payload{Algorithm: algorithm.Random, Outcome: certificate.Computed,
			Result: fmt.Appendf(nil, `{"beacon": {"chain_hash": %q, "round": %d, "signature": %q}}`, row.hash, row.round, row.signature)}})
		for _, check := range report.Checks {
			got = map[bool]string{true: "OK", false: "FAIL"}[check.OK]
		}
		if got != row.want || report.Valid != (got != "FAIL") {
			t.Errorf("%s: the check is %q, want %q: %+v", name, got, row.want, report.Checks)
		}
	}
}
