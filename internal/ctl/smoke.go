package ctl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type smokeCommand struct {
	BaseURL   string        `env:"FAIRPACT_URL" required:"" placeholder:"URL" help:"URL of the deployment, like https://fairpact.example."`
	Algorithm []string      `default:"split.v1" placeholder:"ID" help:"Algorithm of the test deal, one of ${algorithms}; repeatable. 'all': one deal with each algorithm."`
	Show      bool          `help:"Print each request and its answer to standard error, with tokens, keys and salts shortened."`
	Timeout   time.Duration `default:"2m" help:"Give up if a deal has no verified certificate within this time."`
}

func (c smokeCommand) Run(ctx context.Context, t *terminal) error {
	client, err := httpclient.New(c.BaseURL)
	if err != nil {
		return err
	}
	if c.Show {
		client.Observe(t.exchange)
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
	var chain beacon.Chain // only genesis and period are set
	var round int64        // 0 if the algorithm needs no beacon
	if a.NeedsBeacon {
		// The round is published after the reveal deadline, so that no party knows the random
		// value when revealing. The deadlines are short, because the draw waits for the round.
		var err error
		if chain, err = c.chain(ctx); err != nil {
			return cause(ctx, err)
		}
		now := time.Now().Unix()
		deal.CommitDeadline, deal.RevealDeadline = now+15, now+20
		round = chain.RoundAt(deal.RevealDeadline) + 1
		params = maps.Clone(params)
		params["beacon_round"] = round
	}
	if c.Show {
		t.note("## %s: %s", a.ID, example.Description)
	}
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
		due := time.Until(time.Unix(chain.RoundTime(round), 0))
		t.note("beacon round %d will be published in %d s, after the reveal deadline", round, max(0, int(due.Seconds())))
		select {
		case <-ctx.Done():
		case <-time.After(due):
		}
		if _, err := retryWhileRefused(ctx, "BEACON_NOT_READY", func() ([]byte, error) {
			return client.Post(ctx, first.path("/entropy"), first.token, nil)
		}); err != nil {
			return cause(ctx, err)
		}
	}
	body, err := retryWhileRefused(ctx, "CERT_NOT_READY", func() ([]byte, error) {
		return client.Get(ctx, first.path("/certificate"), first.token)
	})
	if err != nil {
		return cause(ctx, err)
	}
	cert, err := canon.Parse(body)
	if err != nil {
		return fmt.Errorf("the certificate of deal %s is not strict JSON: %w", made.DealID, err)
	}
	head, err := fetchHead(ctx, client, cert)
	if err != nil {
		return cause(ctx, err)
	}
	keys, err := fetchKeys(ctx, client)
	if err != nil {
		return cause(ctx, err)
	}
	report := verification.Verify(verification.Evidence{Certificate: cert, TreeHead: head, Keys: keys, Inputs: opened, Params: params})
	checkBeacon(&report, cert, nil)
	return t.report(report, report, verdict(report))
}

var pageFacts = regexp.MustCompile(`<template id="facts">([^<]*)</template>`)

// chain uses a separate client, so that --show does not print the request for the page /new.
func (c smokeCommand) chain(ctx context.Context) (beacon.Chain, error) {
	client, err := httpclient.New(c.BaseURL)
	if err != nil {
		return beacon.Chain{}, err
	}
	page, err := client.Get(ctx, "/new", "")
	if err != nil {
		return beacon.Chain{}, fmt.Errorf("cannot read the beacon's genesis and period from the page /new: %w", err)
	}
	var facts struct {
		Genesis int64 `json:"beacon_genesis"`
		Period  int64 `json:"beacon_period"`
	}
	found := pageFacts.FindSubmatch(page)
	if found == nil || json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &facts) != nil || facts.Genesis < 0 || facts.Period < 1 {
		return beacon.Chain{}, errors.New("the page /new does not state the beacon's genesis and period: check that --base-url is a deployment of this release")
	}
	return beacon.Chain{Genesis: facts.Genesis, Period: facts.Period}, nil
}

// commitAndReveal returns each party's {input, salt} for verification.Evidence.Inputs.
func commitAndReveal(ctx context.Context, client *httpclient.Client, s state, inputs []map[string]any) (opened []any, err error) {
	salts := make([]string, len(inputs))
	for i, input := range inputs {
		random := make([]byte, 16)
		rand.Read(random)
		salts[i] = hex.EncodeToString(random)
		commitment := map[string]string{"commitment": canon.Commitment(canon.Encode(input), []byte(salts[i]))}
		party := call{client, s.DealID, s.Invites[i].Token}
		if _, err := client.Post(ctx, party.path("/commit"), party.token, commitment); err != nil {
			return nil, err
		}
	}
	for i, input := range inputs {
		party := call{client, s.DealID, s.Invites[i].Token}
		if _, err := client.Post(ctx, party.path("/reveal"), party.token, sealedFile{canon.Encode(input), salts[i]}); err != nil {
			return nil, err
		}
		opened = append(opened, map[string]any{"input": input, "salt": salts[i]})
	}
	return opened, nil
}

// retryWhileRefused calls send every half second while the service refuses the request with the given code.
// If ctx ends first, the error holds the cause of ctx and the last refusal.
func retryWhileRefused(ctx context.Context, code string, send func() ([]byte, error)) ([]byte, error) {
	var pending error
	for {
		body, err := send()
		if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && refused.Code() == code {
			pending = refused
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
				continue
			}
		}
		if ctx.Err() != nil && pending != nil {
			return nil, fmt.Errorf("%w; the service says: %w", context.Cause(ctx), pending)
		}
		return body, err
	}
}
