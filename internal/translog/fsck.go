package translog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// Finding is a contradiction that Fsck found in the log's tables.
type Finding struct {
	Row     string `json:"row"` // a row or a table, for example "head 1000" or "nodes"
	Problem string `json:"problem"`
}

// FsckOptions says how Fsck verifies signatures. It skips those of a nil field.
type FsckOptions struct {
	Heads       func(TreeHead) error
	Checkpoints []checkpoint.Key
}

// FsckReport is the result of Fsck. Heads and Checkpoints are numbers of checked rows.
type FsckReport struct {
	Size        int64     `json:"tree_size"`
	Heads       int64     `json:"heads"`
	Checkpoints int64     `json:"checkpoints"`
	Findings    []Finding `json:"findings"`
}

const (
	fsckPage    = 1 << 16 // leaves that one statement reads
	maxFindings = 100
)

// Fsck checks the tables of the log in one snapshot against the tree that it computes from the leaves. If a
// leaf is missing, Fsck stops and returns ErrInconsistent.
func Fsck(ctx context.Context, pool *pgxpool.Pool, o FsckOptions) (FsckReport, error) {
	f := fsck{ctx: ctx, FsckOptions: o, at: emptyState, report: FsckReport{Findings: []Finding{}}}
	if err := schema.Current(ctx, pool); err != nil {
		return f.report, err
	}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, timeout := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} { // reading and hashing a large log takes a long time
			if _, err := tx.Exec(ctx, "SET LOCAL "+timeout+" = 0"); err != nil {
				return err
			}
		}
		f.tx = tx
		return f.run()
	})
	return f.report, fromDatabase(err)
}

type fsck struct {
	FsckOptions
	ctx    context.Context
	tx     pgx.Tx
	at     state // the tree of the leaves read so far
	report FsckReport
}

func (f *fsck) find(row, format string, args ...any) {
	if len(f.report.Findings) < maxFindings {
		f.report.Findings = append(f.report.Findings, Finding{row, fmt.Sprintf(format, args...)})
	}
}

func (f *fsck) run() error {
	var committed state
	if err := f.tx.QueryRow(f.ctx, sqlCommittedHead).Scan(&committed.size, &committed.hash, &committed.hashes); err != nil {
		return err
	}
	f.report.Size = committed.size
	if err := committed.check(); err != nil {
		f.find("the committed head", "%v", err)
	}
	for above := int64(-1); above < committed.size; above = f.at.size { // -1, so that the first page includes a head of size 0
		if err := f.page(above, min(f.at.size+fsckPage, committed.size)); err != nil {
			return err
		}
	}
	if !f.at.same(committed.root) {
		f.find("the committed head", "the %d leaves lead to the root %x, but the stored root is %x", f.at.size, f.at.hash, committed.hash)
	}
	nodes := int64(0)
	for level := committed.size >> tileHeight; level > 0; level >>= tileHeight {
		nodes += level
	}
	rows, _ := f.tx.Query(f.ctx, sqlFsckBeyond, committed.size, nodes)
	var table string
	var first *int64
	_, err := pgx.ForEachRow(rows, []any{&table, &first}, func() error {
		switch {
		case first == nil:
		case table == "nodes":
			f.find(table, "the table has %d nodes, but for %d leaves it must have %d", *first, committed.size, nodes)
		default:
			f.find(table, "a row has the leaf_index or tree_size %d, which is beyond the committed tree of %d leaves", *first, committed.size)
		}
		return nil
	})
	return err
}

// page checks the leaves up to index end-1, the nodes that these complete, and the heads and
// checkpoints of the sizes from above+1 to end.
func (f *fsck) page(above, end int64) error {
	rows, _ := f.tx.Query(f.ctx, sqlLeavesBetween, f.at.size, end)
	entries, err := collect(rows, 0, uint64(f.at.size), uint64(end))
	if err != nil {
		return err
	}
	rows, _ = f.tx.Query(f.ctx, sqlFsckHeads, above, end)
	heads, err := pgx.CollectRows(rows, pgx.RowToStructByPos[storedHead])
	if err != nil {
		return err
	}
	rows, _ = f.tx.Query(f.ctx, sqlFsckCheckpoints, above, end)
	checkpoints, err := pgx.CollectRows(rows, pgx.RowToStructByPos[storedCheckpoint])
	if err != nil {
		return err
	}
	f.report.Heads, f.report.Checkpoints = f.report.Heads+int64(len(heads)), f.report.Checkpoints+int64(len(checkpoints))
	var sizes []int64
	for _, h := range heads {
		sizes = append(sizes, h.Size)
	}
	for _, c := range checkpoints {
		sizes = append(sizes, c.Size)
	}
	roots, err := f.grow(entries, sizes)
	if err != nil {
		return err
	}
	for _, h := range heads {
		f.head(h, roots[h.Size])
	}
	for _, c := range checkpoints {
		f.checkpoint(c, roots[c.Size])
	}
	return nil
}

// grow appends entries to the computed tree, and returns the roots at the sizes.
func (f *fsck) grow(entries [][]byte, sizes []int64) (roots map[int64][]byte, err error) {
	slices.Sort(sizes)
	roots = map[int64][]byte{}
	first, all := f.at.size, &batchDelta{}
	for _, size := range append(sizes, first+int64(len(entries))) {
		g, err := f.at.grow(entries[f.at.size-first : size-first])
		if err != nil {
			return nil, err
		}
		f.at, roots[size] = g.to, g.to.hash
		all.nodes = append(all.nodes, g.nodes...)
	}
	return roots, f.nodes(all)
}

func (f *fsck) nodes(g *batchDelta) error {
	levels, indexes, hashes := g.rows()
	rows, _ := f.tx.Query(f.ctx, sqlFsckNodes, levels, indexes, hashes)
	var level int16
	var index int64
	var want, stored []byte
	_, err := pgx.ForEachRow(rows, []any{&level, &index, &want, &stored}, func() error {
		row := fmt.Sprintf("node %d of level %d", index, level)
		if stored == nil {
			f.find(row, "the row is missing")
		} else {
			f.find(row, "the leaves lead to the hash %x, but the stored hash is %x", want, stored)
		}
		return nil
	})
	return err
}

type storedHead struct {
	Size         int64
	Root, Digest []byte
	Signature    string
}

type storedCheckpoint struct {
	Size   int64
	Digest []byte
	Note   string
}

func (f *fsck) head(h storedHead, want []byte) {
	row, head := fmt.Sprint("head ", h.Size), root{h.Size, h.Root}.head(h.Signature)
	if digest := head.Digest(); !bytes.Equal(h.Digest, digest[:]) {
		f.find(row, "the stored digest does not match the size and root")
	}
	if !bytes.Equal(h.Root, want) {
		f.find(row, "the leaves lead to the root %x, but the stored root is %x", want, h.Root)
	}
	if f.Heads == nil {
		return
	}
	if err := f.Heads(head); err != nil {
		f.find(row, "%v", err)
	}
}

func (f *fsck) checkpoint(c storedCheckpoint, want []byte) {
	row := fmt.Sprint("checkpoint ", c.Size)
	noted, err := checkpoint.ParseNote(c.Note)
	if err != nil {
		f.find(row, "%v", err)
		return
	}
	if digest := noted.Digest(); !bytes.Equal(c.Digest, digest[:]) {
		f.find(row, "the stored digest does not match the text of the note")
	}
	if noted.Size != c.Size || !bytes.Equal(noted.Root[:], want) {
		f.find(row, "the first %d leaves lead to the root %x, but the text of the note has the root %x of %d leaves", c.Size, want, noted.Root, noted.Size)
	}
	if f.Checkpoints == nil {
		return
	}
	if _, _, err := checkpoint.Open([]byte(c.Note), f.Checkpoints, nil); err != nil {
		f.find(row, "%v", err)
	}
}

// TaggedLeaf is a leaf of the log, with its tag.
type TaggedLeaf struct {
	Index int64
	Entry [32]byte
	Tag   Tag
}

// Has reports whether the log has the leaf.
func Has(ctx context.Context, pool *pgxpool.Pool, leaf TaggedLeaf) (found bool, err error) {
	err = pool.QueryRow(ctx, sqlHasLeaf, leaf.Index, leaf.Entry[:], leaf.Tag[:]).Scan(&found)
	return found, fromDatabase(err)
}

// Return appends the newest leaves again if a restored backup lacks them, records their indexes in the table
// returned, and returns their number. The
// caller MUST have verified the signature of head. The missing leaves must grow the committed tree to exactly
// the tree of head. Otherwise Return appends nothing and returns ErrRefused.
func Return(ctx context.Context, pool *pgxpool.Pool, leaves []TaggedLeaf, head TreeHead) (returned int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var committed state
		if err := tx.QueryRow(ctx, sqlLockHead).Scan(&committed.size, &committed.hash, &committed.hashes); err != nil {
			return fromDatabase(err)
		}
		if err := committed.check(); err != nil {
			return err
		}
		g, err := committed.growTo(head, leaves)
		if err != nil || len(g.entries) == 0 {
			return err
		}
		appended, err := appendTo(ctx, tx, g)
		if err == nil && !appended {
			err = fmt.Errorf("%w: a given leaf has an entry or a tag that another leaf of the log already has", ErrRefused)
		}
		if err == nil {
			_, err = tx.Exec(ctx, sqlReturned, g.from.size, g.to.size)
		}
		returned = len(g.entries)
		return err
	})
	if err != nil {
		return 0, err
	}
	return returned, nil
}

func (s state) growTo(head TreeHead, leaves []TaggedLeaf) (*batchDelta, error) {
	leaves = slices.DeleteFunc(slices.Clone(leaves), func(l TaggedLeaf) bool { return l.Index < s.size })
	slices.SortFunc(leaves, func(a, b TaggedLeaf) int { return cmp.Compare(a.Index, b.Index) })
	leaves = slices.Compact(leaves)
	var entries, tags [][]byte
	for i := range leaves {
		if next := s.size + int64(i); leaves[i].Index != next {
			return nil, fmt.Errorf("%w: leaf %d is missing, and the next given leaf is %d: give every leaf that the log lacks", ErrRefused, next, leaves[i].Index)
		}
		entries, tags = append(entries, leaves[i].Entry[:]), append(tags, leaves[i].Tag[:])
	}
	g, err := s.grow(entries)
	if err != nil {
		return nil, err
	}
	g.tags = tags
	if g.to.size != head.TreeSize {
		return nil, fmt.Errorf("%w: with the given leaves the log would have %d leaves, but the tree head covers %d", ErrRefused, g.to.size, head.TreeSize)
	}
	if !g.to.same(treeOf(head)) {
		return nil, fmt.Errorf("%w: the given leaves do not lead to the root of the tree head of size %d: at least one leaf is wrong or of another log", ErrRefused, head.TreeSize)
	}
	return g, nil
}
