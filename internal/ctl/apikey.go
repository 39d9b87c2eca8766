package ctl

import (
	"context"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
)

type deployment struct {
	BaseURL string `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
}

type apiKeyCommand struct {
	deployment
	Out string `placeholder:"FILE" help:"Write the key to this new file instead of printing it."`
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
		return t.show(wire.NewKey{APIKey: key}, "%s", key)
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
	var made wire.NewKey
	err := client.PostInto(ctx, "/v1/keys", "", nil, &made)
	return made.APIKey, err
}
