package escrow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/platform/telemetry"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Declared is the content of a request to create a deal (SPEC 2.2). Create pins the beacon.
type Declared struct {
	deal.Terms
	Unknown []string // names of request members that the service does not know and ignores
}

// Units returns the deal's cost, at least 1. An API key has limits on the units of its open deals
// and of its new deals per minute.
func (d Declared) Units() int {
	return 1 + len(d.Labels)/partiesPerUnit + d.bytes()/bytesPerUnit
}

// bytes returns the size of labels, seat keys, params, title and message.
func (d Declared) bytes() int {
	bytes := len(d.Params) + d.TextBytes()
	for _, label := range d.Labels {
		bytes += len(label)
	}
	for _, key := range d.SeatKeys {
		if key != nil {
			bytes += len(*key)
		}
	}
	return bytes
}

// Storage returns how many bytes the deal can store at most: what it declares, for each party a
// commitment and the larger of seal and opening, and the result, which the deal, its certificate and the answer of the
// last reveal have. It is charged at the creation, so that no commitment, seal or reveal is refused because too much
// is stored. The declaration MUST be valid.
func (d Declared) Storage() int {
	total := d.bytes()
	if alg, ok := algorithm.Lookup(d.Algorithm); ok {
		params, _ := canon.ParseObject(d.Params)
		total += len(d.Labels)*(maxSeal(alg.InputLimit(params))+rowBytes) + 3*alg.ResultLimit(d.Labels, params)
	}
	return total
}

const rowBytes = 512 // of a party's rows, without label, seat key, seal and opening

// Created is the result of Create (SPEC 2.3), with the deadlines of the deal.
type Created struct {
	DealID         string     `json:"deal_id"`
	State          deal.State `json:"state"`
	Invites        []Invite   `json:"invite_tokens"`
	Warning        string     `json:"warning,omitempty"`
	CommitDeadline int64      `json:"commit_deadline"`
	RevealDeadline int64      `json:"reveal_deadline"`
}

// Invite is one party's invite token.
type Invite struct {
	Party int    `json:"party"`
	Label string `json:"label"`
	Token string `json:"token"`
}

// Create stores a deal and returns its invite tokens. The same transaction stores the answer in
// the idempotency record rec. Only a repeat of the request can return the tokens again, because
// the deal's rows hold only token hashes. Before it stores a valid deal, Create calls `reserve` with
// Declared.Storage, and returns its error.
func (s *Service) Create(ctx context.Context, p Principal, r Declared, rec *Record, reserve func(bytes int) error) (Created, error) {
	call := budget.From(ctx)
	if err := call.Turn(ctx); err != nil {
		return Created{}, err
	}
	d, warnings, err := s.declare(p, r)
	if err != nil {
		return Created{}, err
	}
	bytes := r.Storage() // in this turn
	done, err := s.charge(ctx, p, r.Units())
	if err != nil {
		return Created{}, err
	}
	defer done()
	if err := reserve(bytes); err != nil {
		return Created{}, err
	}
	if err := call.Turn(ctx); err != nil {
		return Created{}, err
	}
	made := Created{d.DealID, deal.Open, make([]Invite, len(r.Labels)), strings.Join(warnings, ". "), r.CommitDeadline, r.RevealDeadline}
	hashes := make([][]byte, len(r.Labels))
	for i, label := range r.Labels {
		token := sealing.Token(tokenPrefix)
		made.Invites[i] = Invite{i, label, token}
		hashes[i] = sealing.TokenHash(token)
	}
	replay, err := rec.ReplayWith(made)
	if err != nil {
		return Created{}, err
	}
	created, err := s.store.CreateDeal(ctx, store.NewDeal{Declaration: d.Declaration, TokenHashes: hashes, Replay: replay})
	if err != nil {
		return Created{}, err
	}
	if !created.OK {
		return Created{}, problem.New(problem.InvalidRequest, "commit_deadline %d is in the past (now %d): send a later unix time in seconds", r.CommitDeadline, created.Now)
	}
	d.CreatedAt = created.Now
	telemetry.NoteDeal(ctx, made.DealID)
	s.logger.InfoContext(ctx, "deal created", "algorithm", r.Algorithm, "parties", len(r.Labels))
	s.keep(d)
	for i, sum := range hashes {
		s.tokens.Add(hash(sum), seat{made.DealID, i}, len(made.DealID))
	}
	return made, nil
}

// MayCreate returns FORBIDDEN if p holds an invite token.
func (s *Service) MayCreate(p Principal) error {
	if p.isParty() {
		return problem.New(problem.Forbidden, "an invite token cannot create deals; pass an API key from %s", problem.Call{Op: problem.CreateKey})
	}
	return nil
}

// declare checks the request and returns the deal, with warnings for the initiator. Only the store
// checks that commit_deadline is in the future, by the database's clock.
func (s *Service) declare(p Principal, r Declared) (*Deal, []string, error) {
	alg, ok := algorithm.Lookup(r.Algorithm)
	if !ok {
		return nil, nil, problem.New(problem.InvalidRequest, "algorithm is %.60q; it must be one of %s (see %s)", r.Algorithm, strings.Join(algorithm.IDs(), ", "), problem.Call{Op: problem.ListAlgorithms})
	}
	if err := algorithm.CheckLabels(alg, r.Labels); err != nil {
		return nil, nil, problem.New(problem.InvalidParams, "%s", err)
	}
	total := 0
	for i, label := range r.Labels {
		if err := checkVisible(fmt.Sprintf("party_labels[%d]", i), label); err != nil {
			return nil, nil, err
		}
		total += len(label)
	}
	if total > labelBytes {
		return nil, nil, problem.New(problem.InvalidParams, "party_labels have %d bytes together; send at most %d", total, labelBytes)
	}
	if err := s.checkSeatKeys(r.SeatKeys, len(r.Labels)); err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(r.SeatKeys, func(key *string) bool { return key != nil }) {
		r.SeatKeys = nil // as the store returns it later, so that the declaration has the same digest then
	}
	params, err := canon.ParseObject(r.Params)
	if err != nil {
		return nil, nil, err
	}
	if err := checkVisible("algorithm_params", params); err != nil {
		return nil, nil, err
	}
	now := time.Now().Unix()
	switch {
	case r.RevealDeadline <= r.CommitDeadline:
		return nil, nil, problem.New(problem.InvalidRequest, "reveal_deadline %d must be after commit_deadline %d", r.RevealDeadline, r.CommitDeadline)
	case r.RevealDeadline > now+deal.Longest:
		return nil, nil, problem.New(problem.InvalidRequest, "reveal_deadline %d is more than a year away (now %d); send an earlier unix time in seconds", r.RevealDeadline, now)
	}
	if alg.NeedsBeacon && params["beacon_round"] == nil {
		return nil, nil, problem.New(problem.InvalidParams, "algorithm_params.beacon_round is missing: give %d, the first round after reveal_deadline, or a later one", s.beacon.Chain().RoundAt(r.RevealDeadline)+1)
	}
	warnings, err := alg.CheckParams(r.Labels, params)
	if err != nil {
		return nil, nil, problem.New(problem.InvalidParams, "%s", err)
	}
	if r.Seals != "" && s.options.PublicURL == "" {
		return nil, nil, errNoReceipts
	}
	if r.Seals != "" {
		chain := s.beacon.Chain()
		r.ChainHash = &chain.Hash
	}
	if alg.NeedsBeacon {
		advice, err := s.pinBeacon(&r.Terms, params)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, advice...)
	}
	if r.ActedBy != "" && (r.RoundTime == nil || *r.RoundTime <= r.RevealDeadline) {
		return nil, nil, problem.New(problem.InvalidParams, "acted_by is %s, which only a draw takes (random.v1) whose beacon_round is published after reveal_deadline: otherwise the initiator alone could choose the result. Leave acted_by out, or take a later beacon_round", r.ActedBy)
	}
	if r.ActedBy != "" && r.SeatKeys != nil {
		return nil, nil, problem.New(problem.InvalidParams, "acted_by is %s, but party_keys name keys of other parties: leave one of the two out", r.ActedBy)
	}
	if r.Seals != "" {
		if _, err := s.sealRound(&r.Terms); err != nil {
			return nil, nil, problem.New(problem.InvalidParams, "seals is %s, but %s", r.Seals, err)
		}
	}
	warnings = append(warnings, cautionsOf(&r.Terms, now)...)
	if len(r.Unknown) > 0 {
		warnings = append(warnings, fmt.Sprintf("unknown members were ignored: %s", problem.List(r.Unknown, "%.60q", ", ")))
	}
	if r.Mode == "open" && r.Retention == "purge" {
		warnings = append(warnings, "mode open with retention purge leaves no inputs to fetch once the deal has ended")
	}
	r.Params = canon.Encode(alg.Known(params)) // what the algorithm ignores would only fill the disk
	return newDeal(&store.Declaration{DealID: sealing.ID(dealPrefix), OwnerHash: p.keyHash, InputLimit: alg.InputLimit(params), Terms: r.Terms}, alg, params), warnings, nil
}

// pinBeacon adds the beacon round, with its chain and time, to the terms. A round that is published at
// or before the reveal deadline gets advice for the initiator, or a refusal (StrictBeacon, or an audience).
func (s *Service) pinBeacon(d *deal.Terms, params map[string]any) (advice []string, err error) {
	chain := s.beacon.Chain()
	round := params["beacon_round"].(int64) // CheckParams has checked that beacon_round is an integer
	at, first := chain.RoundTime(round), chain.RoundAt(d.RevealDeadline)+1
	d.ChainHash, d.BeaconRound, d.RoundTime = &chain.Hash, &round, &at
	switch {
	case at > d.RevealDeadline+deal.Longest:
		return nil, problem.New(problem.InvalidParams, "beacon_round %d is published more than a year after reveal_deadline %d; use round %d, the first after the deadline", round, d.RevealDeadline, first)
	case at > d.RevealDeadline:
		return nil, nil
	case s.options.StrictBeacon, d.Audience != "": // an audience takes a draw for chance
		return nil, problem.New(problem.InvalidParams, "beacon_round %d is published at %d, which is not after reveal_deadline %d, so whoever reveals last can choose the winner; use round %d or later", round, at, d.RevealDeadline, first)
	}
	return []string{fmt.Sprintf("use round %d or later as beacon_round", first)}, nil
}
