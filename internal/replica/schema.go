package replica

import (
	"context"
	"embed"

	"github.com/fairpact/fairpact/internal/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

var schema = database.NewSchema("replica", migrations)

// Migrate brings the schema replica up to this binary's version. It may be run
// again, and by several processes at once.
func Migrate(ctx context.Context, databaseURL string) error {
	return schema.Migrate(ctx, databaseURL)
}
