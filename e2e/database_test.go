package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/localstack"
)

// patience bounds a wait for something that is not timed: it ends as soon as
// the thing is there.
const patience = time.Minute

// witness reads and moves a stack's database beside the service.
type witness struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func database(t testing.TB, stack *localstack.Stack) witness {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), stack.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return witness{t, pool}
}

// number is the single integer that a query answers.
func (w witness) number(query string, args ...any) int64 {
	w.t.Helper()
	return value[int64](w, query, args...)
}

// value is the single value that a query answers.
func value[T any](w witness, query string, args ...any) (v T) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), query, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// exec changes rows and requires that it changed as many as said.
func (w witness) exec(rows int64, query string, args ...any) {
	w.t.Helper()
	tag, err := w.pool.Exec(w.t.Context(), query, args...)
	if err != nil || tag.RowsAffected() != rows {
		w.t.Fatalf("%s: %d rows, want %d: %v", query, tag.RowsAffected(), rows, err)
	}
}

// phase is the stored phase of a deal, which reading it here does not move.
func (w witness) phase(d *dealt) string {
	w.t.Helper()
	return value[string](w, "SELECT phase FROM deals WHERE deal_id = $1", d.ID)
}

// pass waits until the database's clock, which is the service's, has passed a
// deadline.
func (w witness) pass(deadline int64) {
	w.t.Helper()
	eventually(w.t, "the deadline passes", patience, func() bool {
		return value[bool](w, "SELECT extract(epoch FROM clock_timestamp()) >= $1", deadline)
	})
}

// exactly requires these many deals, certificates and leaves in the whole
// database, once every certificate is published.
func (w witness) exactly(deals, certificates int64) {
	w.t.Helper()
	eventually(w.t, "every certificate is published", patience, func() bool {
		return w.number("SELECT count(*) FROM certificates WHERE leaf_index IS NULL") == 0
	})
	for table, want := range map[string]int64{"deals": deals, "certificates": certificates, "translog.leaves": certificates} {
		if have := w.number("SELECT count(*) FROM " + table); have != want {
			w.t.Errorf("%s has %d rows, want %d", table, have, want)
		}
	}
	if n := w.number("SELECT count(DISTINCT leaf_index) FROM certificates JOIN translog.leaves USING (leaf_index)"); n != certificates {
		w.t.Errorf("%d certificates have a leaf of their own, want %d", n, certificates)
	}
}
