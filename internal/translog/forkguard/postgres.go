package forkguard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/platform/database"
)

// postgres keeps the record in the only row of a table. The database must be another than the log's, on a
// server that no restore of the log's database touches.
type postgres struct {
	pool *pgxpool.Pool

	mu   sync.Mutex // guards made
	made bool       // the table has its row
}

func openPostgres(uri string) (*postgres, error) {
	config, err := database.Config(uri)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(context.Background(), config) // connects at the first use, so that reads of the log do not need the guard
	if err != nil {
		return nil, fmt.Errorf("cannot open the fork guard's database: %w", err)
	}
	return &postgres{pool: pool}, nil
}

func (p *postgres) Close() error {
	database.Close(p.pool)
	return nil
}

const (
	// Two processes that make the table at once can collide in the catalogue. The lock prevents that.
	sqlMake = `
SELECT pg_advisory_xact_lock(hashtextextended('fairpact fork guard', 0));
CREATE TABLE IF NOT EXISTS fork_guard (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    identity  text    NOT NULL DEFAULT gen_random_uuid(),
    size      bigint,
    root      text
);
INSERT INTO fork_guard DEFAULT VALUES ON CONFLICT DO NOTHING`

	sqlHoldsALog = `SELECT to_regclass('translog.log_head') IS NOT NULL`
	sqlLoad      = `SELECT identity, coalesce(size, 0), coalesce(root, '') FROM fork_guard WHERE singleton`
	sqlStore     = `UPDATE fork_guard SET size = $1, root = $2 WHERE singleton AND identity = $3 AND coalesce(size, 0) = $4 AND coalesce(root, '') = $5`
)

func (p *postgres) Load(ctx context.Context) (r Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.make(ctx); err != nil {
		return Record{}, fmt.Errorf("cannot make the fork guard's table: %w", err)
	}
	err = p.pool.QueryRow(ctx, sqlLoad).Scan(&r.Guard, &r.Size, &r.Root)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Record{}, fmt.Errorf("the table fork_guard lost its row: %s", restoreRecord)
	case err != nil:
		return Record{}, fmt.Errorf("cannot read the fork guard's database: %w", err)
	case r.Empty():
		return r, nil
	}
	return r, r.check()
}

// make makes the table and its row, once in each process. A row that is deleted later is an error.
func (p *postgres) make(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made {
		return nil
	}
	var log bool
	if err := p.pool.QueryRow(ctx, sqlHoldsALog).Scan(&log); err != nil {
		return err
	}
	if log {
		return errors.New("its database holds a log, so a restore would set both back: use a database on another server")
	}
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		_, err := tx.Conn().PgConn().Exec(ctx, sqlMake).ReadAll()
		return err
	})
	p.made = err == nil
	return err
}

func (p *postgres) Store(ctx context.Context, loaded, next Record) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tag, err := p.pool.Exec(ctx, sqlStore, next.Size, next.Root, loaded.Guard, loaded.Size, loaded.Root)
	if err != nil {
		return fmt.Errorf("cannot write to the fork guard's database: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrMoved
	}
	return nil
}
