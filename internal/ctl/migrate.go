package ctl

import (
	"cmp"
	"context"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/translog"
)

type databases struct {
	DatabaseURL string `env:"DATABASE_URL" required:"" help:"Postgres URL of the deployment."`
	logDatabase
}

type logDatabase struct {
	LogDatabaseURL string `env:"FAIRPACT_LOG_DATABASE_URL" placeholder:"URL" help:"Postgres URL of the log, if the log has a separate database. Give the DATABASE_URL of log-server."`
}

func (d databases) log() string { return cmp.Or(d.LogDatabaseURL, d.DatabaseURL) }

type migrateCommand struct{ databases }

func (m migrateCommand) Run(ctx context.Context, t *terminal) error {
	if err := store.Migrate(ctx, m.DatabaseURL); err != nil {
		return err
	}
	if err := translog.Migrate(ctx, m.log()); err != nil {
		return err
	}
	return t.show(map[string]bool{"migrated": true}, "the schema is up to date")
}
