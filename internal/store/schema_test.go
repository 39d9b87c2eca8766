package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/store"
)

func TestMigrateAgainAndAtOnce(t *testing.T) {
	url := servertest.Postgres(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := store.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	b := &bench{url: url}
	b.Store = b.open(t)
	d := b.created(t, nil)
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Static(t.Context(), d.DealID); err != nil {
		t.Errorf("a second migration lost a deal: %v", err)
	}
}

// Open and Ready say what to do about a database that is not migrated.
func TestReadyNamesTheMigration(t *testing.T) {
	url := servertest.Postgres(t)
	if _, err := store.Open(t.Context(), url, 0); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an empty database: %v", err)
	}
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("a migrated database: %v", err)
	}
	// A newer schema is fine: migrations come before the binaries.
	b.exec(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
	if err := b.Ready(t.Context()); err != nil {
		t.Errorf("a newer schema: %v", err)
	}
	b.exec(t, "DELETE FROM goose_db_version WHERE version_id > 0")
	if err := b.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an older schema: %v", err)
	}
}
