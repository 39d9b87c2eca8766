package ctl

import (
	"context"
	"fmt"

	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

type secretCommands struct {
	Adopt secretAdoptCommand `cmd:"" help:"Let a database have another server secret, where the former one is lost."`
}

type secretAdoptCommand struct {
	DatabaseURL string `env:"DATABASE_URL" required:"" help:"Postgres of the deployment."`
	SecretFile  string `env:"FAIRPACT_SERVER_SECRET_FILE" required:"" type:"path" help:"File with the new server secret, 64 hex digits."`
	LoseDeals   bool   `help:"Adopt it although deals or certificates need the former one: those never end."`
}

func (secretAdoptCommand) Help() string {
	return `Every process refuses to start on a database that is sealed under another server secret than its own. Put the
former secret back if you have it. If it is lost, stop all processes and run this. Inputs that were sealed under the
former secret are never read again, Idempotency-Keys of the last day are forgotten, and API keys and invite tokens go on
to work. It refuses where a deal that has not ended holds an input, or a certificate is pending.

Examples:

    DATABASE_URL=postgres://fairpact@db/fairpact fairpactctl secret adopt --secret-file server-secret`
}

func (a secretAdoptCommand) Run(ctx context.Context, t *terminal) error {
	secret, err := sealing.Load(a.SecretFile)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, a.DatabaseURL, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	deals, certificates, err := s.Live(ctx)
	if err != nil {
		return err
	}
	if deals+certificates > 0 && !a.LoseDeals {
		return refusal{fmt.Errorf("%d of the deals and %d of the pending certificates need the former secret: put it back until they have ended, or pass --lose-deals", deals, certificates)}
	}
	if err := s.ClaimSecret(ctx, secret.Fingerprint(), true); err != nil {
		return err
	}
	if t.json {
		return t.value(map[string]string{"fingerprint": fmt.Sprintf("%x", secret.Fingerprint())})
	}
	t.line("the database has the server secret with the fingerprint %x: start the processes with it", secret.Fingerprint())
	return nil
}
