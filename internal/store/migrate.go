package store

import (
	"context"
	"embed"

	"github.com/fairpact/fairpact/internal/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

var schema = database.NewSchema("public", migrations)

// Migrate brings the escrow's tables up to this binary's version. It may be run
// again, and by several processes at once.
func Migrate(ctx context.Context, databaseURL string) error {
	return schema.Migrate(ctx, databaseURL)
}
