package translog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// asOwner runs statements with the triggers of the insert-only tables disabled.
func asOwner(t *testing.T, d *deployment, statements ...string) {
	t.Helper()
	tx := of(d.pool.Begin(t.Context())).ok(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, statement := range append([]string{"SET LOCAL session_replication_role = replica"}, statements...) {
		tag, err := tx.Exec(t.Context(), statement)
		if err != nil {
			t.Fatalf("execute %s: %v", statement, err)
		}
		if (tag.Update() || tag.Delete()) && tag.RowsAffected() == 0 {
			t.Fatalf("%s: changed no row, want at least one", statement)
		}
	}
	check(t, tx.Commit(t.Context()))
}

// flip returns a statement that changes one byte of a column. Running the statement again
// restores the byte.
func flip(table, column, where string) string {
	return fmt.Sprintf("UPDATE translog.%s SET %[2]s = set_byte(%[2]s, 5, 255 - get_byte(%[2]s, 5)) WHERE %s", table, column, where)
}

// Each case changes rows that the inclusion proof of leaf 10 depends on. Every proof reads the rows
// of the leaf and of the tree head again. A Log verifies the other rows once and caches them in
// memory. So in the cases with `cached`, the first Log still proves the leaf, and a newly opened Log
// returns ErrInconsistent.
func TestTamperedTables(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	fill(t, l, 0, 70_000)
	head := waitForHead(t, l, 70_000)
	check(t, prove(t, l, 10))
	setSignature := "UPDATE translog.tree_heads SET signature = '%s' WHERE tree_size = 70000"
	setSize := "UPDATE translog.tree_heads SET tree_size = %d WHERE tree_size = %d"
	swap := []string{
		"UPDATE translog.leaves SET leaf_index = 1000000 WHERE leaf_index = 20",
		"UPDATE translog.leaves SET leaf_index = 20 WHERE leaf_index = 30",
		"UPDATE translog.leaves SET leaf_index = 30 WHERE leaf_index = 1000000",
	}
	removedLeaf, removedNode := entryOf(77), ""
	check(t, d.pool.QueryRow(t.Context(), "SELECT encode(hash, 'hex') FROM translog.nodes WHERE level = 8 AND node_index = 0").Scan(&removedNode))

	for name, c := range map[string]struct {
		change, back []string
		cached       bool
	}{
		"the leaf":                       {change: []string{flip("leaves", "entry", "leaf_index = 10")}},
		"the leaf removed":               {change: []string{"DELETE FROM translog.leaves WHERE leaf_index = 10"}, back: []string{fmt.Sprintf("INSERT INTO translog.leaves VALUES (10, '\\x%[1]x', '\\x%[1]x')", entryOf(10))}},
		"another leaf of its tile":       {change: []string{flip("leaves", "entry", "leaf_index = 200")}, cached: true},
		"a leaf of the partial tile":     {change: []string{flip("leaves", "entry", "leaf_index = 69999")}, cached: true},
		"two leaves swapped":             {change: swap, cached: true},
		"a leaf removed":                 {change: []string{"DELETE FROM translog.leaves WHERE leaf_index = 77"}, back: []string{fmt.Sprintf("INSERT INTO translog.leaves VALUES (77, '\\x%[1]x', '\\x%[1]x')", removedLeaf)}, cached: true},
		"the node over its tile":         {change: []string{flip("nodes", "hash", "level = 8 AND node_index = 0")}, cached: true},
		"the node over its tile removed": {change: []string{"DELETE FROM translog.nodes WHERE level = 8 AND node_index = 0"}, back: []string{"INSERT INTO translog.nodes VALUES (8, 0, '\\x" + removedNode + "')"}, cached: true},
		"a neighbour of that node":       {change: []string{flip("nodes", "hash", "level = 8 AND node_index = 1")}, cached: true},
		"a far node of the tile above":   {change: []string{flip("nodes", "hash", "level = 8 AND node_index = 255")}, cached: true},
		"a node at the right edge":       {change: []string{flip("nodes", "hash", "level = 8 AND node_index = 256")}, cached: true},
		"the node at level 16 above it":  {change: []string{flip("nodes", "hash", "level = 16 AND node_index = 0")}, cached: true},
		"the root of the head":           {change: []string{flip("tree_heads", "root", "tree_size = 70000")}},
		"the signature of the head":      {change: []string{fmt.Sprintf(setSignature, d.sign(t, entryOf(0)))}, back: []string{fmt.Sprintf(setSignature, head.Signature)}},
		"the size of the head":           {change: []string{fmt.Sprintf(setSize, 69999, 70000)}, back: []string{fmt.Sprintf(setSize, 70000, 69999)}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.back == nil {
				c.back = c.change
			}
			asOwner(t, d, c.change...)
			finds := l
			if c.cached {
				if err := prove(t, l, 10); err != nil {
					t.Errorf("prove leaf 10 from memory: %v, want a proof", err)
				}
				finds = d.open(t, openPool(t, d.url), nil)
			}
			for range 2 {
				before := finds.ProofFailures()
				if err := prove(t, finds, 10); !errors.Is(err, ErrInconsistent) {
					t.Errorf("prove leaf 10 of changed tables: %v, want ErrInconsistent", err)
				}
				if got := finds.ProofFailures(); got != before+1 {
					t.Errorf("%d failures counted, want 1 more than %d", got, before)
				}
			}
			asOwner(t, d, c.back...)
			for _, l := range []*Log{l, finds} {
				if err := prove(t, l, 10); err != nil {
					t.Errorf("prove leaf 10 of the restored tables: %v, want a proof", err)
				}
			}
		})
	}
}

func prove(t *testing.T, l *Log, index int64) error {
	t.Helper()
	got, err := l.Inclusion(t.Context(), LeafQuery{LeafIndex: &index})
	if err == nil && verify(got, entryOf(int(index))) != nil {
		t.Errorf("leaf %d was answered with a proof that does not verify", index)
	}
	return err
}

func TestTamperedConsistency(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	fill(t, l, 0, 300)
	fill(t, l, 300, 600)
	check(t, second(l.Consistency(t.Context(), 300, nil)))
	for change, cached := range map[string]bool{
		flip("leaves", "entry", "leaf_index = 299"):           true,
		flip("nodes", "hash", "level = 8 AND node_index = 0"): true,
		flip("tree_heads", "root", "tree_size = 300"):         false,
		flip("tree_heads", "root", "tree_size = 600"):         false,
	} {
		asOwner(t, d, change)
		if _, err := l.Consistency(t.Context(), 300, nil); cached != (err == nil) {
			t.Errorf("%s: consistency proof: %v, want a proof from memory: %t", change, err, cached)
		}
		if _, err := d.open(t, openPool(t, d.url), nil).Consistency(t.Context(), 300, nil); !errors.Is(err, ErrInconsistent) {
			t.Errorf("%s: %v, want ErrInconsistent", change, err)
		}
		asOwner(t, d, change)
	}
	asOwner(t, d, flip("tree_heads", "root", "tree_size = 600"))
	if _, err := l.TreeHead(t.Context()); !errors.Is(err, ErrInconsistent) {
		t.Errorf("newest head: %v, want ErrInconsistent", err)
	}
	if _, err := l.TreeHeadAt(t.Context(), 600); !errors.Is(err, ErrInconsistent) {
		t.Errorf("head of size 600: %v, want ErrInconsistent", err)
	}
}

func TestTamperedCommittedHead(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *deployment){
		"another root": func(t *testing.T, d *deployment) {
			asOwner(t, d, flip("log_head", "root", "singleton"))
		},
		"another size": func(t *testing.T, d *deployment) {
			asOwner(t, d, "UPDATE translog.log_head SET size = 298")
		},
		"another compact range": func(t *testing.T, d *deployment) {
			asOwner(t, d, "UPDATE translog.log_head SET hashes[1] = set_byte(hashes[1], 5, 255 - get_byte(hashes[1], 5))")
		},
		"an older consistent head": func(t *testing.T, d *deployment) {
			setCommitted(t, d, leavesOf(0, 299))
		},
		"another history of the same size": func(t *testing.T, d *deployment) {
			setCommitted(t, d, leavesOf(1, 301))
		},
		"another history, longer": func(t *testing.T, d *deployment) {
			setCommitted(t, d, append(leavesOf(1, 301), hasher.HashLeaf(nil)))
		},
	} {
		appendUnder := func(t *testing.T, inMemory bool) {
			d := newDeployment(t)
			gate := newGate(d)
			close(gate.pass)
			l := d.open(t, d.pool, gate)
			if inMemory { // fill bypasses the sequencer; only mustAppend puts the head into the sequencer's memory
				fill(t, l, 0, 298)
				d.mustAppend(t, l, 298)
				d.mustAppend(t, l, 299)
			} else {
				fill(t, l, 0, 300)
			}
			head := waitForHead(t, l, 300)
			change(t, d)
			signed := gate.count.Load()
			_, err := l.Append(within(t, time.Minute), entryOf(5000), d.sign(t, entryOf(5000)), Tag(entryOf(5000)))
			if !errors.Is(err, ErrInconsistent) {
				t.Errorf("append: %v, want ErrInconsistent", err)
			}
			if n := gate.count.Load(); n != signed {
				t.Errorf("%d heads were signed, want 0", n-signed)
			}
			if l.ProofFailures() == 0 {
				t.Error("the contradiction is not counted, want ProofFailures above 0")
			}
			if now, err := l.TreeHead(t.Context()); err != nil || now != head {
				t.Errorf("head %+v (%v), want the old one", now, err)
			}
		}
		t.Run(name, func(t *testing.T) { appendUnder(t, false) })
		t.Run(name+", the head in memory", func(t *testing.T) { appendUnder(t, true) })
	}
}

func setCommitted(t *testing.T, d *deployment, leaves [][]byte) {
	t.Helper()
	now := of(emptyState.grow(leaves)).ok(t)
	check(t, second(d.pool.Exec(t.Context(), "UPDATE translog.log_head SET size = $1, root = $2, hashes = $3", now.to.size, now.to.hash, now.to.hashes)))
}

func TestTablesAreInsertOnly(t *testing.T) {
	t.Parallel()
	d, l := newLog(t)
	fill(t, l, 0, 256)
	for _, table := range []string{"leaves", "nodes", "tree_heads", "log_head"} {
		for _, statement := range []string{"DELETE FROM translog." + table, "TRUNCATE translog." + table} {
			if _, err := d.pool.Exec(t.Context(), statement); err == nil {
				t.Errorf("%s: allowed, want an error", statement)
			}
		}
	}
	for _, statement := range []string{
		flip("leaves", "entry", "leaf_index = 1"), flip("nodes", "hash", "level = 8"), flip("tree_heads", "root", "tree_size = 256"),
	} {
		if _, err := d.pool.Exec(t.Context(), statement); err == nil {
			t.Errorf("%s: allowed, want an error", statement)
		}
	}
}
