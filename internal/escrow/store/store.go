// Package store keeps deals in Postgres. Postgres holds the truth, and its clock decides
// every deadline. Each method is one round trip unless its comment says otherwise, and
// each write is one transaction. Concurrent calls of a frequent method, such as Commit or
// Snapshot, share one round trip (see coalescer). A read of more than SmallRead bytes runs alone,
// after the call in ctx has taken a ticket for it (see large).
//
// Locks: a commitment, a reveal and a change of phase first lock the deal's row, and
// decide in the statement after the lock. A change of phase therefore waits for each
// commitment or reveal that got the lock before it, and sees the inserted row. A commitment
// or reveal that gets the lock later sees the new phase. So a certificate never blames a
// party whose commitment was acknowledged. If the last two reveals run at the same time, the
// one that gets the lock second sees the other's row. If all parties have revealed, the end of
// the deal needs no lock statement (see allRevealed). Postgres never waits for this process
// while a deal is locked.
//
// Plans: a session plans each statement once, with sequential scans off (see
// internal/platform/database/sql/session_settings.sql). So every statement finds its rows by key. The
// keys come from arrays or scalar subqueries.
package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

var (
	//go:embed sql/*.sql
	sqlFiles embed.FS
	//go:embed migrations/*.sql
	migrations embed.FS

	schema = database.NewSchema("public", migrations)
)

// sqlTexts holds the statements of sql/, by the name of their file.
var sqlTexts = func() map[string]string {
	texts := make(map[string]string)
	files, _ := sqlFiles.ReadDir("sql")
	for _, file := range files {
		text, _ := sqlFiles.ReadFile("sql/" + file.Name())
		texts[strings.TrimSuffix(file.Name(), ".sql")] = string(text)
	}
	return texts
}()

func sql(name string) string {
	text, known := sqlTexts[name]
	if !known {
		panic("store: no statement sql/" + name + ".sql")
	}
	return text
}

// Store reads and writes the escrow's tables. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	slots slots
	asked atomic.Int64 // time of the last query of Confirm, unix milliseconds

	creations        *coalescer[NewDeal, Created]
	commits, reveals *coalescer[Act, ActResult]
	snapshots        *coalescer[snapshotOf, *Snapshot]
	endings          *coalescer[*Ending, ended]
	certificates     *coalescer[certificateBy, *Certificate]
	publications     *coalescer[Publication, bool]
	keys             *coalescer[useOf, *usedKey]
	tokens           *coalescer[[32]byte, *partyOf]
}

// Migrate brings the escrow's tables to this binary's version. It is idempotent, and several
// processes may run it at the same time.
func Migrate(ctx context.Context, databaseURL string) error { return schema.Migrate(ctx, databaseURL) }

// Open connects a pool of at most maxConns connections. Its errors include those of Ready.
func Open(ctx context.Context, databaseURL string, maxConns int32, options ...database.Option) (*Store, error) {
	pool, err := database.Open(ctx, databaseURL, maxConns, options...)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, slots: newSlots()}
	if err := s.Ready(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	s.creations = s.newCreations()
	s.commits, s.reveals = s.newActs(sql("commit"), commitColumns, (*ActResult).scanCommit), s.newActs(sql("reveal"), revealColumns, (*ActResult).scanReveal)
	s.snapshots, s.endings = s.newSnapshots(), s.newEndings()
	s.certificates, s.publications = s.newCertificates(), s.newPublications()
	s.keys, s.tokens = s.newKeys(), s.newTokens()
	return s, nil
}

// Reconnect replaces each connection as soon as it is idle, because its application_name has changed.
func (s *Store) Reconnect() { s.pool.Reset() }

// Close ends all connections. It MUST NOT run while a call of the Store waits for its answer. It
// interrupts the insert of a caller that gave up, as a crash would.
func (s *Store) Close() {
	for _, c := range []interface{ close() }{s.creations, s.commits, s.reveals, s.snapshots, s.endings, s.certificates, s.publications, s.keys, s.tokens} {
		c.close()
	}
	database.Close(s.pool)
}

const confirmInterval = time.Second

// Confirm sends a query if the last answer of the database is at least a second old. Without
// this query, a caller that answers from caches would not notice a failover to another server.
func (s *Store) Confirm(ctx context.Context) {
	now, asked := time.Now().UnixMilli(), s.asked.Load()
	if now-max(asked, s.slots.answered.Load()) < confirmInterval.Milliseconds() || !s.asked.CompareAndSwap(asked, now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, confirmInterval)
	defer cancel()
	_, _ = s.Now(ctx) // after a failover the pool opens a new connection, and database.Server then identifies the new server
}

// Ready returns an error if the database does not answer or its schema is older than this binary needs.
func (s *Store) Ready(ctx context.Context) error { return schema.Current(ctx, s.pool) }

// Now returns the time of the database's clock, in unix seconds.
func (s *Store) Now(ctx context.Context) (int64, error) {
	now, err := database.Now(ctx, s.pool)
	if err == nil {
		s.slots.answered.Store(time.Now().UnixMilli())
	}
	return now, translate(err)
}

// Applications returns the application names of all clients of this database.
func Applications(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	return rows(ctx, pool, pgx.RowTo[string], sql("applications"))
}

func rows[T any](ctx context.Context, pool *pgxpool.Pool, scan pgx.RowToFunc[T], statement string, args ...any) ([]T, error) {
	found, _ := pool.Query(ctx, statement, args...) // CollectRows returns the error
	all, err := pgx.CollectRows(found, scan)
	return all, translate(err)
}

// Replay is the idempotency record that a transaction writes with its effect; nil: none.
type Replay struct {
	Scope    []byte // 32-byte HMAC of caller, method, path and Idempotency-Key
	Body     []byte // 32-byte HMAC of the request's body
	Response []byte // encrypted; nil if the response is stored later
	Lifetime int64  // seconds
	Secret   []byte // fingerprint of the server secret that Scope, Body and Response were made with
}

func (r *Replay) columns() (scope, body, response []byte, lifetime int64) {
	if r == nil {
		return nil, nil, nil, 0
	}
	return r.Scope, r.Body, r.Response, r.Lifetime
}

func (r *Replay) secret() []byte {
	if r == nil {
		return nil
	}
	return r.Secret
}

// ErrNotFound is returned when no row has the given identifier.
var ErrNotFound = errors.New("store: not found")

// ErrReplayed is returned when the Idempotency-Key already has a record. The call changed nothing.
var ErrReplayed = errors.New("store: idempotency record exists")

// translate turns the errors of pgx into ErrNotFound, ErrReplayed, READ_ONLY (the database refuses
// writes) and UNAVAILABLE (an outage). Any other error of Postgres is a fault of this program.
func translate(err error) error {
	for _, own := range []error{ErrNotFound, ErrReplayed, ErrSecretReplaced, errPanicked} {
		if errors.Is(err, own) {
			return err
		}
	}
	if _, known := errors.AsType[*problem.Error](err); known { // of package budget
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == "23505" && pg.ConstraintName == "idempotency_pkey":
			return ErrReplayed
		case pg.Code == "25006":
			return problem.New(problem.ReadOnly, "the service is read-only now, because of maintenance or a database failover; nothing was changed: send the same request again later").WithRetryAfter(10).WithCause(err)
		}
	}
	if !database.Outage(err) {
		return err
	}
	return problem.New(problem.Unavailable, "the database is out of reach and nothing was lost; send the same request again in a few seconds").WithRetryAfter(2).
		WithCause(fmt.Errorf("%w: %w", database.ErrNoAnswer, err))
}

// InsertKey stores the SHA-256 of an API key (SPEC 2.1: only its hash is stored). It returns
// ErrSecretReplaced if r was made with a server secret that is not in force.
func (s *Store) InsertKey(ctx context.Context, keyHash []byte, r *Replay) error {
	scope, body, response, lifetime := r.columns()
	var done bool
	err := s.pool.QueryRow(ctx, sql("insert_key"), keyHash, scope, body, response, lifetime, r.secret()).Scan(&done)
	if err == nil && !done {
		err = ErrSecretReplaced
	}
	return translate(err)
}

// UseKey reports whether the API key is known. The result `open` is the cost of the key's open deals, of
// which UseKey counts at most maxDeals. A deal costs one unit, and a large deal more (see use_key.sql).
func (s *Store) UseKey(ctx context.Context, keyHash []byte, maxDeals int) (known bool, open int, err error) {
	used, err := s.keys.do(ctx, useOf{[32]byte(keyHash), maxDeals})
	if err != nil {
		return false, 0, err
	}
	return used.known, used.open, nil
}

// useOf is a call of UseKey. Calls share statements, so that a flood of unknown keys costs few.
type useOf struct {
	hash     [32]byte
	maxDeals int
}

type usedKey struct {
	known bool
	open  int
}

func (s *Store) newKeys() *coalescer[useOf, *usedKey] {
	c := &coalescer[useOf, *usedKey]{fill: fillTime}
	c.run = reads(s, sql("use_key"), func(unique []useOf) []any {
		hashes, most := make([][]byte, len(unique)), make([]int, len(unique))
		for i := range unique {
			hashes[i], most[i] = unique[i].hash[:], unique[i].maxDeals
		}
		return []any{hashes, most}
	}, func(row pgx.CollectableRow, n *int, _ []useOf) (*usedKey, error) {
		k := &usedKey{}
		return k, row.Scan(n, &k.known, &k.open)
	})
	return c.startIn(s.slots, s.slots.lookups)
}

// EndKeyReplay deletes the idempotency record of an API key's creation, so that the service never returns the
// key again after its first use.
func (s *Store) EndKeyReplay(ctx context.Context, keyHash []byte) error {
	_, err := s.pool.Exec(ctx, sql("end_key_replay"), keyHash)
	return translate(err)
}

// PartyByToken returns the deal and party whose invite token has this SHA-256, or ErrNotFound.
func (s *Store) PartyByToken(ctx context.Context, tokenHash []byte) (dealID string, party int, err error) {
	at, err := s.tokens.do(ctx, [32]byte(tokenHash))
	if err == nil && at == nil {
		err = ErrNotFound
	}
	if err != nil {
		return "", 0, err
	}
	return at.dealID, at.party, nil
}

type partyOf struct {
	dealID string
	party  int
}

func (s *Store) newTokens() *coalescer[[32]byte, *partyOf] {
	c := &coalescer[[32]byte, *partyOf]{fill: fillTime}
	c.run = reads(s, sql("party_by_token"), func(unique [][32]byte) []any {
		hashes := make([][]byte, len(unique))
		for i := range unique {
			hashes[i] = unique[i][:]
		}
		return []any{hashes}
	}, func(row pgx.CollectableRow, n *int, _ [][32]byte) (*partyOf, error) {
		p := &partyOf{}
		return p, row.Scan(n, &p.dealID, &p.party)
	})
	return c.startIn(s.slots, s.slots.lookups)
}

const replayCopies = 6 // how many times a response is in memory while it is decrypted, encoded and sent

// FindReplay returns the idempotency record with this Replay.Scope, or ErrNotFound if there is
// no record or the record has expired. The slice `former` holds the same scope, computed with
// each other server secret of the process. A nil Response means that the effect took place and
// its response was not stored. FindReplay reads a large response only once the call in ctx has taken what its answer needs.
func (s *Store) FindReplay(ctx context.Context, scope []byte, former [][]byte) (r Replay, err error) {
	var size *int
	err = s.pool.QueryRow(ctx, sql("find_replay"), scope, former, SmallRead).Scan(&r.Scope, &r.Body, &r.Response, &size)
	if err != nil || size == nil || *size <= SmallRead {
		return r, translate(err)
	}
	query := func(ctx context.Context, _ []int, _ bool) ([]Replay, error) {
		err := s.pool.QueryRow(ctx, sql("find_replay"), scope, former, *size).Scan(&r.Scope, &r.Body, &r.Response, &size)
		return []Replay{r}, err
	}
	return large(ctx, s, replayCopies**size, query, 0)
}

// SetResponse stores the response of an idempotency record unless the record already has one,
// and returns the stored response. It returns ErrNotFound if the record is gone.
func (s *Store) SetResponse(ctx context.Context, scope, response []byte) (stored []byte, err error) {
	err = s.pool.QueryRow(ctx, sql("set_response"), scope, response).Scan(&stored)
	return stored, translate(err)
}

// ExpireReplay deletes the idempotency record with this scope if it has expired, so that its
// Idempotency-Key can be used again before the next Sweep.
func (s *Store) ExpireReplay(ctx context.Context, scope []byte) error {
	_, err := s.pool.Exec(ctx, sql("expire_replay"), scope)
	return translate(err)
}

// Sweep deletes all expired idempotency records, in several statements.
func (s *Store) Sweep(ctx context.Context) (deleted int64, err error) {
	for {
		tag, err := s.pool.Exec(ctx, sql("sweep"))
		deleted += tag.RowsAffected()
		if err != nil || tag.RowsAffected() == 0 {
			return deleted, translate(err)
		}
	}
}

// DeleteContents deletes the params, title, message, inputs and seals of some deals whose end and reveal_deadline are at least `age`
// ago (see delete_contents.sql), and returns how many; 0: there are no more. Declaration.Params of such a deal is empty.
func (s *Store) DeleteContents(ctx context.Context, age time.Duration) (deals int64, err error) {
	tag, err := s.pool.Exec(ctx, sql("delete_contents"), int64(age/time.Second))
	return tag.RowsAffected(), translate(err)
}

// ContentsDeleted reports whether DeleteContents has deleted the contents of a deal.
func (s *Store) ContentsDeleted(ctx context.Context, dealID string) (deleted bool, err error) {
	err = s.pool.QueryRow(ctx, sql("contents_deleted"), dealID).Scan(&deleted)
	return deleted, translate(err)
}

// PutRound stores a verified beacon round. Rounds are never deleted.
func (s *Store) PutRound(ctx context.Context, chainHash string, round int64, randomness, signature string) error {
	_, err := s.pool.Exec(ctx, sql("put_round"), chainHash, round, randomness, signature)
	return translate(err)
}

// Round returns a stored beacon round, or ErrNotFound.
func (s *Store) Round(ctx context.Context, chainHash string, round int64) (randomness, signature string, err error) {
	err = s.pool.QueryRow(ctx, sql("get_round"), chainHash, round).Scan(&randomness, &signature)
	return randomness, signature, translate(err)
}
