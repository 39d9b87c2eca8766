package verification_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/signing"
)

// Throughout a rotation, verifiers can read the key set that GET /v1/pubkeys publishes. The
// current and the retired keys in the set are those that GET /v1/status lists.
func TestVerifiersReadWhatIsPublished(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	label := func(x int) string { return fmt.Sprintf("es256:02%064x", x) } // P-256 has points with x = 5, 6 and 8
	for _, offset := range []int64{-100_000, -1000, -200, 0, 200, 1000, 100_000} {
		set, err := signing.ParseKeySet(fmt.Appendf(nil, `{"keys":[{"pubkey":%q,"uri":"dev://1","signs_from":%d},{"pubkey":%q,"uri":"dev://2","signs_from":%d},{"pubkey":%q,"retired_at":5,"tree_size":7}]}`,
			label(5), now-50_000, label(6), now+offset, label(8)))
		if err != nil {
			t.Fatal(err)
		}
		document, err := canon.Parse(set.Published())
		if err != nil {
			t.Fatal(err)
		}
		keys, problem := verification.ReadKeys(document)
		if problem != "" {
			t.Fatalf("at %d s: verifiers refuse the key set: %s in %s", offset, problem, set.Published())
		}
		var current string
		var retired []string
		for _, k := range keys {
			switch k.State {
			case verification.Current:
				current = k.Label
			case verification.Retired:
				retired = append(retired, k.Label)
			}
		}
		if current != set.Current() || !slices.Equal(retired, set.Legacy()) {
			t.Errorf("at %d s: the key set has current %s and retired %v, the status %s and %v; want the same", offset, current, retired, set.Current(), set.Legacy())
		}
	}
}
