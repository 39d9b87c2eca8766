package ctl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/restclient"
	"github.com/fairpact/fairpact/internal/verification"
)

type smokeCommand struct {
	BaseURL string        `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"The deployment, like https://fairpact.example."`
	Timeout time.Duration `default:"2m" help:"Give up after this long."`
}

func (smokeCommand) Help() string {
	return `A split.v1 deal of two parties, both played here, from the API key to the certificate. The certificate is then checked as fairpactctl verify does, against the deployment's own keys, and its result is recomputed. It leaves one finished deal behind.

Examples:

    fairpactctl smoke --base-url https://fairpact.example`
}

var (
	smokeParams = map[string]any{"items": []any{"car", "boat"}}
	smokeInputs = []map[string]any{
		{"valuations": map[string]any{"boat": int64(40), "car": int64(60)}},
		{"valuations": map[string]any{"boat": int64(70), "car": int64(30)}},
	}
)

func (c smokeCommand) Run(ctx context.Context, t *terminal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, refusal{fmt.Errorf("no verified certificate within %s", c.Timeout)})
	defer cancel()
	client, err := restclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	deal := createCommand{Algorithm: "split.v1", Label: []string{"smoke one", "smoke two"}, CommitIn: 10 * time.Minute, RevealIn: 20 * time.Minute, Mode: "sealed", Retention: "standard"}
	s, made, err := deal.create(ctx, client, "", smokeParams)
	if err != nil {
		return cause(ctx, err)
	}
	if len(s.Invites) != len(smokeInputs) {
		return fmt.Errorf("the service gave %d invite tokens for %d parties", len(s.Invites), len(smokeInputs))
	}
	t.note("deal %s", made.DealID)
	cert, opened, err := playBoth(ctx, s)
	if err != nil {
		return cause(ctx, err)
	}
	head, err := fetchHead(ctx, client, cert)
	if err != nil {
		return cause(ctx, err)
	}
	keys, err := fetchKeys(ctx, client)
	if err != nil {
		return cause(ctx, err)
	}
	report := verification.Verify(verification.Evidence{Certificate: cert, TreeHead: head, Keys: keys, Inputs: opened, Params: smokeParams})
	return t.report(report, report, verdict(report))
}

// playBoth commits and reveals for both parties and waits for the certificate;
// opened is what a verifier needs to open the commitments.
func playBoth(ctx context.Context, s state) (cert any, opened []any, err error) {
	salts := make([]string, len(smokeInputs))
	calls := make([]*call, len(smokeInputs))
	for i, in := range smokeInputs {
		random := make([]byte, 16)
		rand.Read(random)
		salts[i] = hex.EncodeToString(random)
		if calls[i], err = s.call(s.Invites[i].Token); err != nil {
			return nil, nil, err
		}
		commitment := map[string]string{"commitment": canon.Commitment(canon.Encode(in), []byte(salts[i]))}
		if _, err := calls[i].client.Post(ctx, calls[i].path("/commit"), calls[i].token, commitment); err != nil {
			return nil, nil, err
		}
	}
	for i, in := range smokeInputs {
		if _, err := calls[i].client.Post(ctx, calls[i].path("/reveal"), calls[i].token, sealedFile{canon.Encode(in), salts[i]}); err != nil {
			return nil, nil, err
		}
		opened = append(opened, map[string]any{"input": in, "salt": salts[i]})
	}
	var pending error // why there is no certificate yet, as the service says
	for {
		body, err := calls[0].client.Get(ctx, calls[0].path("/certificate"), calls[0].token)
		if refused, ok := errors.AsType[*restclient.Refused](err); ok && refused.Code() == "CERT_NOT_READY" {
			pending = refused
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
				continue
			}
		}
		if ctx.Err() != nil && pending != nil {
			return nil, nil, fmt.Errorf("%w; the service says: %w", context.Cause(ctx), pending)
		}
		if err != nil {
			return nil, nil, err
		}
		if !json.Valid(body) {
			return nil, nil, errors.New("the certificate is not JSON")
		}
		cert, err = canon.Parse(body)
		return cert, opened, err
	}
}
