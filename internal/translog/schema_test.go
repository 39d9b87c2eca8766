package translog

import (
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

func TestMigrate(t *testing.T) {
	url := servertest.Postgres(t)
	pool := openPool(t, url)
	if err := schema.Current(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("no schema: %v, want a word on fairpactctl migrate", err)
	}
	if _, err := Open(t.Context(), pool, nil, nil, quiet); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("open without a schema: %v", err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := Migrate(t.Context(), url); err != nil {
				t.Errorf("migrate beside another: %v", err)
			}
		})
	}
	group.Wait()
	if err := schema.Current(t.Context(), pool); err != nil {
		t.Error(err)
	}
	set := func(version int64) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "UPDATE translog.goose_db_version SET version_id = $1 WHERE version_id = (SELECT max(version_id) FROM translog.goose_db_version)", version); err != nil {
			t.Fatal(err)
		}
	}
	set(schema.Version() + 1)
	if err := schema.Current(t.Context(), pool); err != nil {
		t.Errorf("a newer schema: %v", err)
	}
	set(schema.Version() - 1)
	if err := schema.Current(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an older schema: %v, want a word on fairpactctl migrate", err)
	}
}

func TestReady(t *testing.T) {
	d := newDeployment(t)
	signer := &failingSigner{Signer: d.signer}
	signer.down.Store(true)
	l := d.open(t, d.pool, signer)
	if err := l.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no head is published") {
		t.Errorf("ready before the first head: %v", err)
	}
	signer.down.Store(false)
	waitForHead(t, l, 0)
	if err := l.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	d.pool.Close()
	if err := l.Ready(t.Context()); err == nil {
		t.Error("ready without a database")
	}
}
