package replica

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/internal/database"
)

//go:embed sql/running.sql
var runningSQL string

// Process is a process that runs, as its row says.
type Process struct {
	Name      string // host and a word of this run
	Kind      string // binary
	SignsWith string
	Accepts   []string
}

// Running gives the processes whose rows are live, by kind and name: for people
// to look at, as a row proves nothing.
func Running(ctx context.Context, databaseURL string) ([]Process, error) {
	pool, err := database.Open(ctx, databaseURL, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := schema.Current(ctx, pool); err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, runningSQL, lifetime.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read the running processes: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Process])
}

// Rejects tells whether the other would sign what p does not accept.
func (p Process) Rejects(other Process) bool { return !slices.Contains(p.Accepts, other.SignsWith) }
