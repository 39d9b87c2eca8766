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
