package replica

import (
	"context"
	"embed"
	"io/fs"

	"github.com/fairpact/fairpact/internal/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

var schema = func() database.Schema {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err)
	}
	return database.Schema{Name: "replica", Migrations: files}
}()

// Migrate brings the schema replica up to this binary's version. It may be run
// again, and by several processes at once.
func Migrate(ctx context.Context, databaseURL string) error {
	return schema.Migrate(ctx, databaseURL)
}
