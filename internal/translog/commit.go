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

// appendTo adds the growth to the log in one statement. It reports false where
// nothing was added: the committed head is another one, or an entry is in the
// log or the digest of a head.
func appendTo(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, g *growth) (moved bool, err error) {
	levels, indexes, hashes := g.rows()
	// No hashes are an empty array, which equals that of an empty log; nil would be NULL.
	err = db.QueryRow(ctx, sqlAppendBatch, g.from.size, g.from.hash, append([][]byte{}, g.from.hashes...), g.to.size, g.to.hash, g.to.hashes,
		g.entries, levels, indexes, hashes).Scan(&moved)
	return moved, fromDatabase(err)
}

// commit returns the index of each entry: that of its leaf where it has one, else
// the next free one in the order given, below its ceiling; or refused, or late.
// The growth is what was added to the committed head that was met. commit returns
// after the transaction is durable. On an error the outcome may be either; a
// repeat returns the same indexes.
//
// It makes three round trips: begin, lock and look up; append; commit.
func (s *store) commit(ctx context.Context, entries []candidate) (places map[[32]byte]int64, g *growth, err error) {
	var head state
	all := make([][]byte, len(entries))
	for i := range entries {
		all[i] = entries[i].entry[:]
	}
	places = make(map[[32]byte]int64, len(entries))

	look := &pgx.Batch{}
	// Under READ COMMITTED the look-up, sent after the lock, sees all that the
	// lock's last holder committed.
	look.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	look.Queue(sqlLockHead).QueryRow(func(row pgx.Row) error { return row.Scan(&head.size, &head.hash, &head.hashes) })
	look.Queue(sqlLookUp, all).Query(func(rows pgx.Rows) error {
		var entry []byte
		var index int64
		_, err := pgx.ForEachRow(rows, []any{&entry, &index}, func() error {
			if places[[32]byte(entry)] != refused {
				places[[32]byte(entry)] = index
			}
			return nil
		})
		return err
	})
	results := s.pool.SendBatch(ctx, look)
	tx := results.Tx()
	defer func() { // does nothing after the commit
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(clean)
	}()
	if err := results.Close(); err != nil {
		return nil, nil, fromDatabase(err)
	}
	if err := head.check(); err != nil {
		return nil, nil, err
	}
	if g, err = head.grow(place(head, entries, places)); err != nil || len(g.entries) == 0 {
		return places, g, err
	}
	moved, err := appendTo(ctx, tx, g)
	if err == nil && !moved { // a publisher stored a head with the digest of an entry meanwhile
		err = unavailable(errors.New("an entry became the digest of a head"))
	}
	if err != nil {
		return nil, nil, err
	}
	crash.Point("log.before-commit")
	return places, g, fromDatabase(tx.Commit(ctx))
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
