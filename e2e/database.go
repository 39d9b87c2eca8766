package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/localstack"
)

// Patience bounds a wait for something that is not timed: it ends as soon as
// the thing is there.
const Patience = 3 * time.Minute

// Witness reads and moves a stack's database beside the service.
type Witness struct {
	T    testing.TB
	Pool *pgxpool.Pool
}

func Database(t testing.TB, stack *localstack.Stack) Witness {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), stack.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return Witness{t, pool}
}

// Number is the single integer that a query answers.
func (w Witness) Number(query string, args ...any) int64 {
	w.T.Helper()
	return Value[int64](w, query, args...)
}

// Value is the single value that a query answers.
func Value[T any](w Witness, query string, args ...any) (v T) {
	w.T.Helper()
	if err := w.Pool.QueryRow(w.T.Context(), query, args...).Scan(&v); err != nil {
		w.T.Fatalf("%s: %v", query, err)
	}
	return v
}

// Exec changes rows and requires that it changed as many as said.
func (w Witness) Exec(rows int64, query string, args ...any) {
	w.T.Helper()
	tag, err := w.Pool.Exec(w.T.Context(), query, args...)
	if err != nil || tag.RowsAffected() != rows {
		w.T.Fatalf("%s: %d rows, want %d: %v", query, tag.RowsAffected(), rows, err)
	}
}

// Phase is the stored phase of a deal, which reading it here does not move.
func (w Witness) Phase(d *Dealt) string {
	w.T.Helper()
	return Value[string](w, "SELECT phase FROM deals WHERE deal_id = $1", d.ID)
}

// Pass waits until the database's clock, which is the service's, has passed a
// deadline.
func (w Witness) Pass(deadline int64) {
	w.T.Helper()
	Eventually(w.T, "the deadline passes", Patience, func() bool {
		return Value[bool](w, "SELECT extract(epoch FROM clock_timestamp()) >= $1", deadline)
	})
}

// Exactly requires these many deals, certificates and leaves in the whole
// database, once every certificate is published.
func (w Witness) Exactly(deals, certificates int64) {
	w.T.Helper()
	Eventually(w.T, "every certificate is published", Patience, func() bool {
		return w.Number("SELECT count(*) FROM certificates WHERE leaf_index IS NULL") == 0
	})
	for table, want := range map[string]int64{"deals": deals, "certificates": certificates, "translog.leaves": certificates} {
		if have := w.Number("SELECT count(*) FROM " + table); have != want {
			w.T.Errorf("%s has %d rows, want %d", table, have, want)
		}
	}
	if n := w.Number("SELECT count(DISTINCT leaf_index) FROM certificates JOIN translog.leaves USING (leaf_index)"); n != certificates {
		w.T.Errorf("%d certificates have a leaf of their own, want %d", n, certificates)
	}
}
