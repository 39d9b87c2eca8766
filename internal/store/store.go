// Package store keeps deals in Postgres, which is the truth; its clock is the
// clock. Every method is one round trip unless it says otherwise, and every
// write is one transaction. What many callers want at the same moment is one
// statement (coalescer).
//
// Locks: a commitment or reveal and a change of phase lock the deal's row, and
// each decides in the statement after the lock. So a phase change waits for
// every insert that was let in before it and sees it, and an insert that comes
// later sees the new phase: an acknowledged commit is never named a flaker, and
// of two last reveals the second sees the first. No lock is held across a client
// round trip.
//
// Plans: every statement reaches its tables by key, from arrays or scalar
// subqueries, and each session plans it once (see database.Open).
package store

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
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
	pool   *pgxpool.Pool
	budget budget

	creations        *coalescer[NewDeal, Created]
	commits, reveals *coalescer[Act, Acted]
	snapshots        *coalescer[snapshotOf, *Snapshot]
	endings          *coalescer[*Ending, ended]
	certificates     *coalescer[certificateBy, *Certificate]
	publications     *coalescer[Publication, bool]
}

// DefaultConns are the connections of a pool where nobody says otherwise. They do not
// follow the cores: those of a node say nothing about a pod or its database.
const DefaultConns = 16

// Open connects a pool of at most maxConns connections (0: DefaultConns) and checks that the database answers and has this version's schema.
func Open(ctx context.Context, databaseURL string, maxConns int32, options ...database.Option) (*Store, error) {
	if maxConns == 0 {
		maxConns = DefaultConns
	}
	pool, err := database.Open(ctx, databaseURL, maxConns, options...)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, budget: newBudget()}
	if err := s.Ready(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	s.creations = s.newCreations()
	s.commits, s.reveals = s.acts(commitSQL, commitColumns, (*Acted).scanCommit), s.acts(revealSQL, revealColumns, (*Acted).scanReveal)
	s.snapshots, s.endings = s.newSnapshots(), s.newEndings()
	s.certificates, s.publications = s.newCertificates(), s.newPublications()
	return s, nil
}

// Close ends all connections. No call may be under way; an insert whose caller
// gave up is broken off, as in a crash.
func (s *Store) Close() {
	for _, c := range []interface{ close() }{s.creations, s.commits, s.reveals, s.snapshots, s.endings, s.certificates, s.publications} {
		c.close()
	}
	database.Close(s.pool)
}

// Server identifies the database server; see database.Server.
func (s *Store) Server() string { return database.Server() }

// serverAge is how long a server that answered counts as the one that is there.
const serverAge = time.Second

// Confirm asks the database something where it has not answered for a second:
// what only caches answer would not notice that another server took its place.
func (s *Store) Confirm(ctx context.Context) {
	now := time.Now().UnixMilli()
	last := s.budget.answered.Load()
	if now-last < serverAge.Milliseconds() || !s.budget.answered.CompareAndSwap(last, now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, serverAge)
	defer cancel()
	_, _ = s.Now(ctx) // a failed connection is replaced by one that tells its server
}

// Ready reports whether the database answers and holds the schema that this
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
	Secret   []byte // fingerprint of the server secret that Scope, Body and Response are under
}

func (r *Replay) columns() (scope, body, response []byte, lifetime int64) {
	if r == nil {
		return nil, nil, nil, 0
	}
	return r.Scope, r.Body, r.Response, r.Lifetime
}

// secretOf is what a record is under, as what a statement is to be checked for.
func (r *Replay) secretOf() []byte {
	if r == nil {
		return nil
	}
	return r.Secret
}

// secretsOf are the distinct server secrets that some calls are under.
func secretsOf(all ...[]byte) (distinct [][]byte) {
	distinct = [][]byte{}
	for _, one := range all {
		if one != nil && !slices.ContainsFunc(distinct, func(other []byte) bool { return bytes.Equal(one, other) }) {
			distinct = append(distinct, one)
		}
	}
	return distinct
}

func replayed(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" && pg.ConstraintName == "idempotency_pkey" {
		return ErrReplayed
	}
	return err
}

// outage turns whatever means "the database is out of reach" into UNAVAILABLE
// (503), a write that it does not take into READ_ONLY (503), and leaves the rest,
// which are faults of ours, as they are.
func outage(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrReplayed), errors.Is(err, ErrNotFound), errors.Is(err, ErrSecretMoved), errors.Is(err, pgx.ErrNoRows), errors.Is(err, errPanicked):
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "25006" {
		return problem.New(problem.ReadOnly, "the service takes no changes now, for maintenance or while its database fails over; nothing was changed: send the same request again later").After(10).Because(err)
	}
	if !database.Outage(err) {
		return err
	}
	return problem.New(problem.Unavailable, "the database is out of reach and nothing was lost; send the same request again in a few seconds").After(2).
		Because(fmt.Errorf("%w: %w", database.ErrNoAnswer, err))
}
