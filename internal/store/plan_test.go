package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/fairpact/fairpact/internal/store"
)

// step is a node of a plan as EXPLAIN ANALYZE tells it.
type step struct {
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Unjoined float64 `json:"Rows Removed by Join Filter"`
	Plans    []step
}

// touched is how many rows the step and those below it have looked at.
func (s step) touched() float64 {
	n := (s.Rows + s.Filtered + s.Unjoined) * s.Loops
	for _, below := range s.Plans {
		n += below.touched()
	}
	return n
}

// prepared are the statements that calls on large deals run, as Postgres keeps
// them: planned in a session that has met small deals only.
var prepared = map[string]string{
	"first_missing_commit": "(text, int)", "first_missing_reveal": "(text, int)", "advance": "(text)",
}

func (b *bench) prepare(t *testing.T, mode string) {
	t.Helper()
	b.exec(t, "SET plan_cache_mode = "+mode)
	for name, types := range prepared {
		b.prepareOne(t, name, types)
	}
}

func (b *bench) prepareOne(t *testing.T, name, types string) {
	t.Helper()
	statement, err := os.ReadFile("sql/" + name + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, "PREPARE "+name+types+" AS "+string(statement))
}

// touched is how many rows a prepared statement looks at; args is SQL text.
func (b *bench) touched(t *testing.T, name, args string) float64 {
	t.Helper()
	var told []byte
	if err := b.sql.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE "+name+"("+args+")").Scan(&told); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var plans []struct{ Plan step }
	if err := json.Unmarshal(told, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("%s: %v in %s", name, err, told)
	}
	return plans[0].Plan.touched()
}

// What each of n calls asks must not cost n itself, nor what the last one asks
// n²: also in a deal that is too new for Postgres to have counted its rows, and
// by a plan that was made before there were any.
func TestLargeDealsAreReadByTheRow(t *testing.T) {
	const parties, acted = 4000, 2000
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t)
			for _, table := range []string{"parties", "commitments", "reveals"} {
				b.exec(t, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
			}
			small := b.created(t, nil)
			b.prepare(t, mode)
			b.touched(t, "first_missing_commit", "'"+small.DealID+"', 0")
			b.touched(t, "first_missing_reveal", "'"+small.DealID+"', 0")
			b.touched(t, "advance", "'"+small.DealID+"'")

			d := b.created(t, func(d *store.Static) {
				d.Labels = make([]string, parties)
				for i := range d.Labels {
					d.Labels[i] = fmt.Sprint(i)
				}
			})
			act := func(from, to int) {
				b.exec(t, "INSERT INTO commitments SELECT $1, i, sha256(i::text::bytea), 1 FROM generate_series($2::int, $3::int - 1) i", d.DealID, from, to)
				b.exec(t, "INSERT INTO reveals SELECT $1, i, '', 1 FROM generate_series($2::int, $3::int - 1) i", d.DealID, from, to)
			}
			act(0, acted)
			act(acted+10, parties) // the next ten are on their way
			from := fmt.Sprintf("'%s', %d", d.DealID, acted-50)
			for _, counted := range []bool{false, true} {
				if counted {
					b.exec(t, "ANALYZE parties, commitments, reveals")
				}
				for _, name := range []string{"first_missing_commit", "first_missing_reveal"} {
					if n := b.touched(t, name, from); n > 500 {
						t.Errorf("%s looks at %.0f rows to find one 50 further on (rows counted: %v)", name, n, counted)
					}
				}
				if n := b.touched(t, "advance", "'"+d.DealID+"'"); n > 5*parties {
					t.Errorf("advance looks at %.0f rows where %d parties have to act (rows counted: %v)", n, parties, counted)
				}
			}
			act(acted, acted+10)
			if n := b.touched(t, "advance", "'"+d.DealID+"'"); n > 5*parties {
				t.Errorf("advance looks at %.0f rows of a complete deal of %d", n, parties)
			}
			if st := b.status(t, d.DealID); st.Phase != "REVEALING" || *st.CommitsClosedAt != 1 {
				t.Errorf("a complete deal is advanced to %s, commits closed at %v", st.Phase, st.CommitsClosedAt)
			}
		})
	}
}
