package translog

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/platform/database"
)

func TestFsckNamesChangedRows(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	if report, err := Fsck(t.Context(), d.pool, FsckOptions{}); err != nil || len(report.Findings) > 0 {
		t.Fatalf("an empty log: %+v, %v; want no finding", report, err)
	}
	fill(t, l, 0, 70_000)
	head := waitForHead(t, l, 70_000)
	options := FsckOptions{Heads: func(h TreeHead) error {
		_, err := d.keys.SignerOf(h.Message(), h.Signature)
		return err
	}}
	report, err := Fsck(t.Context(), d.pool, options)
	if err != nil || len(report.Findings) > 0 || report.Size != head.TreeSize || report.Heads < 2 {
		t.Fatalf("a good log: %+v, %v; want no finding", report, err)
	}
	for name, c := range map[string]struct {
		change, back string
		rows         []string
	}{
		"a leaf":             {flip("leaves", "entry", "leaf_index = 10"), "", []string{"node 0 of level 8", "head 70000", "the committed head"}},
		"a node":             {flip("nodes", "hash", "level = 8 AND node_index = 7"), "", []string{"node 7 of level 8"}},
		"a missing node":     {"UPDATE translog.nodes SET node_index = 99999 WHERE level = 8 AND node_index = 7", "UPDATE translog.nodes SET node_index = 7 WHERE node_index = 99999", []string{"node 7 of level 8"}},
		"a node of level 2":  {flip("nodes", "hash", "level = 16 AND node_index = 0"), "", []string{"node 0 of level 16"}},
		"a root":             {flip("tree_heads", "root", "tree_size = 70000"), "", []string{"head 70000"}},
		"a digest":           {flip("tree_heads", "digest", "tree_size = 70000"), "", []string{"head 70000"}},
		"a signature":        {"UPDATE translog.tree_heads SET signature = reverse(signature) WHERE tree_size = 70000", "UPDATE translog.tree_heads SET signature = reverse(signature) WHERE tree_size = 70000", []string{"head 70000"}},
		"the committed root": {flip("log_head", "root", "singleton"), "", []string{"the committed head"}},
		"a head beyond":      {"INSERT INTO translog.tree_heads VALUES (70001, sha256('x'), sha256('x'), 'x')", "DELETE FROM translog.tree_heads WHERE tree_size = 70001", []string{"tree_heads"}},
		"a node too many":    {"INSERT INTO translog.nodes VALUES (8, 273, sha256('x'))", "DELETE FROM translog.nodes WHERE level = 8 AND node_index = 273", []string{"nodes"}},
	} {
		asOwner(t, d, c.change)
		report, err := Fsck(t.Context(), d.pool, options)
		var rows []string
		for _, f := range report.Findings {
			rows = append(rows, f.Row)
		}
		for _, want := range c.rows {
			if err != nil || !slices.Contains(rows, want) {
				t.Errorf("%s: found %v, want %s (%v)", name, report.Findings, want, err)
			}
		}
		back := cmp.Or(c.back, c.change) // c.back is empty if a second run of c.change restores the row
		asOwner(t, d, back)
	}
	asOwner(t, d, "UPDATE translog.leaves SET leaf_index = 1000000 WHERE leaf_index = 20")
	if _, err := Fsck(t.Context(), d.pool, options); !errors.Is(err, ErrInconsistent) || !strings.Contains(err.Error(), "node 20 at level 0 is missing") {
		t.Errorf("Fsck of a log without leaf 20: %v, want ErrInconsistent that names the row", err)
	}
	asOwner(t, d, "UPDATE translog.leaves SET leaf_index = 20 WHERE leaf_index = 1000000")
	if report, err := Fsck(t.Context(), d.pool, options); err != nil || len(report.Findings) > 0 {
		t.Errorf("the restored log: %+v, %v; want no finding", report, err)
	}
}

func TestFsckOutlastsTheStatementTimeout(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	d.mustAppend(t, l, 0)
	l.Close()
	pool := of(database.Open(t.Context(), d.url, 1)).ok(t)
	t.Cleanup(pool.Close)
	check(t, second(pool.Exec(t.Context(), "SET statement_timeout = '1s'")))
	tx := of(d.pool.Begin(t.Context())).ok(t)
	check(t, second(tx.Exec(t.Context(), "LOCK TABLE translog.leaves IN ACCESS EXCLUSIVE MODE")))
	done := make(chan error, 1)
	go func() { done <- second(Fsck(t.Context(), pool, FsckOptions{})) }()
	waited := false // whether Fsck has waited longer than statement_timeout, which is 1 s
	eventually(t, "Fsck waits or ends", func() bool {
		check(t, tx.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'translog.leaves'::regclass AND clock_timestamp() - waitstart > interval '1500 milliseconds')").Scan(&waited))
		return waited || len(done) > 0
	})
	check(t, tx.Rollback(t.Context()))
	if err := <-done; err != nil || !waited {
		t.Errorf("Fsck waited longer than the timeout for the table: %v, and ended with %v; want true and no error", waited, err)
	}
}

// Fsck computes between its statements, on a busy machine for long.
func TestFsckOutlastsTheIdleTimeout(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	d.mustAppend(t, l, 0)
	waitForHead(t, l, 1)
	l.Close()
	pool := of(database.Open(t.Context(), d.url, 1)).ok(t)
	t.Cleanup(pool.Close)
	var pid int
	check(t, pool.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM set_config('idle_in_transaction_session_timeout', '1s', false)").Scan(&pid))
	idle := false // whether the session was idle longer than its timeout, which is 1 s, and lives
	_, err := Fsck(t.Context(), pool, FsckOptions{Heads: func(TreeHead) error {
		eventually(t, "the session is idle or gone", func() bool {
			var lives bool
			check(t, d.pool.QueryRow(t.Context(), `SELECT count(*) > 0, coalesce(bool_or(state = 'idle in transaction' AND clock_timestamp() - state_change > interval '1500 milliseconds'), false)
				FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&lives, &idle))
			return idle || !lives
		})
		return nil
	}})
	if err != nil || !idle {
		t.Errorf("the session was idle longer than its timeout: %v, and Fsck ended with %v; want true and no error", idle, err)
	}
}
