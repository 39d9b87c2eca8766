package translog

import (
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

// A replica serves on a schema of its version and with a published head; internal/store
// tests what it shares with this package about schemas.
func TestReady(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), openPool(t, servertest.Postgres(t)), nil, nil, quiet); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("open without a schema: %v, want a word on fairpactctl migrate", err)
	}
	d := newDeployment(t)
	signer := &failingSigner{Signer: d.signer}
	signer.down.Store(true)
	l := d.open(t, d.pool, signer)
	if err := l.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no head is published") {
		t.Errorf("ready before the first head: %v", err)
	}
	signer.down.Store(false)
	waitForHead(t, l, 0)
	check(t, l.Ready(t.Context()))
	asOwner(t, d, "UPDATE translog.goose_db_version SET version_id = 0")
	if err := l.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an older schema: %v", err)
	}
	d.pool.Close()
	if err := l.Ready(t.Context()); err == nil {
		t.Error("ready without a database")
	}
}
