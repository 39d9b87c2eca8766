package ctl

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type verifyCommand struct {
	File     string   `arg:"" help:"Bundle or certificate file; '-' reads standard input."`
	Pubkey   []string `placeholder:"KEY" help:"Trust all signatures of this key, es256:HEX or ed25519:HEX, instead of a key set; repeatable."`
	Keys     string   `placeholder:"FILE" help:"File with the key set: the answer of GET /v1/pubkeys or of GET /v1/status."`
	TreeHead string   `placeholder:"FILE" help:"For a certificate alone: file with the answer of GET /v1/log/tree-head?tree_size=N, where N is the tree_size in its log_proof."`
	BaseURL  string   `env:"FAIRPACT_URL" placeholder:"URL" help:"For a certificate alone: URL of the deployment, from which the command fetches what is not given as a file."`
	Policy   string   `placeholder:"FILE" help:"For a bundle: file with the trust policy (c2sp.org/tlog-policy). The quorum of its witnesses must have cosigned."`
	Inputs   string   `placeholder:"FILE" help:"File with a JSON array of {input, salt} in party order, to open the commitments and recompute the result."`
	Params   string   `placeholder:"FILE" help:"For a certificate alone: file with algorithm_params of the deal, which the result needs. A bundle holds them."`
	SeatKey  []string `placeholder:"N=KEY" help:"Require that this seat key, es256:HEX or ed25519:HEX, signed the commitment of party N; repeatable."`
}

func (v verifyCommand) Run(ctx context.Context, t *terminal) error {
	cert, bundle, err := t.certificate(v.File)
	if err != nil {
		return err
	}
	var report verification.Report
	switch {
	case bundle != nil:
		report, err = v.bundle(ctx, t, bundle)
	case v.Policy != "":
		err = errors.New("--policy needs a bundle, because a certificate alone has no checkpoint: verify the bundle, or leave --policy out")
	default:
		report, err = v.alone(ctx, t, cert)
	}
	if err != nil {
		return unreadable(err)
	}
	return t.report(report, report, notProven(report)...)
}

// verifyBundle makes the checks of a bundle, including the beacon's signature.
func verifyBundle(bundle any, trust verification.Trust) verification.Report {
	report := verification.VerifyBundle(bundle, trust)
	members, _ := bundle.(map[string]any)
	chain, _ := members["beacon"].(map[string]any)
	checkBeacon(&report, members["certificate"], chain)
	return report
}

func (v verifyCommand) bundle(ctx context.Context, t *terminal, bundle map[string]any) (r verification.Report, err error) {
	if v.TreeHead+v.Params != "" {
		return r, errors.New("--tree-head and --params do not apply to a bundle, which holds both: leave them out")
	}
	trust := verification.Trust{}
	if v.Policy != "" {
		if trust.Policy, err = (logTrust{Policy: v.Policy}).read(t); err != nil {
			return r, err
		}
	}
	if v.Keys != "" || len(v.Pubkey) > 0 {
		if trust.Keys, err = v.keys(ctx, t, nil); err != nil {
			return r, err
		}
	}
	if trust.Inputs, trust.Parties, err = v.known(t); err != nil {
		return r, err
	}
	return verifyBundle(bundle, trust), nil
}

func (v verifyCommand) alone(ctx context.Context, t *terminal, cert any) (r verification.Report, err error) {
	if v.Params != "" && v.Inputs == "" {
		return r, errors.New("--params needs the inputs: give --inputs FILE too")
	}
	e, err := v.evidence(ctx, t, cert)
	if err != nil {
		return r, err
	}
	if e.Inputs, e.Parties, err = v.known(t); err == nil && v.Params != "" {
		e.Params, err = t.object(v.Params)
	}
	if err != nil {
		return r, err
	}
	r = verification.Verify(e)
	checkBeacon(&r, cert, nil)
	return r, nil
}

func (v verifyCommand) known(t *terminal) (inputs any, keys map[int]string, err error) {
	if v.Inputs != "" {
		if inputs, err = t.inputs(v.Inputs); err != nil {
			return nil, nil, err
		}
	}
	keys, err = seatKeys(v.SeatKey)
	return inputs, keys, err
}

// checkBeacon adds a check of the beacon's signature to the report: under the pinned key of drand
// quicknet, or for another chain under the key in `given`, the bundle's member `beacon`. It adds
// nothing if the evidence is malformed, has no draw, or the key is not known.
func checkBeacon(report *verification.Report, cert any, given map[string]any) {
	for _, check := range report.Checks {
		if (check.Name == verification.Shape || check.Name == verification.BundleShape) && !check.OK {
			return
		}
	}
	var c struct {
		Algorithm, Outcome string
		Result             struct{ Beacon algorithm.Beacon }
	}
	if json.Unmarshal(canon.Encode(cert), &c) != nil || c.Outcome != certificate.Computed {
		return
	}
	if a, ok := algorithm.Lookup(c.Algorithm); !ok || !a.NeedsBeacon {
		return
	}
	drawn := c.Result.Beacon
	chain, name := beacon.Quicknet(), "drand quicknet"
	var err error
	switch {
	case drawn.ChainHash == chain.Hash && given != nil && given["public_key"] != hex.EncodeToString(chain.PublicKey):
		err = errors.New("the beacon key in the bundle is not the key of drand quicknet")
	case drawn.ChainHash == chain.Hash:
	case given == nil:
		return
	default:
		key, _ := given["public_key"].(string)
		period, _ := given["period"].(int64)
		genesis, _ := given["genesis_time"].(int64)
		chain, err = beacon.ParseChain(drawn.ChainHash, key, period, genesis)
		name = "the chain of the bundle, checked with the key in the bundle,"
	}
	if err == nil {
		var raw []byte
		if raw, err = hex.DecodeString(drawn.Signature); err == nil {
			_, err = chain.Verify(drawn.Round, raw)
		}
	}
	report.Add(checked("beacon_signature", err, "%s signed round %d", name, drawn.Round))
}
