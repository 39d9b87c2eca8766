package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	committed = 1
	revealed  = 2
)

// rows inserts one row a call, in one statement of its own.
type rows struct {
	pool *pgxpool.Pool
	sign *signer
}

func (r *rows) create(ctx context.Context, deal int64) error {
	_, err := r.pool.Exec(ctx, `INSERT INTO deals VALUES ($1, 'open', $2)`, deal, document)
	return err
}

func (r *rows) commit(ctx context.Context, c call) error { return r.insert(ctx, c, committed) }

func (r *rows) reveal(ctx context.Context, c call) error {
	if err := r.insert(ctx, c, revealed); err != nil || c.Party != 2 {
		return err
	}
	return r.sign.certify(ctx, c)
}

func (r *rows) insert(ctx context.Context, c call, kind int) error {
	_, err := r.pool.Exec(ctx, `INSERT INTO actions (deal, party, kind, hash)
		SELECT $1, $2, $3, $4 FROM deals WHERE id = $1 AND state = 'open'
		ON CONFLICT DO NOTHING`, c.Deal, c.Party, kind, []byte(c.Hash))
	return err
}
