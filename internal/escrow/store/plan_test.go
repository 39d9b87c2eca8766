package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

type planner struct{ *pgxpool.Conn }

func (f *fixture) planner(t *testing.T) planner {
	t.Helper()
	pool, err := database.Open(t.Context(), f.url, 1)
	check(t, err)
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	check(t, err)
	t.Cleanup(conn.Release)
	// Some statements read the setting fairpact.locked, which lock.sql sets in production.
	_, err = conn.Exec(t.Context(), "SELECT set_config('fairpact.locked', '', false)")
	check(t, err)
	return planner{conn}
}

func statements(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("sql/*.sql")
	check(t, err)
	if len(files) < 20 {
		t.Fatalf("found %d statements in sql/, want at least 20", len(files))
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".sql"))
	}
	return names
}

func statement(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("sql/" + name + ".sql")
	check(t, err)
	return string(text)
}

func (p planner) prepare(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := p.Exec(t.Context(), `PREPARE "`+name+`" AS `+statement(t, name))
		check(t, err)
	}
}

func (p planner) explain(t *testing.T, options, name, args string) (plan step, jit bool) {
	t.Helper()
	var text []byte
	if args != "" {
		args = "(" + args + ")"
	}
	if err := p.QueryRow(t.Context(), "EXPLAIN ("+options+"FORMAT JSON) EXECUTE \""+name+"\" "+args).Scan(&text); err != nil {
		t.Fatalf("EXPLAIN of %s: %v", name, err)
	}
	var plans []struct {
		Plan step
		JIT  json.RawMessage
	}
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		t.Fatalf("EXPLAIN of %s = %s (%v), want one plan", name, text, err)
	}
	return plans[0].Plan, plans[0].JIT != nil
}

type step struct {
	Node     string  `json:"Node Type"`
	Index    string  `json:"Index Name"`
	Table    string  `json:"Relation Name"`
	Cond     string  `json:"Index Cond"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Unjoined float64 `json:"Rows Removed by Join Filter"`
	Plans    []step
}

func (p planner) touched(t *testing.T, name, args string) float64 {
	t.Helper()
	plan, _ := p.explain(t, "ANALYZE, ", name, args)
	return plan.touched()
}

func (s step) touched() float64 {
	n := (s.Rows + s.Filtered + s.Unjoined) * s.Loops
	for _, below := range s.Plans {
		n += below.touched()
	}
	return n
}

func (s step) scans() (bad []string) {
	// A statement may read a whole partial index, which has only active deals or pending certificates.
	partial := []string{"deals_committing", "deals_revealing", "deals_drawing", "deals_sealed", "deals_closing", "certificates_pending"}
	switch {
	case s.Node == "Seq Scan":
		bad = append(bad, "scans "+s.Table)
	case s.Index != "" && s.Cond == "" && !slices.Contains(partial, s.Index):
		bad = append(bad, "reads all of "+s.Index)
	}
	for _, below := range s.Plans {
		bad = append(bad, below.scans()...)
	}
	return bad
}

// On a server with stock settings, every statement reads by index and runs without JIT, both
// with and without statistics about the tables.
func TestPlansReadByIndex(t *testing.T) {
	f := newFixture(t)
	var jit string
	check(t, f.sql.QueryRow(t.Context(), "SHOW jit").Scan(&jit))
	if jit != "on" {
		t.Errorf("the server has jit = %s, want on, the stock setting", jit)
	}
	tables := []string{"deals", "parties", "commitments", "reveals", "certificates", "api_keys", "idempotency", "beacon_rounds"}
	for _, table := range tables {
		f.exec(t, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
	}
	first := f.planner(t)
	first.prepare(t, statements(t)...)
	byIndex := func(what string) {
		t.Helper()
		now := f.planner(t)
		now.prepare(t, statements(t)...)
		for session, p := range map[string]planner{"the first session": first, "a new session": now} {
			for _, name := range statements(t) {
				var n int
				check(t, p.QueryRow(t.Context(), "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = $1", name).Scan(&n))
				plan, compiled := p.explain(t, "", name, strings.TrimSuffix(strings.Repeat("NULL, ", n), ", "))
				if bad := plan.scans(); bad != nil || compiled {
					t.Errorf("%s, %s: the plan of %s %s, compiled: %v; want no scan and no JIT", what, session, name, strings.Join(bad, ", "), compiled)
				}
			}
		}
	}
	byIndex("empty, never analysed")
	d := f.create(t, nil)
	f.commit(t, d, 0, 1)
	f.reveal(t, d, 0, 1)
	f.end(t, d, deal.Computed)
	f.create(t, nil)
	f.exec(t, "ANALYZE "+strings.Join(tables, ", "))
	byIndex("tiny, analysed")
	const burst = 5000
	f.burst(t, d.DealID, burst)
	byIndex("after a burst")
	reads := map[string]string{
		"declaration": "'e_7', 100000", "snapshot": "ARRAY['e_7', 'e_8'], ARRAY[0, 0], ARRAY[9, 9], ARRAY[true, true], ARRAY[true, true], 100000, 100000, ARRAY[true, false]", "party_by_token": "ARRAY[sha256('7 0')]",
		"inputs": "'e_7', 0, 1000, 1000", "certificate_digest": "'c_7'",
		"certificates": "ARRAY['c_7', NULL], ARRAY[NULL, 'e_8'], 100000", "find_replay": "sha256('7'), ARRAY[sha256('8')], 100", "due": "3, 100, 60, ARRAY['e_7']", "complete": "100",
		"delete_contents": "9000000000", "lock": "ARRAY['e_7', 'e_8']", "lock_wait": "ARRAY['e_7', 'e_8']", "get_round": "'7', 7", "use_key": "ARRAY[sha256('7')], ARRAY[100]",
		"progress": "ARRAY['e_7', 'e_8']",
	}
	fewRows := func(what string) {
		t.Helper()
		for name, args := range reads {
			if n := first.touched(t, name, args); n > 100 {
				t.Errorf("%s: %s reads %.0f rows, want at most 100", what, name, n)
			}
		}
	}
	fewRows("after a burst, with the plans made before it")
	f.exec(t, "ANALYZE "+strings.Join(tables, ", "))
	byIndex("after a burst, analysed")
	fewRows("after a burst, analysed")
}

// Each batch of a rotation reads a few entries of reveals_secret. A bitmap scan would read the entries of
// all inputs that are left. Without statistics, the planner prefers such a scan to one without an order.
func TestRotationReadsFewRows(t *testing.T) {
	f := newFixture(t)
	f.exec(t, "ALTER TABLE reveals SET (autovacuum_enabled = off)")
	f.exec(t, "INSERT INTO server_secret (fingerprint, since, former) VALUES ('\\x02', 0, '{\"\\\\x01\"}')")
	f.exec(t, "INSERT INTO reveals SELECT 'd_' || md5(i::text), 0, repeat('x', 250)::bytea, 1, '\\x01' FROM generate_series(1, 50000) i")
	for _, analysed := range []bool{false, true} {
		if analysed {
			f.exec(t, "ANALYZE reveals")
		}
		p := f.planner(t)
		for name, args := range map[string]string{"reseal_next": "10, 1000000", "rotation": "60, 10", "forget_secrets": "'\\x02'"} {
			p.prepare(t, name)
			if n := p.touched(t, name, args); n > 100 {
				t.Errorf("analysed: %v: %s reads %.0f rows, want at most 100", analysed, name, n)
			}
		}
	}
}

// burst stores n ended copies of the deal with the id `like`, and rows in the other tables.
func (f *fixture) burst(t *testing.T, like string, n int) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO deals (deal_id, owner_hash, algorithm, params, mode, retention, parties, commit_deadline, reveal_deadline, created_at, phase, cert_id)
			SELECT 'e_' || i, owner_hash, algorithm, params, mode, retention, 2, i, i + 1, i, 'VOID', 'c_' || i FROM deals, generate_series(1, $1::int) i WHERE deal_id = $2`,
		`INSERT INTO parties SELECT 'e_' || i, p, 'a', sha256((i || ' ' || p)::bytea) FROM generate_series(1, $1::int) i, generate_series(0, 1) p WHERE $2 <> ''`,
		`INSERT INTO commitments SELECT 'e_' || i, p, sha256(''), 1 FROM generate_series(1, $1::int) i, generate_series(0, 1) p WHERE $2 <> ''`,
		`INSERT INTO reveals SELECT 'e_' || i, p, '', 1, '\x01' FROM generate_series(1, $1::int) i, generate_series(0, 1) p WHERE $2 <> ''`,
		`INSERT INTO certificates (cert_id, deal_id, payload, mac, leaf_index, created_at) SELECT 'c_' || i, 'e_' || i, '', '', i, 1 FROM generate_series(1, $1::int) i WHERE $2 <> ''`,
		`INSERT INTO api_keys SELECT sha256(i::text::bytea), 1 FROM generate_series(1, $1::int) i WHERE $2 <> ''`,
		`INSERT INTO idempotency SELECT sha256(i::text::bytea), '', '', NULL, 1 << 40 FROM generate_series(1, $1::int) i WHERE $2 <> ''`,
	} {
		f.exec(t, strings.ReplaceAll(statement, "1 << 40", "9000000000"), n, like)
	}
}

// In a deal of n parties, a commit or reveal must not read n rows if Act.First is a little before
// the first missing party. The last commit or reveal must not read n² rows. Both bounds hold
// even without statistics and with a plan made while the tables were empty.
func TestActsOfALargeDealReadFewRows(t *testing.T) {
	const size, acted = 4000, 2000
	f := newFixture(t)
	for _, table := range []string{"deals", "parties", "commitments", "reveals"} {
		f.exec(t, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
	}
	p := f.planner(t)
	p.prepare(t, "lock", "commit", "reveal")
	committing, revealing := f.create(t, parties(size)), f.create(t, parties(size))
	f.exec(t, "UPDATE deals SET phase = 'REVEALING' WHERE deal_id = $1", revealing.DealID)
	act := func(from, to int) {
		f.exec(t, "INSERT INTO commitments SELECT $1, i, sha256('x'), 1 FROM generate_series($2::int, $3::int - 1) i", committing.DealID, from, to)
		f.exec(t, "INSERT INTO reveals SELECT $1, i, '', 1 FROM generate_series($2::int, $3::int - 1) i", revealing.DealID, from, to)
	}
	f.exec(t, "INSERT INTO commitments SELECT $1, i, sha256('x'), 1 FROM generate_series(0, $2::int - 1) i", revealing.DealID, size)
	act(0, acted)
	act(acted+10, size) // the ten parties from number `acted` on are missing
	touched := func(name, dealID, args string) float64 {
		t.Helper()
		for _, statement := range []string{"BEGIN", "EXECUTE lock (ARRAY['" + dealID + "'])"} {
			_, err := p.Exec(t.Context(), statement)
			check(t, err)
		}
		defer func() {
			_, err := p.Exec(t.Context(), "ROLLBACK")
			check(t, err)
		}()
		return p.touched(t, name, args)
	}
	commit := func(party, first int) float64 {
		return touched("commit", committing.DealID, fmt.Sprintf("ARRAY['%s'], ARRAY[%d], ARRAY[sha256('x')], ARRAY[%d], ARRAY[NULL::bytea], ARRAY[NULL::bytea], ARRAY[0], ARRAY[NULL::text], ARRAY[NULL::bytea], ARRAY[NULL::bytea], ARRAY[NULL::bigint], NULL", committing.DealID, party, first))
	}
	reveal := func(party, first int) float64 {
		return touched("reveal", revealing.DealID, fmt.Sprintf("ARRAY['%s'], ARRAY[%d], ARRAY[''::bytea], ARRAY[sha256('x')], ARRAY[%d], ARRAY[NULL::bytea], ARRAY[NULL::bytea], ARRAY[0], 1000000, NULL, ARRAY[false], 1000000", revealing.DealID, party, first))
	}
	for _, counted := range []bool{false, true} {
		if counted {
			f.exec(t, "ANALYZE deals, parties, commitments, reveals")
		}
		for name, one := range map[string]func(party, first int) float64{"commit": commit, "reveal": reveal} {
			if n := one(acted+5, acted-50); n > 700 {
				t.Errorf("%s reads %.0f rows to find the missing party 50 after First (analysed: %v), want at most 700", name, n, counted)
			}
			if n := one(acted+5, 0); n > 12*acted {
				t.Errorf("%s reads %.0f rows to find the missing party %d after First (analysed: %v), want at most %d", name, n, acted, counted, 12*acted)
			}
		}
	}
	act(acted, acted+9)
	for name, one := range map[string]func(party, first int) float64{"commit": commit, "reveal": reveal} {
		if n := one(acted+9, acted); n > 20*size {
			t.Errorf("the last %s reads %.0f rows in a deal of %d parties, want at most %d", name, n, size, 20*size)
		}
	}
}
