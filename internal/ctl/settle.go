package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// sealsFile is what settles a deal without the service. It holds no secret until the round of the seals,
// and all inputs after it.
type sealsFile struct {
	wire.SealTexts
	Declaration json.RawMessage `json:"declaration"`
	// Development is set if the seals are not for drand quicknet.
	Development *wire.BeaconChain `json:"development_beacon,omitempty"`
}

type sealsCommand struct {
	Out               string `required:"" placeholder:"FILE" help:"New file for the seals and the declaration."`
	DevelopmentBeacon bool   `help:"Accept a beacon chain other than drand quicknet."`
	partyFlags
}

func (c sealsCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
	if err != nil {
		return err
	}
	of, err := call.declaration(ctx)
	if err != nil {
		return err
	}
	chain, development, err := call.chain(ctx, of, c.DevelopmentBeacon)
	if err != nil {
		return err
	}
	file := sealsFile{Declaration: of.Declared, Development: development}
	if err := call.get(ctx, "/seals", &file.SealTexts); err != nil {
		return err
	}
	d := settlement{sealsFile: file, chain: chain}
	if err := d.parse(); err != nil {
		return refusal{err}
	}
	missing := d.check()
	text, err := json.Marshal(file)
	if err != nil {
		return err
	}
	if err := createSecretFile(c.Out, func() ([]byte, error) { return append(text, '\n'), nil }); err != nil {
		return err
	}
	if len(missing) > 0 {
		t.note("the file does not settle the deal alone, because it lacks a seal of party %s: to settle, add the opening of each with --opening", problem.List(missing, "%d", ", "))
	}
	return t.show(map[string]any{"seals_file": c.Out, "round": d.round, "opens_at": chain.RoundTime(d.round)}, "%s settles the deal from %s on, after round %d is published", c.Out, time.Unix(chain.RoundTime(d.round), 0).UTC().Format(time.RFC3339), d.round)
}

type settleCommand struct {
	File           string   `arg:"" help:"File that fairpactctl deal seals wrote."`
	Opening        []string `placeholder:"FILE" sep:"none" help:"Opening of a party whose seal is missing or does not open; repeatable."`
	RoundSignature string   `placeholder:"HEX" help:"Signature of the round that opens the seals, instead of --relay."`
	DrawSignature  string   `placeholder:"HEX" help:"Signature of the round of a random.v1 draw, instead of --relay."`
	relayFlags
}

type relayFlags struct {
	Relay []string `default:"https://api.drand.sh,https://drand.cloudflare.com" placeholder:"URL" help:"Relays of the beacon. No relay is trusted: each signature is verified."`
}

func (f relayFlags) client(chain drand.Chain) (*beacon.Client, error) {
	if err := beacon.CheckRelays(f.Relay); err != nil {
		return nil, err
	}
	return beacon.NewClient(chain, f.Relay), nil
}

// settled is the output of fairpactctl settle.
type settled struct {
	DealID      string          `json:"deal_id"`
	Declaration string          `json:"declaration_sha256"`
	Round       int64           `json:"round"`
	Commitments []string        `json:"commitments"`
	Result      json.RawMessage `json:"result"`   // null if a party rejected
	Rejected    []int           `json:"rejected"` // parties that rejected
	Certified   bool            `json:"certified"`
}

func (c settleCommand) Run(ctx context.Context, t *terminal) error {
	data, err := t.read(c.File)
	if err != nil {
		return err
	}
	var d settlement
	if json.Unmarshal(data, &d.sealsFile) != nil || d.DealID == "" || len(d.Declaration) == 0 {
		return fmt.Errorf("%s is not a seals file: give the file that fairpactctl deal seals wrote", c.File)
	}
	if d.chain, err = chainOf(d.Development); err != nil {
		return err
	}
	if d.chain.Hash != algorithm.Quicknet {
		t.note("the seals are for beacon chain %s, not for drand quicknet: whoever runs it could open them at any time", d.chain.Hash)
	}
	if err := d.parse(); err != nil {
		return err
	}
	relays, err := c.client(d.chain)
	if err != nil {
		return err
	}
	opens, err := d.signature(ctx, relays, d.round, c.RoundSignature)
	if err != nil {
		return err
	}
	for _, path := range c.Opening {
		o, err := t.opening(path)
		if err != nil {
			return err
		}
		if err := d.add(o); err != nil {
			return refusal{fmt.Errorf("%s: %w", path, err)}
		}
	}
	if err := d.open(opens); err != nil {
		return refusal{err}
	}
	var drawn *algorithm.Beacon
	if d.algorithm.NeedsBeacon {
		number := d.params["beacon_round"].(int64)
		signature, err := d.signature(ctx, relays, number, c.DrawSignature)
		if err != nil {
			return err
		}
		randomness, err := d.chain.Verify(number, signature)
		if err != nil {
			return refusal{err}
		}
		drawn = &algorithm.Beacon{ChainHash: d.chain.Hash, Round: number, Randomness: fmt.Sprintf("%x", randomness), Signature: fmt.Sprintf("%x", signature)}
	}
	out, err := d.compute(drawn)
	if err != nil {
		return refusal{err}
	}
	if d.chain.BeaconID == "" {
		t.note("nothing shows that the key in the file belongs to beacon chain %s: compare it with the key that you know", d.chain.Hash)
	}
	t.note("no certificate was issued: this result follows from the declaration, the commitments and the seals in the file. Compare declaration_sha256 and the commitments with those that other parties keep")
	return t.value(out)
}

// settlement computes the result of a deal from its seals.
type settlement struct {
	sealsFile
	chain     drand.Chain
	round     int64
	labels    []string
	params    map[string]any
	algorithm *algorithm.Algorithm
	inputs    []map[string]any // nil: not open yet
}

// parse reads the declaration and checks the form of the file.
func (d *settlement) parse() error {
	of, err := canon.ParseObject(d.Declaration)
	if err != nil {
		return fmt.Errorf("declaration: %w", err)
	}
	m := canon.MembersOf(of, "declaration.")
	name, params := m.Text("algorithm", "a text"), m.Object("algorithm_params", "an object")
	d.labels = m.Texts("party_labels", "an array of texts")
	deadline := m.Integer("commit_deadline", "an integer")
	if err := m.Err(); err != nil {
		return err
	}
	known := false
	if d.algorithm, known = algorithm.Lookup(name); !known {
		return fmt.Errorf("the algorithm %q is unknown to this program: use a newer one", name)
	}
	d.params = d.algorithm.Known(params)
	if _, err := d.algorithm.CheckParams(d.labels, d.params); err != nil {
		return err
	}
	if named := of["beacon_chain"]; named != nil && named != d.chain.Hash {
		return fmt.Errorf("the deal declares the beacon chain %v, but the seals are for %s", named, d.chain.Hash)
	}
	if len(d.Seals) != len(d.labels) {
		return fmt.Errorf("the file has %d seals for %d parties", len(d.Seals), len(d.labels))
	}
	for i, one := range d.Seals {
		if one.Party != i {
			return fmt.Errorf("the seals are not in party order: element %d is of party %d", i, one.Party)
		}
	}
	d.round, d.inputs = timelock.RoundOf(d.chain, deadline), make([]map[string]any, len(d.labels))
	return nil
}

// check returns the parties without a well-formed seal for the round.
func (d *settlement) check() (missing []int) {
	for i, one := range d.Seals {
		if one.Seal == nil {
			missing = append(missing, i)
		} else if _, err := timelock.Check(d.chain, *one.Seal, d.round, len(*one.Seal)); err != nil || one.Hash == nil || *one.Hash != timelock.Hash(*one.Seal) {
			missing = append(missing, i)
		}
	}
	return missing
}

// signature returns the verified signature of a round, given or from a relay.
func (d *settlement) signature(ctx context.Context, relays *beacon.Client, round int64, given string) ([]byte, error) {
	if given == "" {
		published, err := relays.Fetch(ctx, round)
		if err != nil {
			return nil, fmt.Errorf("round %d, which is due at %d: %w", round, d.chain.RoundTime(round), err)
		}
		given = published.Signature
	}
	raw, err := canon.ParseHex(given, len(given)/2)
	if err == nil {
		_, err = d.chain.Verify(round, raw)
	}
	if err != nil {
		return nil, fmt.Errorf("the signature of round %d: %w", round, err)
	}
	return raw, nil
}

// add takes an opening, if it opens its party's commitment.
func (d *settlement) add(o timelock.Opening) error {
	if o.Party < 0 || o.Party >= int64(len(d.Seals)) {
		return fmt.Errorf("there is no party %d in the deal", o.Party)
	}
	if _, _, err := o.Reveal(d.DealID, o.Party, d.Seals[o.Party].Commitment); err != nil {
		return err
	}
	return d.take(o)
}

// take stores the input of an opening that opens its party's commitment.
func (d *settlement) take(o timelock.Opening) error {
	if err := d.algorithm.CheckInput(d.labels, d.params, o.Input, d.algorithm.MaxInput); err != nil {
		return fmt.Errorf("the input of party %d does not fit the algorithm: %w", o.Party, err)
	}
	d.inputs[o.Party] = d.algorithm.KnownInput(o.Input)
	return nil
}

// open opens the seals of the parties whose opening was not given.
func (d *settlement) open(signature []byte) error {
	key, err := timelock.NewKey(d.chain, d.round, signature)
	if err != nil {
		return err
	}
	for i, one := range d.Seals {
		if d.inputs[i] != nil {
			continue
		}
		if one.Seal == nil {
			return fmt.Errorf("the file has no seal of party %d: give its opening with --opening FILE", i)
		}
		o, _, _, err := key.Reveal(*one.Seal, d.DealID, int64(i), one.Commitment)
		if err == nil {
			err = d.take(o)
		}
		if err != nil {
			return fmt.Errorf("the seal of party %d does not open to its commitment: %w. If the party revealed by hand, give its opening with --opening FILE", i, err)
		}
	}
	return nil
}

func (d *settlement) compute(drawn *algorithm.Beacon) (out settled, err error) {
	of, err := canon.ParseObject(d.Declaration)
	if err != nil {
		return out, err
	}
	out = settled{DealID: d.DealID, Declaration: certificate.DeclarationDigest(canon.Encode(of)), Round: d.round, Rejected: []int{}}
	for _, one := range d.Seals {
		out.Commitments = append(out.Commitments, one.Commitment)
	}
	for i, input := range d.inputs {
		if d.algorithm.Rejects(input) {
			out.Rejected = append(out.Rejected, i)
		}
	}
	out.Result, err = d.algorithm.Compute(slices.Clone(d.labels), d.params, d.inputs, drawn)
	if errors.Is(err, algorithm.ErrRejected) {
		out.Result, err = json.RawMessage("null"), nil
	}
	return out, err
}

// chainOf returns drand quicknet, or the chain given instead. The hash of quicknet always means the built-in key, and a chain
// given with what its hash is made of must have that hash. Without it, the chain is not Bound.
func chainOf(given *wire.BeaconChain) (drand.Chain, error) {
	if given == nil || given.Hash == algorithm.Quicknet {
		return drand.Quicknet(), nil
	}
	chain, err := drand.ParseChain(given.Hash, given.PublicKey, given.Period, given.Genesis)
	if err == nil && given.Seed+given.ID != "" {
		chain, err = chain.Bound(given.Seed, given.ID)
	}
	return chain, err
}

// chain returns drand quicknet, or the chain that the deployment uses if that is accepted.
func (c *call) chain(ctx context.Context, of terms, development bool) (chain drand.Chain, served *wire.BeaconChain, err error) {
	var answer wire.Beacon
	if err := c.client.GetInto(ctx, "/v1/beacon", "", &answer); err != nil {
		return chain, nil, err
	}
	chain = drand.Quicknet()
	switch {
	case of.chain != nil && of.chain != answer.Hash:
		return chain, nil, refusal{fmt.Errorf("the deal declares the beacon chain %v, but the deployment uses %s", of.chain, answer.Hash)}
	case answer.Hash == chain.Hash:
		return chain, nil, nil
	case !development:
		return chain, nil, refusal{fmt.Errorf("the deployment uses the beacon chain %s, not drand quicknet: its operator may be able to open seals at any time. If this is a development deployment, give --development-beacon", answer.Hash)}
	}
	if chain, err = chainOf(&answer.BeaconChain); err != nil {
		return chain, nil, fmt.Errorf("GET /v1/beacon: %w", err)
	}
	return chain, &answer.BeaconChain, nil
}
