// Command fairpactctl is the operator's command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/translog"
)

type commands struct {
	Migrate migrate `cmd:"" help:"Bring the database schema to this version. Running it again does nothing."`
}

type migrate struct {
	DatabaseURL string `env:"DATABASE_URL" required:"" help:"Postgres of the deployment."`
}

func (m migrate) Run(ctx context.Context) error {
	if err := store.Migrate(ctx, m.DatabaseURL); err != nil {
		return err
	}
	if err := translog.Migrate(ctx, m.DatabaseURL); err != nil {
		return err
	}
	fmt.Println("the schema is up to date")
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	k := kong.Parse(&c, kong.Name("fairpactctl"), kong.Description("The command line of Fairpact."), kong.BindTo(ctx, (*context.Context)(nil)))
	k.FatalIfErrorf(k.Run())
}
