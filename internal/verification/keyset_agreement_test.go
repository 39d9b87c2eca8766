package verification_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairpact/fairpact/internal/signing"
)

// What a deployment starts with and publishes is what its readers can read: the
// key sets of the shared cases, which the Python verifier and the one in the
// browser judge as well, are taken or refused alike. The start is stricter in
// one thing: no ed25519 key signs now or will.
func TestKeySetsOfTheStartAndOfTheVerifiers(t *testing.T) {
	t.Parallel()
	taken, refused := 0, 0
	for _, c := range sharedCases(t) {
		var document map[string]json.RawMessage
		if json.Unmarshal(c.Keys, &document) != nil || document["keys"] == nil {
			continue // labels, a status, or no document
		}
		read := !slices.Contains(c.Failed, "unreadable") && !slices.Contains(c.Failed, "keys")
		_, err := signing.ParseKeySet(c.Keys)
		if (err == nil) != read {
			t.Errorf("the start says %v, the verifiers fail %v: %.300s", err, c.Failed, c.Keys)
		}
		if err == nil {
			taken++
		} else {
			refused++
		}
	}
	if taken < 20 || refused < 20 {
		t.Errorf("%d key sets are taken and %d refused: too few to mean anything", taken, refused)
	}
}
