package translog

import (
	"context"
	"embed"
	"fmt"

	"github.com/fairpact/fairpact/internal/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

var schema = database.NewSchema("translog", migrations)

// Migrate brings the schema translog up to this binary's version. It may be run
// again, and by several processes at once.
func Migrate(ctx context.Context, databaseURL string) error {
	return schema.Migrate(ctx, databaseURL)
}

// unavailable marks a failure of the database or the network.
func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }
