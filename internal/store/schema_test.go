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
	f := &fixture{url: url}
	f.Store = f.open(t)
	d := f.create(t, nil)
	check(t, store.Migrate(t.Context(), url))
	if _, err := f.Declaration(t.Context(), d.DealID); err != nil {
		t.Errorf("a second migration lost a deal: %v", err)
	}
}

// Open and Ready say what to do about a database that is not migrated.
func TestReadyNamesTheMigration(t *testing.T) {
	url := servertest.Postgres(t)
	if _, err := store.Open(t.Context(), url, 0); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an empty database: %v", err)
	}
	f := newFixture(t)
	if err := f.Ready(t.Context()); err != nil {
		t.Errorf("a migrated database: %v", err)
	}
	// A newer schema is fine: migrations come before the binaries.
	f.exec(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
	if err := f.Ready(t.Context()); err != nil {
		t.Errorf("a newer schema: %v", err)
	}
	f.exec(t, "DELETE FROM goose_db_version WHERE version_id > 0")
	if err := f.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
		t.Errorf("an older schema: %v", err)
	}
}
