package ctl

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
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

type apiKeyCommand struct {
	BaseURL string `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
	Out     string `placeholder:"FILE" help:"Write the key to this new file instead of printing it."`
}

func (k apiKeyCommand) Run(ctx context.Context, t *terminal) error {
	client, err := httpclient.New(k.BaseURL)
	if err != nil {
		return err
	}
	if k.Out == "" {
		key, err := newKey(ctx, client)
		if err != nil {
			return err
		}
		return t.show(map[string]string{"api_key": key}, "%s", key)
	}
	err = createSecretFile(k.Out, func() ([]byte, error) {
		key, err := newKey(ctx, client)
		return []byte(key + "\n"), err
	})
	if err != nil {
		return err
	}
	return t.show(map[string]string{"api_key_file": k.Out}, "%s", k.Out)
}

func newKey(ctx context.Context, client *httpclient.Client) (string, error) {
	body, err := client.Post(ctx, "/v1/keys", "", nil)
	if err != nil {
		return "", err
	}
	var made struct {
		APIKey string `json:"api_key"`
	}
	err = json.Unmarshal(body, &made)
	return made.APIKey, err
}
