package escrow

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
	"github.com/fairpact/fairpact/internal/telemetry"
)

type invite struct {
	Party int    `json:"party"`
	Label string `json:"label"`
	Token string `json:"token"`
}

// Create makes a deal and its invite tokens (SPEC 2.3). The answer is part of
// the effect's transaction: the tokens are stored only hashed, so they could
// not be rendered a second time.
func (s *Service) Create(ctx context.Context, p Principal, r CreateRequest, rec *idempotency.Record) (idempotency.Response, error) {
	static, warnings, err := s.declare(p, r)
	if err != nil {
		return idempotency.Response{}, err
	}
	answer := struct {
		DealID  string     `json:"deal_id"`
		State   deal.State `json:"state"`
		Invites []invite   `json:"invite_tokens"`
		Warning string     `json:"warning,omitempty"`
	}{static.DealID, deal.Open, make([]invite, len(r.Labels)), strings.Join(warnings, ". ")}
	hashes := make([][]byte, len(r.Labels))
	for i, label := range r.Labels {
		token := sealing.Token(tokenPrefix)
		answer.Invites[i] = invite{i, label, token}
		hashes[i] = sealing.TokenHash(token)
	}
	resp, err := respond(201, answer)
	if err != nil {
		return resp, err
	}
	replay, err := rec.ReplayWith(resp.Status, resp.Body)
	if err != nil {
		return resp, err
	}
	now, ok, err := s.store.CreateDeal(ctx, static, hashes, replay)
	if err != nil {
		return resp, err
	}
	if !ok {
		return resp, problem.New(problem.InvalidRequest, "commit_deadline %d is not after now (%d, unix seconds UTC); choose a later one", r.CommitDeadline, now)
	}
	telemetry.NoteDeal(ctx, static.DealID)
	s.logger.InfoContext(ctx, "deal created", "algorithm", r.Algorithm, "parties", len(r.Labels))
	return resp, nil
}

// MayCreate refuses invite tokens.
func (s *Service) MayCreate(p Principal) error {
	if p.isParty() {
		return problem.New(problem.Forbidden, "an invite token cannot create deals; pass an API key from POST /v1/keys")
	}
	return nil
}

// declare checks what the clock has no part in.
func (s *Service) declare(p Principal, r CreateRequest) (*store.Static, []string, error) {
	alg, ok := algorithm.Lookup(r.Algorithm)
	if !ok {
		return nil, nil, problem.New(problem.InvalidRequest, "algorithm is %s; it must be one of split.v1, random.v1, shapley.v1 (GET /v1/algorithms)", shown(r.Algorithm))
	}
	if err := algorithm.CheckLabels(alg, r.Labels); err != nil {
		return nil, nil, problem.New(problem.InvalidParams, "%s", err)
	}
	if r.RevealDeadline <= r.CommitDeadline {
		return nil, nil, problem.New(problem.InvalidRequest, "reveal_deadline %d must be after commit_deadline %d", r.RevealDeadline, r.CommitDeadline)
	}
	warnings, err := alg.CheckParams(r.Labels, r.Params)
	if err != nil {
		return nil, nil, problem.New(problem.InvalidParams, "%s", err)
	}
	d := &store.Static{
		DealID: sealing.ID(dealPrefix), OwnerHash: p.keyHash, Algorithm: r.Algorithm, Params: canon.Encode(r.Params),
		Mode: r.Mode, Retention: r.Retention, Labels: r.Labels, CommitDeadline: r.CommitDeadline, RevealDeadline: r.RevealDeadline,
	}
	if r.Algorithm == algorithm.Random {
		warning, err := s.pinBeacon(d, r.Params)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, warning...)
	}
	if len(r.unknown) > 0 {
		warnings = append(warnings, fmt.Sprintf("unknown members were ignored: %s", shown(strings.Join(r.unknown, ", "))))
	}
	if r.Mode == "open" && r.Retention == "purge" {
		warnings = append(warnings, "mode open with retention purge leaves no inputs to fetch once the deal has ended")
	}
	return d, append(warnings, saltTip), nil
}

// pinBeacon declares the beacon round: its chain and its time belong to the
// deal from here on.
func (s *Service) pinBeacon(d *store.Static, params map[string]any) (warnings []string, err error) {
	chain := s.beacon.Chain()
	round := params["beacon_round"].(int64) // CheckParams has seen it
	at := chain.RoundTime(round)
	d.ChainHash, d.BeaconRound, d.RoundTime = &chain.Hash, &round, &at
	if at > d.RevealDeadline {
		return nil, nil
	}
	first := round + (d.RevealDeadline-at)/chain.Period + 1
	text := fmt.Sprintf("beacon_round %d is out at %d, not after reveal_deadline %d, so the last to reveal can know the winner first; use round %d or later", round, at, d.RevealDeadline, first)
	if s.options.StrictBeacon {
		return nil, problem.New(problem.InvalidParams, "%s", text)
	}
	return []string{text}, nil
}
