package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/timelock"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type verifyCommand struct {
	File     string   `arg:"" help:"Bundle or certificate file; '-' reads standard input."`
	Deal     string   `placeholder:"ID" help:"Require that the certificate is of this deal."`
	Pubkey   []string `placeholder:"KEY" help:"Trust all signatures of this key, es256:HEX or ed25519:HEX, instead of a key set; repeatable."`
	Keys     string   `placeholder:"FILE" help:"File with the key set: the answer of GET /v1/pubkeys or of GET /v1/status."`
	TreeHead string   `placeholder:"FILE" help:"For a certificate alone: file with the answer of GET /v1/log/tree-head?tree_size=N, where N is the tree_size in its log_proof."`
	BaseURL  string   `env:"FAIRPACT_URL" placeholder:"URL" help:"For a certificate alone: URL of the deployment, from which the command fetches what is not given as a file."`
	Policy   string   `placeholder:"FILE" help:"For a bundle: file with the trust policy (c2sp.org/tlog-policy). The quorum of its witnesses must have cosigned."`
	Inputs   string   `placeholder:"FILE" help:"File with a JSON array of {input, salt} in party order, to open the commitments and recompute the result."`
	Opening  []string `placeholder:"FILE" sep:"none" help:"File with the opening of one party, {deal_id, party, input, salt}, as its page or fairpactctl keeps it; repeatable."`
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
	of := decidedBy(cert, bundle)
	if v.Deal != "" {
		var wrong error
		if members, _ := cert.(map[string]any); members["deal_id"] != v.Deal {
			wrong = fmt.Errorf("the certificate is of deal %s, not of %s", of.DealID, v.Deal)
		}
		report.Add(checked("deal", wrong, "%s", v.Deal))
	}
	return t.verdict(of, report)
}

func (v verifyCommand) bundle(ctx context.Context, t *terminal, bundle map[string]any) (r verification.Report, err error) {
	if v.TreeHead+v.Params != "" {
		return r, errors.New("--tree-head and --params do not apply to a bundle, which holds both: leave them out")
	}
	trust := verification.Trust{}
	if trust.Known, err = v.known(t); err != nil {
		return r, err
	}
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
	return verification.VerifyBundle(bundle, trust), nil
}

func (v verifyCommand) alone(ctx context.Context, t *terminal, cert any) (r verification.Report, err error) {
	if v.Params != "" && v.Inputs == "" && len(v.Opening) == 0 {
		return r, errors.New("--params needs the inputs: give --inputs FILE or --opening FILE too")
	}
	e, err := v.evidence(ctx, t, cert)
	if err == nil && v.Params != "" {
		e.Params, err = t.object(v.Params)
	}
	if err != nil {
		return r, err
	}
	e.Beacon = true
	return verification.Verify(e), nil
}

// known returns what the arguments tell about the deal. It reads no keys of the deployment.
func (v verifyCommand) known(t *terminal) (known verification.Known, err error) {
	if v.Inputs != "" {
		rows, err := t.inputs(v.Inputs)
		if err != nil {
			return known, err
		}
		known.Lists = []any{rows}
	}
	for _, path := range v.Opening {
		opening, err := t.opening(path)
		if err != nil {
			return known, err
		}
		known.Files = append(known.Files, opening)
	}
	known.Parties, err = seatKeys(v.SeatKey)
	return known, err
}

// opening reads the opening of one party. The file may hold more members.
func (t *terminal) opening(path string) (o timelock.Opening, err error) {
	document, err := t.treeWithin(path, inputLevels)
	if err != nil {
		return o, err
	}
	members, _ := document.(map[string]any)
	id, named := members["deal_id"].(string)
	party, numbered := members["party"].(int64)
	input, held := members["input"].(map[string]any)
	salt, salted := members["salt"].(string)
	if !named || !numbered || party < 0 || !held || !salted && members["salt"] != nil {
		return o, fmt.Errorf("%s: not the opening of a party: give a file with the members deal_id, party, input and salt", path)
	}
	return timelock.Opening{DealID: id, Party: party, Input: input, Salt: salt}, nil
}

// evidence returns what is known about a certificate, with tree head and keys from files or the deployment.
func (v verifyCommand) evidence(ctx context.Context, t *terminal, cert any) (e verification.Evidence, err error) {
	if e.Known, err = v.known(t); err != nil {
		return e, err
	}
	e.Certificate = cert
	var source *httpclient.Client
	if v.TreeHead == "" || v.Keys == "" && len(v.Pubkey) == 0 {
		if v.BaseURL == "" {
			return e, errors.New("the tree head or the keys are missing: give --base-url, or --tree-head together with --keys or --pubkey")
		}
		if source, err = httpclient.New(v.BaseURL); err != nil {
			return e, err
		}
		if v.Keys == "" && len(v.Pubkey) == 0 {
			e.Issuer = v.BaseURL
		}
	}
	if v.TreeHead != "" {
		e.TreeHead, err = t.tree(v.TreeHead)
	} else {
		e.TreeHead, err = fetchHead(ctx, source, cert)
	}
	if err == nil {
		e.Keys, err = v.keys(ctx, t, source)
	}
	return e, err
}

// certificate returns the certificate in a file, which may be in a bundle. bundle is nil if the
// file holds a certificate alone.
func (t *terminal) certificate(path string) (cert any, bundle map[string]any, err error) {
	text, err := t.read(path)
	if err != nil {
		return nil, nil, err
	}
	given, err := canon.ParseWithin(text, inputLevels)
	if members, ok := given.(map[string]any); ok && members["bundle_version"] != nil {
		return members["certificate"], members, nil
	}
	if err == nil {
		cert, err = canon.Parse(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil, nil
}

// keys returns the keys that --pubkey names. Without --pubkey it returns the keys in the file
// of --keys, and without that file the keys that the deployment publishes.
func (v verifyCommand) keys(ctx context.Context, t *terminal, source *httpclient.Client) (keys.List, error) {
	if len(v.Pubkey) > 0 {
		return keys.Of(v.Pubkey...), nil
	}
	if v.Keys == "" {
		return fetchKeys(ctx, source)
	}
	document, err := t.tree(v.Keys)
	if err != nil {
		return nil, err
	}
	list, err := keys.ParsePublished(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: give the answer of GET /v1/pubkeys or GET /v1/status, not the file that FAIRPACT_KEY_SET_FILE names", v.Keys, err)
	}
	return list, nil
}

// fetchKeys returns the keys of /v1/pubkeys. It marks a development key, which only /v1/status
// declares.
func fetchKeys(ctx context.Context, from *httpclient.Client) (keys.List, error) {
	declared, err := fetchList(ctx, from, "/v1/status")
	if err != nil {
		return nil, err
	}
	list, err := fetchList(ctx, from, "/v1/pubkeys")
	for i := range list {
		list[i].Development = declared[0].Development && list[i].Label == declared[0].Label
	}
	return list, err
}

func fetchList(ctx context.Context, from *httpclient.Client, path string) (keys.List, error) {
	document, err := fetch(ctx, from, path)
	if err != nil {
		return nil, err
	}
	return keys.ParsePublished(document)
}

func fetch(ctx context.Context, from *httpclient.Client, path string) (any, error) {
	body, err := from.Get(ctx, path, "")
	if err != nil {
		return nil, err
	}
	v, err := canon.Parse(body)
	if err != nil {
		err = fmt.Errorf("the answer of %s is not strict JSON: %w", path, err)
	}
	return v, err
}

// fetchHead returns the tree head of the size in the certificate's proof. If the log has no
// head of that size, it returns the newest head. The size check then fails.
func fetchHead(ctx context.Context, from *httpclient.Client, cert any) (any, error) {
	newest, err := fetch(ctx, from, "/v1/log/tree-head")
	if err != nil {
		return nil, err
	}
	members, _ := cert.(map[string]any)
	proof, _ := members["log_proof"].(map[string]any)
	size, ok := proof["tree_size"].(int64)
	head, isHead := newest.(map[string]any)
	if !ok || !isHead || head["tree_size"] == any(size) {
		return newest, nil
	}
	older, err := fetch(ctx, from, fmt.Sprintf("/v1/log/tree-head?tree_size=%d", size))
	if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && refused.Status < 500 && refused.Status != 429 {
		return newest, nil
	}
	return older, err
}

// unreadable converts a httpclient.StatusError to a plain error, so that Main returns ExitUsage
// instead of ExitFailed. Evidence that cannot be fetched is not a failed check.
func unreadable(err error) error {
	if refused, ok := errors.AsType[*httpclient.StatusError](err); ok {
		return errors.New(refused.Error())
	}
	return err
}
