// Package store keeps deals in Postgres, which is the truth; its clock is the
// clock. Every method is one round trip unless it says otherwise, and every
// write is one transaction.
//
// Locks: an insert of a commitment or reveal share-locks its deal row, a change
// of phase locks it exclusively, and each decides in the statement after the
// lock. So a phase change waits for every insert that was let in before it and
// sees it, and an insert that comes later sees the new phase: an acknowledged
// commit is never named a flaker. No lock is held across a client round trip.
package store

import (
	"context"
	"embed"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/database"
	"github.com/fairpact/fairpact/internal/problem"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// query reads an embedded statement; a missing file is a programming error.
func query(name string) string {
	b, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Store is the escrow's part of the database. It is safe for concurrent use.
type Store struct {
	pool             *pgxpool.Pool
	commits, reveals *grouped
}

// Open connects a pool of at most maxConns connections (0: 4 a core, at least
// 16) and checks that the database answers and has this version's schema.
func Open(ctx context.Context, databaseURL string, maxConns int32) (*Store, error) {
	if maxConns == 0 {
		maxConns = max(16, 4*int32(runtime.NumCPU()))
	}
	pool, err := database.Open(ctx, databaseURL, maxConns)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool}
	if err := s.Ready(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	s.commits, s.reveals = s.newGrouped(commitSQL), s.newGrouped(revealSQL)
	return s, nil
}

// Close ends all connections. No call may be under way; an insert whose caller
// gave up is broken off, as in a crash.
func (s *Store) Close() {
	s.commits.close()
	s.reveals.close()
	database.Close(s.pool)
}

// Ready tells whether the database answers and holds the schema that this
// version needs.
func (s *Store) Ready(ctx context.Context) error { return schema.Current(ctx, s.pool) }

// Now is the database's clock, in unix seconds.
func (s *Store) Now(ctx context.Context) (now int64, err error) {
	err = s.pool.QueryRow(ctx, nowSQL).Scan(&now)
	return now, outage(err)
}

var nowSQL = query("now")

// ErrNotFound means that no row has the asked identifier.
var ErrNotFound = errors.New("store: not found")

// ErrReplayed means that the Idempotency-Key has a record already; nothing was
// changed.
var ErrReplayed = errors.New("store: idempotency record exists")

// Replay is the idempotency record that an effect's transaction writes beside
// the effect, or nothing where it is nil. Response is what to store at once, or
// nil where it is only known later.
type Replay struct {
	Scope    []byte // 32-byte HMAC
	Body     []byte // 32-byte HMAC
	Response []byte // encrypted
	Lifetime int64  // seconds
}

func (r *Replay) columns() (scope, body, response []byte, lifetime int64) {
	if r == nil {
		return nil, nil, nil, 0
	}
	return r.Scope, r.Body, r.Response, r.Lifetime
}

// locked runs a statement that answers one boolean right after the lock, in one
// implicit transaction and one round trip.
func (s *Store) locked(ctx context.Context, lock, dealID, statement string, args ...any) (bool, error) {
	batch := &pgx.Batch{}
	batch.Queue(lock, dealID)
	var done bool
	batch.Queue(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&done) })
	err := s.pool.SendBatch(ctx, batch).Close()
	return done, outage(replayed(err))
}

func replayed(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" && pg.ConstraintName == "idempotency_pkey" {
		return ErrReplayed
	}
	return err
}

// outage turns whatever means "the database is out of reach" into UNAVAILABLE
// (503) and leaves the rest, which are faults of ours, as they are.
func outage(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrReplayed), errors.Is(err, ErrNotFound), errors.Is(err, pgx.ErrNoRows):
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		class := pg.Code[:2]
		// 08 connection, 53 resources, 57 operator intervention, 25006 read-only after a failover, 55P03 lock timeout
		if class != "08" && class != "53" && class != "57" && pg.Code != "25006" && pg.Code != "55P03" && !strings.HasPrefix(pg.Code, "40") {
			return err
		}
	}
	p := problem.New(problem.Unavailable, "the database is out of reach and nothing was lost; send the same request again in a few seconds").Because(err)
	p.RetryAfter = 2 * time.Second
	return p
}
