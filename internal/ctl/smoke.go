package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type smokeCommand struct {
	deployment
	Algorithm []string      `default:"split.v1" placeholder:"ID" help:"Algorithm of the test deal, one of ${algorithms}; repeatable. 'all': one deal with each algorithm."`
	Timeout   time.Duration `default:"2m" help:"Give up if a deal has no verified certificate within this time."`
}

func (c smokeCommand) Run(ctx context.Context, t *terminal) error {
	client, err := httpclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	ids := c.Algorithm
	if slices.Equal(ids, []string{"all"}) {
		ids = algorithm.IDs()
	}
	var played []*algorithm.Algorithm
	for _, id := range ids {
		a, known := algorithm.Lookup(id)
		if !known {
			return fmt.Errorf("--algorithm %q is unknown: give %s, or all", id, strings.Join(algorithm.IDs(), ", "))
		}
		played = append(played, a)
	}
	for _, a := range played {
		if err := c.play(ctx, t, client, a); err != nil {
			return fmt.Errorf("%s: %w", a.ID, err)
		}
	}
	return nil
}

// play runs one deal for all its parties and verifies its certificate.
func (c smokeCommand) play(ctx context.Context, t *terminal, client *httpclient.Client, a *algorithm.Algorithm) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, refusal{fmt.Errorf("no verified certificate within %s", c.Timeout)})
	defer cancel()
	example := a.Vectors[0]
	params := example.Input.AlgorithmParams
	deal := createCommand{Algorithm: a.ID, Label: example.Input.PartyLabels, CommitIn: 10 * time.Minute, RevealIn: 20 * time.Minute, Mode: "sealed", Retention: "standard"}
	var due time.Time // when the beacon round is published
	if a.NeedsBeacon {
		// The deadlines are short, because the draw waits for a round after them.
		chain, err := beaconOf(ctx, client)
		if err != nil {
			return cause(ctx, err)
		}
		now := time.Now().Unix()
		deal.CommitDeadline, deal.RevealDeadline = now+15, now+20
		round := chain.RoundAt(deal.RevealDeadline) + 1
		due = time.Unix(chain.RoundTime(round), 0)
		params = maps.Clone(params)
		params["beacon_round"] = round
	}
	t.note("## %s: %s", a.ID, example.Description)
	s, made, err := deal.create(ctx, client, "", params)
	if err != nil {
		return cause(ctx, err)
	}
	if len(s.Invites) != len(deal.Label) {
		return fmt.Errorf("the service returned %d invite tokens for %d parties", len(s.Invites), len(deal.Label))
	}
	t.note("deal %s", made.DealID)
	opened, err := commitAndReveal(ctx, client, s, example.Input.PartyInputs)
	if err != nil {
		return cause(ctx, err)
	}
	first := &call{client, s.DealID, s.Invites[0].Token}
	if a.NeedsBeacon {
		t.note("beacon round %v will be published in %d s, after the reveal deadline", params["beacon_round"], max(0, int(time.Until(due).Seconds())))
		if err := httpclient.Pause(ctx, time.Until(due)); err != nil {
			return cause(ctx, err)
		}
		if err := retryWhileRefused(ctx, "BEACON_NOT_READY", func() error {
			_, err := client.Post(ctx, first.path("/entropy"), first.token, nil)
			return err
		}); err != nil {
			return cause(ctx, err)
		}
	}
	var text json.RawMessage
	if err := retryWhileRefused(ctx, "CERT_NOT_READY", func() error { return first.get(ctx, "/bundle", &text) }); err != nil {
		return cause(ctx, err)
	}
	given, err := canon.ParseWithin(text, inputLevels)
	if err != nil {
		return fmt.Errorf("the bundle of deal %s is not strict JSON: %w", made.DealID, err)
	}
	keys, err := fetchKeys(ctx, client)
	if err != nil {
		return cause(ctx, err)
	}
	report := verification.VerifyBundle(given, verification.Trust{Known: verification.Known{Keys: keys, Openings: verification.Openings{Lists: []any{opened}}}})
	return t.report(report, report, validity(report))
}

// beaconOf returns the beacon chain of new draws.
func beaconOf(ctx context.Context, client *httpclient.Client) (drand.Chain, error) {
	var of wire.Beacon
	if err := client.GetInto(ctx, "/v1/beacon", "", &of); err != nil {
		return drand.Chain{}, err
	}
	chain, err := chainOf(&of.BeaconChain)
	if err != nil {
		err = fmt.Errorf("GET /v1/beacon: %w", err)
	}
	return chain, err
}

// commitAndReveal returns each party's {input, salt} for verification.Openings.
func commitAndReveal(ctx context.Context, client *httpclient.Client, s state, inputs []map[string]any) (opened []any, err error) {
	act := func(party int, name string, body any) error {
		c := call{client, s.DealID, s.Invites[party].Token}
		_, err := client.Post(ctx, c.path(name), c.token, body)
		return err
	}
	salts := make([]string, len(inputs))
	for i, input := range inputs {
		salts[i] = newSalt()
		if err := act(i, "/commit", commitment{Commitment: canon.Commitment(canon.Encode(input), []byte(salts[i]))}); err != nil {
			return nil, err
		}
	}
	for i, input := range inputs {
		if err := act(i, "/reveal", sealedFile{canon.Encode(input), salts[i]}); err != nil {
			return nil, err
		}
		opened = append(opened, map[string]any{"input": input, "salt": salts[i]})
	}
	return opened, nil
}

// retryWhileRefused calls send every half second while the service refuses with the code.
func retryWhileRefused(ctx context.Context, code string, send func() error) error {
	var pending error
	for {
		err := send()
		if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && refused.Code() == code {
			pending = refused
			if httpclient.Pause(ctx, 500*time.Millisecond) == nil {
				continue
			}
		}
		if ctx.Err() != nil && pending != nil {
			return fmt.Errorf("%w; the service says: %w", context.Cause(ctx), pending)
		}
		return err
	}
}
