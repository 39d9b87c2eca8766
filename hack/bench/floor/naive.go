package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// document is what a new deal holds; naive adds commits and reveals to it.
const document = `{"id":"x","algorithm":{"name":"sealed-bid","params":{"reserve":1000}},
"parties":{"p1":{"commit":null,"reveal":null},"p2":{"commit":null,"reveal":null}},"state":"open",
"pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`

// naive keeps a deal as one JSON document that each call rewrites, in a
// transaction of four or five client round trips.
type naive struct {
	pool *pgxpool.Pool
	sign *signer
}

func (n *naive) create(ctx context.Context, deal int64) error {
	return n.transaction(ctx, deal, "create", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO deals VALUES ($1, 'open', $2)`, deal, document)
		return err
	})
}

func (n *naive) commit(ctx context.Context, c call) error { return n.note(ctx, c, "commit") }

func (n *naive) reveal(ctx context.Context, c call) error {
	if err := n.note(ctx, c, "reveal"); err != nil || c.Party != 2 {
		return err
	}
	return n.sign.certify(ctx, c)
}

func (n *naive) note(ctx context.Context, c call, event string) error {
	return n.transaction(ctx, c.Deal, event, func(tx pgx.Tx) error {
		var text []byte
		if err := tx.QueryRow(ctx, `SELECT doc FROM deals WHERE id = $1 FOR UPDATE`, c.Deal).Scan(&text); err != nil {
			return err
		}
		var doc struct {
			ID        string                       `json:"id"`
			Algorithm json.RawMessage              `json:"algorithm"`
			Parties   map[string]map[string]string `json:"parties"`
			State     string                       `json:"state"`
			Pad       string                       `json:"pad"`
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			return err
		}
		doc.Parties[fmt.Sprint("p", c.Party)][event] = c.Hash
		text, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE deals SET doc = $2 WHERE id = $1`, c.Deal, text)
		return err
	})
}

// transaction does a change and writes it to the audit table.
func (n *naive) transaction(ctx context.Context, deal int64, event string, change func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO audit (deal, event) VALUES ($1, $2)`, deal, event)
		return err
	})
}
