package translog

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/checkpoint"
)

// Finding is a row that is not what the log signed.
type Finding struct {
	Row     string `json:"row"` // such as leaf 17, node 3 of level 8, head 1000
	Problem string `json:"problem"`
}

// FsckOptions say who may have signed. What is nil is not checked.
type FsckOptions struct {
	Heads       func(TreeHead) error
	Checkpoints []checkpoint.Key
}

// FsckReport is what Fsck read.
type FsckReport struct {
	Size        int64     `json:"tree_size"`
	Heads       int64     `json:"heads"`
	Checkpoints int64     `json:"checkpoints"`
	Findings    []Finding `json:"findings"`
}

const (
	fsckPage    = 1 << 16 // leaves, or tags, that are read at once
	maxFindings = 100
)

// Fsck reads the log's tables as they stand at one moment and checks them against
// each other: it computes the tree from the leaves, and compares with it the
// stored nodes, the committed head, and every published head and checkpoint,
// with their digests and signatures. It ends at a leaf that is missing: the error
// is then ErrInconsistent. Memory grows by one bit for each leaf.
func Fsck(ctx context.Context, pool *pgxpool.Pool, o FsckOptions) (FsckReport, error) {
	f := fsck{ctx: ctx, FsckOptions: o, at: emptyState, report: FsckReport{Findings: []Finding{}}}
	if err := schema.Current(ctx, pool); err != nil {
		return f.report, err
	}
	err := patiently(ctx, pool, func(tx pgx.Tx) error {
		f.tx = tx
		return f.run()
	})
	return f.report, fromDatabase(err)
}

// patiently reads the tables as they stand at one moment. A statement that reads
// much of a large log may take longer than one of a service may.
func patiently(ctx context.Context, pool *pgxpool.Pool, read func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		return read(tx)
	})
}

type fsck struct {
	FsckOptions
	ctx    context.Context
	tx     pgx.Tx
	at     state // of the leaves that were read
	report FsckReport
}

func (f *fsck) find(row, format string, args ...any) {
	if len(f.report.Findings) < maxFindings {
		f.report.Findings = append(f.report.Findings, Finding{row, fmt.Sprintf(format, args...)})
	}
}

func (f *fsck) run() error {
	var committed state
	if err := f.tx.QueryRow(f.ctx, sqlFsckHead).Scan(&committed.size, &committed.hash, &committed.hashes); err != nil {
		return err
	}
	f.report.Size = committed.size
	if err := committed.check(); err != nil {
		f.find("the committed head", "%v", err)
	}
	if err := f.published(-1, emptyState, nil); err != nil { // those of size 0
		return err
	}
	for f.at.size < committed.size {
		if err := f.page(min(f.at.size+fsckPage, committed.size)); err != nil {
			return err
		}
	}
	if !f.at.same(committed.root) {
		f.find("the committed head", "the %d leaves lead to the root %x, and it has %x", f.at.size, f.at.hash, committed.hash)
	}
	nodes := int64(0)
	for level := committed.size >> tileHeight; level > 0; level >>= tileHeight {
		nodes += level
	}
	rows, err := f.tx.Query(f.ctx, sqlFsckBeyond, committed.size, nodes)
	if err != nil {
		return err
	}
	var table string
	var first *int64
	_, err = pgx.ForEachRow(rows, []any{&table, &first}, func() error {
		switch {
		case first == nil:
		case table == "nodes":
			f.find(table, "there are %d, and a tree of %d leaves has %d", *first, committed.size, nodes)
		default:
			f.find(table, beyond, *first, committed.size)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f.tags()
}

const beyond = "one is of %d, beyond the committed size %d"

// page reads the leaves up to a size and compares what they complete.
func (f *fsck) page(end int64) error {
	from := f.at
	rows, err := f.tx.Query(f.ctx, sqlLeavesBetween, from.size, end)
	if err != nil {
		return err
	}
	entries, err := collect(rows, 0, uint64(from.size), uint64(end))
	if err != nil {
		return err
	}
	g, err := from.grow(entries)
	if err != nil {
		return err
	}
	levels, indexes, hashes := g.rows()
	if err := f.nodes(levels, indexes, hashes); err != nil {
		return err
	}
	if err := f.published(from.size, from, entries); err != nil {
		return err
	}
	f.at = g.to
	return nil
}

// nodes compares stored nodes with those that the leaves lead to.
func (f *fsck) nodes(levels []int16, indexes []int64, hashes [][]byte) error {
	for level := int16(tileHeight); slices.Contains(levels, level); level += tileHeight {
		var want [][]byte
		first := int64(-1)
		for i, l := range levels {
			if l != level {
				continue
			}
			if first < 0 {
				first = indexes[i]
			}
			want = append(want, hashes[i])
		}
		rows, err := f.tx.Query(f.ctx, sqlNodesBetween, first, first+int64(len(want)), level)
		if err != nil {
			return err
		}
		have := map[int64][]byte{}
		var index int64
		var hash []byte
		if _, err = pgx.ForEachRow(rows, []any{&index, &hash}, func() error { have[index] = bytes.Clone(hash); return nil }); err != nil {
			return err
		}
		for i, hash := range want {
			switch stored, ok := have[first+int64(i)]; {
			case !ok:
				f.find(fmt.Sprintf("node %d of level %d", first+int64(i), level), "it is missing")
			case !bytes.Equal(stored, hash):
				f.find(fmt.Sprintf("node %d of level %d", first+int64(i), level), "the leaves lead to %x, and it is %x", hash, stored)
			}
		}
	}
	return nil
}

// published compares the heads and checkpoints of the sizes that the entries grow
// the tree to.
func (f *fsck) published(above int64, from state, entries [][]byte) error {
	end := from.size + int64(len(entries))
	heads, err := rowsOf(f, sqlFsckHeads, above, end, func(row pgx.CollectableRow) (h storedHead, err error) {
		err = row.Scan(&h.size, &h.hash, &h.digest, &h.signature)
		return h, err
	})
	if err != nil {
		return err
	}
	checkpoints, err := rowsOf(f, sqlFsckCheckpoints, above, end, func(row pgx.CollectableRow) (c storedCheckpoint, err error) {
		err = row.Scan(&c.size, &c.digest, &c.note)
		return c, err
	})
	if err != nil {
		return err
	}
	f.report.Heads, f.report.Checkpoints = f.report.Heads+int64(len(heads)), f.report.Checkpoints+int64(len(checkpoints))
	roots := map[int64][]byte{}
	for _, h := range heads {
		roots[h.size] = nil
	}
	for _, c := range checkpoints {
		roots[c.size] = nil
	}
	tree, err := ranges.NewRange(0, uint64(from.size), slices.Clone(from.hashes))
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if _, wanted := roots[from.size+int64(i)]; wanted {
			if roots[from.size+int64(i)], err = rootOf(tree); err != nil {
				return err
			}
		}
		if i == len(entries) {
			break
		}
		if err := tree.Append(hasher.HashLeaf(entries[i]), nil); err != nil {
			return err
		}
	}
	for _, h := range heads {
		f.head(h, roots[h.size])
	}
	for _, c := range checkpoints {
		f.checkpoint(c, roots[c.size])
	}
	return nil
}

type storedHead struct {
	root
	digest    []byte
	signature string
}

type storedCheckpoint struct {
	size   int64
	digest []byte
	note   string
}

func rowsOf[T any](f *fsck, query string, above, end int64, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := f.tx.Query(f.ctx, query, above, end)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

func (f *fsck) head(h storedHead, want []byte) {
	row, head := fmt.Sprint("head ", h.size), h.root.head(h.signature)
	if digest := head.Digest(); !bytes.Equal(h.digest, digest[:]) {
		f.find(row, "its digest is not that of its size and root")
	}
	if !bytes.Equal(h.hash, want) {
		f.find(row, "the leaves lead to the root %x, and it has %x", want, h.hash)
	}
	if f.Heads == nil {
		return
	}
	if err := f.Heads(head); err != nil {
		f.find(row, "%v", err)
	}
}

func (f *fsck) checkpoint(c storedCheckpoint, want []byte) {
	row := fmt.Sprint("checkpoint ", c.size)
	text, err := checkpoint.TextOf(c.note)
	var signed checkpoint.Checkpoint
	if err == nil {
		signed, err = checkpoint.Parse(text)
	}
	if err != nil {
		f.find(row, "%v", err)
		return
	}
	if digest := signed.Digest(); !bytes.Equal(c.digest, digest[:]) {
		f.find(row, "its digest is not that of its text")
	}
	if signed.Size != c.size || !bytes.Equal(signed.Root[:], want) {
		f.find(row, "the %d leaves lead to the root %x, and its text has the root %x of %d", c.size, want, signed.Root, signed.Size)
	}
	if f.Checkpoints == nil {
		return
	}
	if _, _, err := checkpoint.Open([]byte(c.note), f.Checkpoints, nil); err != nil {
		f.find(row, "%v", err)
	}
}
