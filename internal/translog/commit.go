package translog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/crash"
)

// store is the log's tables.
type store struct{ pool *pgxpool.Pool }

const (
	refused = -1 // the index of an entry that is the digest of one of the log's own heads
	late    = -2 // of an entry without a leaf, whose index would not be below its ceiling
)

// batch is what became of a batch of entries.
type batch struct {
	places map[[32]byte]int64 // index of each entry, or refused, or late
	growth *growth            // what was added, from the committed head that was met
}

// append adds the growth to the log in one statement, which is a transaction of
// its own. It reports false where nothing was added: the committed head is
// another one, or an entry needs a closer look.
func (s *store) append(ctx context.Context, g *growth) (moved bool, err error) {
	levels, indexes, hashes := g.rows()
	crash.Point("log.before-commit")
	err = s.pool.QueryRow(ctx, sqlAppendBatch, g.from.size, g.from.hash, list(g.from.hashes), g.to.size, g.to.hash, g.to.hashes,
		g.entries, levels, indexes, hashes).Scan(&moved)
	if moved && err == nil {
		sizeCommitted.Set(float64(g.to.size))
	}
	return moved, fromDatabase(err)
}

// list is never NULL in SQL.
func list(hashes [][]byte) [][]byte {
	if hashes == nil {
		return [][]byte{}
	}
	return hashes
}

// commit gives each entry its index: that of its leaf where it has one, else the
// next free one in the order given, below its ceiling. It returns after the
// transaction is durable. On an error the outcome may be either; a repeat
// returns the same indexes.
func (s *store) commit(ctx context.Context, entries []candidate) (batch, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return batch{}, unavailable(err)
	}
	defer conn.Release() // a connection left inside a transaction is closed, not reused

	done, tx, err := commitOn(ctx, conn.Conn(), entries)
	if err != nil && tx != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(clean)
	}
	return done, err
}

// commitOn makes three round trips: begin, lock and look up; write; commit.
func commitOn(ctx context.Context, conn *pgx.Conn, entries []candidate) (batch, pgx.Tx, error) {
	var head state
	all := make([][]byte, len(entries))
	for i := range entries {
		all[i] = entries[i].entry[:]
	}
	places := make(map[[32]byte]int64, len(entries))

	look := &pgx.Batch{}
	// Under READ COMMITTED the look-ups, sent after the lock, see all that the
	// lock's last holder committed.
	look.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	look.Queue(sqlLockHead).QueryRow(func(row pgx.Row) error { return row.Scan(&head.size, &head.hash, &head.hashes) })
	look.Queue(sqlFindEntries, all).Query(func(rows pgx.Rows) error {
		var entry []byte
		var index int64
		_, err := pgx.ForEachRow(rows, []any{&entry, &index}, func() error {
			places[[32]byte(entry)] = index
			return nil
		})
		return err
	})
	look.Queue(sqlFindHeadDigests, all).Query(func(rows pgx.Rows) error {
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
		return batch{}, tx, fromDatabase(err)
	}
	if err := head.check(); err != nil {
		return batch{}, tx, err
	}

	g, err := head.grow(place(head, entries, places))
	if err != nil {
		return batch{}, tx, err
	}
	if len(g.entries) == 0 {
		return batch{places, g}, tx, fromDatabase(tx.Rollback(ctx))
	}
	write := &pgx.Batch{}
	write.Queue(sqlInsertLeaves, head.size, g.entries)
	if levels, indexes, hashes := g.rows(); len(hashes) > 0 {
		write.Queue(sqlInsertNodes, levels, indexes, hashes)
	}
	write.Queue(sqlMoveHead, head.size, head.hash, g.to.size, g.to.hash, g.to.hashes).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("%w: the locked head of size %d was changed in the transaction that holds the lock", ErrInconsistent, head.size)
		}
		return nil
	})
	if err := conn.SendBatch(ctx, write).Close(); err != nil {
		return batch{}, tx, fromDatabase(err)
	}
	crash.Point("log.before-commit")
	if err := tx.Commit(ctx); err != nil {
		return batch{}, tx, fromDatabase(err)
	}
	sizeCommitted.Set(float64(g.to.size))
	return batch{places, g}, tx, nil
}

// place gives each entry that has no place its index after the head, or
// says why it gets none, and returns the entries that are new.
func place(head state, entries []candidate, places map[[32]byte]int64) (added [][]byte) {
	// The committed head may be signed already and not yet stored.
	places[head.head("").Digest()] = refused
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
		added = append(added, entries[i].entry[:])
	}
	return added
}

// fromDatabase distinguishes a contradiction in the tables (a leaf or node where the
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
