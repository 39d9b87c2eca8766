package translog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/transparency-dev/merkle/compact"

	"github.com/fairpact/fairpact/internal/crash"
)

var ranges = &compact.RangeFactory{Hash: hasher.HashChildren}

// store is the log's tables.
type store struct{ pool *pgxpool.Pool }

const (
	refused = -1 // the index of an entry that is the digest of one of the log's own heads
	late    = -2 // of an entry without a leaf, whose index would not be below its ceiling
)

// commit gives each entry its index: that of its leaf where it has one, else the
// next free one in the order given, below its ceiling. It returns after the transaction is durable.
// On an error the outcome may be either; a repeat gives the same indexes.
func (s *store) commit(ctx context.Context, entries []candidate) (map[[32]byte]int64, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	defer conn.Release() // a connection left inside a transaction is closed, not reused

	places, tx, err := commitOn(ctx, conn.Conn(), entries)
	if err != nil && tx != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(clean)
	}
	return places, err
}

// commitOn makes three round trips: begin, lock and look up; write; commit.
func commitOn(ctx context.Context, conn *pgx.Conn, entries []candidate) (map[[32]byte]int64, pgx.Tx, error) {
	list := make([][]byte, len(entries))
	for i := range entries {
		list[i] = entries[i].entry[:]
	}
	places := make(map[[32]byte]int64, len(entries))
	var head root
	var hashes [][]byte

	look := &pgx.Batch{}
	// Under READ COMMITTED the look-ups, sent after the lock, see all that the
	// lock's last holder committed.
	look.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	look.Queue(sqlLockHead).QueryRow(func(row pgx.Row) error { return row.Scan(&head.size, &head.hash, &hashes) })
	look.Queue(sqlFindEntries, list).Query(func(rows pgx.Rows) error {
		var entry []byte
		var index int64
		_, err := pgx.ForEachRow(rows, []any{&entry, &index}, func() error {
			places[[32]byte(entry)] = index
			return nil
		})
		return err
	})
	look.Queue(sqlFindHeadDigests, list).Query(func(rows pgx.Rows) error {
		var digest []byte
		_, err := pgx.ForEachRow(rows, []any{&digest}, func() error {
			places[[32]byte(digest)] = refused
			return nil
		})
		return err
	})
	results := conn.SendBatch(ctx, look)
	err := results.Close()
	tx := results.Tx()
	if err != nil {
		return nil, tx, fromDatabase(err)
	}

	tree, err := rangeOf(head, hashes)
	if err != nil {
		return nil, tx, err
	}
	// The committed head may be signed already and not yet stored.
	places[head.head("").Digest()] = refused

	var added [][]byte
	var nodes nodeRows
	for i := range entries {
		if _, known := places[entries[i].entry]; known {
			continue
		}
		index := head.size + int64(len(added))
		if index >= entries[i].ceiling {
			places[entries[i].entry] = late
			continue
		}
		places[entries[i].entry] = index
		added = append(added, list[i])
		if err := tree.Append(hasher.HashLeaf(list[i]), nodes.visit); err != nil {
			return nil, tx, fmt.Errorf("%w: %w", ErrInconsistent, err)
		}
	}
	if len(added) == 0 {
		return places, tx, fromDatabase(tx.Rollback(ctx))
	}
	grown, err := tree.GetRootHash(nil)
	if err != nil {
		return nil, tx, fmt.Errorf("%w: %w", ErrInconsistent, err)
	}

	write := &pgx.Batch{}
	write.Queue(sqlInsertLeaves, head.size, added)
	if len(nodes.hashes) > 0 {
		write.Queue(sqlInsertNodes, nodes.levels, nodes.indexes, nodes.hashes)
	}
	write.Queue(sqlMoveHead, head.size, head.hash, int64(tree.End()), grown, tree.Hashes()).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("%w: the locked head of size %d was changed by another hand", ErrInconsistent, head.size)
		}
		return nil
	})
	if err := conn.SendBatch(ctx, write).Close(); err != nil {
		return nil, tx, fromDatabase(err)
	}
	crash.Point("log.before-commit")
	if err := tx.Commit(ctx); err != nil {
		return places, tx, fromDatabase(err)
	}
	sizeCommitted.Set(float64(tree.End()))
	return places, tx, nil
}

// rangeOf rebuilds the compact range and checks the stored root against it.
func rangeOf(head root, hashes [][]byte) (*compact.Range, error) {
	tree, err := ranges.NewRange(0, uint64(head.size), hashes)
	if err != nil {
		return nil, fmt.Errorf("%w: the committed head of size %d: %w", ErrInconsistent, head.size, err)
	}
	computed, err := tree.GetRootHash(nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	if head.size == 0 {
		computed = emptyRoot.hash
	}
	if !bytes.Equal(computed, head.hash) {
		return nil, fmt.Errorf("%w: the committed root of size %d is not what its compact range leads to", ErrInconsistent, head.size)
	}
	return tree, nil
}

// nodeRows are the columns of the nodes that a batch completed.
type nodeRows struct {
	levels  []int16
	indexes []int64
	hashes  [][]byte
}

func (n *nodeRows) visit(id compact.NodeID, hash []byte) {
	if id.Level > 0 && id.Level%tileHeight == 0 {
		n.levels = append(n.levels, int16(id.Level))
		n.indexes = append(n.indexes, int64(id.Index))
		n.hashes = append(n.hashes, hash)
	}
}

// fromDatabase tells a contradiction in the tables (a leaf or node where the
// head says there is none yet) from a database that failed.
func fromDatabase(err error) error {
	if err == nil || errors.Is(err, ErrInconsistent) {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(pg.Code, "23") {
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	return unavailable(err)
}
