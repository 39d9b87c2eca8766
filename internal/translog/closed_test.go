package translog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/signing"
)

// A key set that closes a key below a head that it signed is found, unless the key
// is disowned.
func TestKeyClosedBelowItsHeads(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	fill(t, d.open(t, d.pool, nil), 0, 3) // heads of size 0 and up to 3, by the key
	for _, row := range []struct {
		size     int64
		disowned bool
		says     string
	}{
		{3, false, "<nil>"},
		{2, false, "signed the head of size 3"},
		{2, true, "<nil>"},
	} {
		keys := []signing.Key{{PublicKey: d.signer.PublicKey(), TreeSize: &row.size, Disowned: row.disowned}, {PublicKey: d.signer.PublicKey()}}
		if err := CheckClosed(t.Context(), d.pool, keys, 1000); !strings.Contains(fmt.Sprint(err), row.says) {
			t.Errorf("closed at %d, disowned %v: %v, want %s", row.size, row.disowned, err, row.says)
		}
	}
	other, _ := newKey(t)
	if err := CheckClosed(t.Context(), d.pool, []signing.Key{{PublicKey: other.PublicKey(), TreeSize: new(int64)}}, 1000); err != nil {
		t.Errorf("a key that signed nothing: %v", err)
	}
}
