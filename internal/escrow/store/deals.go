package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/rules/deal"
)

var (
	createDealSQL  = query("create_deal")
	declarationSQL = query("declaration")
)

// Declaration is the part of a deal that never changes after its creation.
type Declaration struct {
	DealID    string
	OwnerHash []byte // SHA-256 of the API key that created the deal
	CreatedAt int64  // unix seconds
	deal.Terms
}

// NewDeal is a deal to create.
type NewDeal struct {
	*Declaration          // CreatedAt is ignored: the database's clock sets created_at
	TokenHashes  [][]byte // SHA-256 of each party's invite token
	Replay       *Replay
}

// Created is the outcome of CreateDeal.
type Created struct {
	Now int64 // time of the database's clock in unix seconds; if OK, the deal's created_at
	OK  bool  // false: nothing was stored, because SecretReplaced is true or commit_deadline is not after Now

	SecretReplaced bool // true: a call of the statement used a server secret that is not in force (ErrSecretReplaced)
}

// CreateDeal stores a deal and its parties, or returns ErrSecretReplaced.
func (s *Store) CreateDeal(ctx context.Context, d NewDeal) (Created, error) {
	created, err := s.creations.do(ctx, d)
	if err == nil && created.SecretReplaced {
		err = ErrSecretReplaced
	}
	return created, err
}

func (s *Store) newCreations() *coalescer[NewDeal, Created] {
	c := &coalescer[NewDeal, Created]{
		size: func(d NewDeal) int { return len(d.Params) + 300*len(d.Labels) + 72*len(d.SeatKeys) },
	}
	c.run = func(ctx context.Context, deals []NewDeal, _ bool) ([]Created, error) {
		created, _ := s.pool.Query(ctx, createDealSQL, creationColumns(deals)...) // CollectRows returns the error
		return pgx.CollectRows(created, pgx.RowToStructByPos[Created])
	}
	return c.start(s.budget)
}

func creationColumns(deals []NewDeal) []any {
	var ids, algorithms, modes, retentions, seatDeals, labels []string
	var owners, params, scopes, bodies, responses, tokens, secrets [][]byte
	var counts, seats []int
	var commitBy, revealBy, lifetimes []int64
	var chains, keys []*string
	var rounds, times []*int64
	for _, d := range deals {
		scope, body, response, lifetime := d.Replay.columns()
		ids, owners, algorithms, params = append(ids, d.DealID), append(owners, d.OwnerHash), append(algorithms, d.Algorithm), append(params, d.Params)
		modes, retentions, counts = append(modes, d.Mode), append(retentions, d.Retention), append(counts, len(d.Labels))
		commitBy, revealBy = append(commitBy, d.CommitDeadline), append(revealBy, d.RevealDeadline)
		chains, rounds, times = append(chains, d.ChainHash), append(rounds, d.BeaconRound), append(times, d.RoundTime)
		scopes, bodies, responses, lifetimes = append(scopes, scope), append(bodies, body), append(responses, response), append(lifetimes, lifetime)
		secrets = append(secrets, d.Replay.secret())
		for i, label := range d.Labels {
			seatDeals, seats, labels, tokens = append(seatDeals, d.DealID), append(seats, i), append(labels, label), append(tokens, d.TokenHashes[i])
			keys = append(keys, d.SeatKey(i))
		}
	}
	return []any{ids, owners, algorithms, params, modes, retentions, counts, commitBy, revealBy, chains, rounds, times,
		scopes, bodies, responses, lifetimes, seatDeals, seats, labels, tokens, keys, distinctSecrets(secrets...)}
}

// Declaration returns a deal's declaration, or ErrNotFound.
func (s *Store) Declaration(ctx context.Context, dealID string) (*Declaration, error) {
	d := &Declaration{DealID: dealID}
	err := s.pool.QueryRow(ctx, declarationSQL, dealID).Scan(&d.OwnerHash, &d.Algorithm, &d.Params, &d.Mode, &d.Retention, &d.CommitDeadline,
		&d.RevealDeadline, &d.CreatedAt, &d.ChainHash, &d.BeaconRound, &d.RoundTime, &d.Labels, &d.SeatKeys)
	if err != nil {
		return nil, translate(err)
	}
	return d, nil
}

var (
	insertKeySQL    = query("insert_key")
	useKeySQL       = query("use_key")
	knownKeySQL     = query("known_key")
	partyByTokenSQL = query("party_by_token")
)

// InsertKey stores the SHA-256 of an API key (SPEC 2.1: only its hash is stored). It returns
// ErrSecretReplaced if r was made with a server secret that is not in force.
func (s *Store) InsertKey(ctx context.Context, keyHash []byte, r *Replay) error {
	scope, body, response, lifetime := r.columns()
	var done bool
	err := s.pool.QueryRow(ctx, insertKeySQL, keyHash, scope, body, response, lifetime, r.secret()).Scan(&done)
	if err == nil && !done {
		err = ErrSecretReplaced
	}
	return translate(err)
}

// UseKey reports whether the API key is known. It also deletes the idempotency record of the
// key's creation, so that the service never returns the key again after the first use. The
// result `open` is the cost of the key's open deals, of which UseKey counts at most maxDeals. A
// deal costs one unit, and a large deal more (see use_key.sql).
func (s *Store) UseKey(ctx context.Context, keyHash []byte, maxDeals int) (known bool, open int, err error) {
	err = s.pool.QueryRow(ctx, useKeySQL, keyHash, maxDeals).Scan(&known, &open)
	return known, open, translate(err)
}

// KnownKey reports whether the API key is known. Unlike UseKey it works on a read-only database.
func (s *Store) KnownKey(ctx context.Context, keyHash []byte) (known bool, err error) {
	err = s.pool.QueryRow(ctx, knownKeySQL, keyHash).Scan(&known)
	return known, translate(err)
}

// PartyByToken returns the deal and party whose invite token has this SHA-256, or ErrNotFound.
func (s *Store) PartyByToken(ctx context.Context, tokenHash []byte) (dealID string, party int, err error) {
	err = s.pool.QueryRow(ctx, partyByTokenSQL, tokenHash).Scan(&dealID, &party)
	return dealID, party, translate(err)
}

var (
	findReplaySQL   = query("find_replay")
	setResponseSQL  = query("set_response")
	expireReplaySQL = query("expire_replay")
	sweepSQL        = query("sweep")
	putRoundSQL     = query("put_round")
	getRoundSQL     = query("get_round")
)

// FindReplay returns the idempotency record with this Replay.Scope, or ErrNotFound if there is
// no record or the record has expired. The slice `former` holds the same scope, computed with
// each other server secret of the process. A nil Response means that the effect took place and
// its response was not stored.
func (s *Store) FindReplay(ctx context.Context, scope []byte, former [][]byte) (r Replay, err error) {
	err = s.pool.QueryRow(ctx, findReplaySQL, scope, former).Scan(&r.Scope, &r.Body, &r.Response)
	return r, translate(err)
}

// SetResponse stores the response of an idempotency record unless the record already has one,
// and returns the stored response. It returns ErrNotFound if the record is gone.
func (s *Store) SetResponse(ctx context.Context, scope, response []byte) (stored []byte, err error) {
	err = s.pool.QueryRow(ctx, setResponseSQL, scope, response).Scan(&stored)
	return stored, translate(err)
}

// ExpireReplay deletes the idempotency record with this scope if it has expired, so that its
// Idempotency-Key can be used again before the next Sweep.
func (s *Store) ExpireReplay(ctx context.Context, scope []byte) error {
	_, err := s.pool.Exec(ctx, expireReplaySQL, scope)
	return translate(err)
}

// Sweep deletes all expired idempotency records, in several statements.
func (s *Store) Sweep(ctx context.Context) (deleted int64, err error) {
	for {
		tag, err := s.pool.Exec(ctx, sweepSQL)
		deleted += tag.RowsAffected()
		if err != nil || tag.RowsAffected() == 0 {
			return deleted, translate(err)
		}
	}
}

// PutRound stores a verified beacon round. Rounds are never deleted.
func (s *Store) PutRound(ctx context.Context, chainHash string, round int64, randomness, signature string) error {
	_, err := s.pool.Exec(ctx, putRoundSQL, chainHash, round, randomness, signature)
	return translate(err)
}

// Round returns a stored beacon round, or ErrNotFound.
func (s *Store) Round(ctx context.Context, chainHash string, round int64) (randomness, signature string, err error) {
	err = s.pool.QueryRow(ctx, getRoundSQL, chainHash, round).Scan(&randomness, &signature)
	return randomness, signature, translate(err)
}
