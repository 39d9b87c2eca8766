package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// sealed is the content of a sealed file, which fairpactctl seal --out writes. members is
// the parsed input, and canonical is its RFC 8785 form.
type sealed struct {
	members   map[string]any
	canonical []byte
	salt      string
}

func (t *terminal) sealed(path string) (s sealed, err error) {
	rows, err := t.read(path)
	if err != nil {
		return s, err
	}
	file, err := canon.ParseObject(rows)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	input, ok := file["input"].(map[string]any)
	salt, text := file["salt"].(string)
	if !ok || !text || len(file) != 2 {
		return s, fmt.Errorf("%s is not a sealed file of the form {\"input\": {…}, \"salt\": \"…\"}: make one with fairpactctl seal INPUT --out FILE", path)
	}
	return sealed{input, canon.Encode(input), salt}, nil
}

type commitCommand struct {
	Sealed  string `arg:"" help:"Sealed file that fairpactctl seal --out wrote."`
	SeatKey string `placeholder:"FILE" help:"File with the seat key that signs the commitment (see fairpactctl seat-key)."`
	Origin  string `placeholder:"URL" help:"With --seat-key: the public URL of the deployment, if you reach the deployment under another URL."`
	partyFlags
}

func (c commitCommand) Run(ctx context.Context, t *terminal) error {
	mine, err := t.sealed(c.Sealed)
	if err != nil {
		return err
	}
	call, err := c.asParty(t)
	if err != nil {
		return err
	}
	commitment := canon.Commitment(mine.canonical, []byte(mine.salt))
	if c.SeatKey == "" {
		if err := call.fits(ctx, mine.members); err != nil {
			return err
		}
		return call.post(ctx, t, "/commit", map[string]string{"commitment": commitment})
	}
	of, err := call.declaration(ctx)
	if err != nil {
		return err
	}
	if known := cmp.Or(c.Origin, call.client.BaseURL()); of.origin != known {
		return refusal{fmt.Errorf("the expected public URL is %s, but the deployment says that its public URL is %s: if the deployment is right, give --origin %s", known, of.origin, of.origin)}
	}
	if err := fits(of.algorithm, of.params, of.labels, mine.members); err != nil {
		return err
	}
	signed, err := of.sign(c.SeatKey, commitment)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/commit", signed)
}

// fits fetches the deal and checks an input by the rules that will apply to its reveal.
func (c *call) fits(ctx context.Context, input map[string]any) error {
	body, err := c.client.Get(ctx, c.path(""), c.token)
	if err != nil {
		return err
	}
	var view struct {
		Algorithm string
		Params    json.RawMessage `json:"algorithm_params"`
		Parties   []struct{ Label string }
	}
	if err := json.Unmarshal(body, &view); err != nil {
		return fmt.Errorf("cannot parse the view of deal %s: %w", c.dealID, err)
	}
	params, err := canon.ParseObject(view.Params)
	if err != nil {
		return fmt.Errorf("cannot parse algorithm_params of deal %s: %w", c.dealID, err)
	}
	labels := make([]string, len(view.Parties))
	for i, p := range view.Parties {
		labels[i] = p.Label
	}
	return fits(view.Algorithm, params, labels, input)
}

func fits(algorithmID string, params map[string]any, labels []string, input map[string]any) error {
	a, known := algorithm.Lookup(algorithmID)
	if !known {
		return nil // the service is newer than fairpactctl, and checks the input at the reveal
	}
	if err := a.CheckInput(labels, params, input); err != nil {
		return refusal{fmt.Errorf("the commitment was not sent, because the reveal of this input would be refused: %w", err)}
	}
	return nil
}

type revealCommand struct {
	Sealed string `arg:"" help:"The sealed file that you committed with."`
	partyFlags
}

func (c revealCommand) Run(ctx context.Context, t *terminal) error {
	mine, err := t.sealed(c.Sealed)
	if err != nil {
		return err
	}
	call, err := c.asParty(t)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/reveal", sealedFile{mine.canonical, mine.salt})
}

type statusCommand struct{ readFlags }

// readFlags holds the flags of a command that both a party and the initiator may run.
type readFlags struct {
	partyFlags
	initiatorFlags
}

func (r readFlags) call(t *terminal) (*call, error) {
	s, err := r.load(t)
	if err != nil {
		return nil, err
	}
	credential, err := r.credential(t, s)
	if err != nil {
		return nil, err
	}
	return s.call(credential)
}

func (r readFlags) credential(t *terminal, s state) (string, error) {
	if token, err := t.secretOf(r.Token, r.TokenFile); err != nil || token != "" {
		return token, err
	}
	if r.Party != nil {
		return s.token(r.Party)
	}
	if key, err := r.key(t, s); err != nil || key != "" {
		return key, err
	}
	return s.token(nil)
}

func (c statusCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.readFlags.call(t)
	if err != nil {
		return err
	}
	body, err := call.client.Get(ctx, call.path(""), call.token)
	if err != nil {
		return err
	}
	return t.answer(body)
}

type drawCommand struct{ readFlags }

func (c drawCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.readFlags.call(t)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/entropy", nil)
}

type cancelCommand struct {
	dealFlags
	initiatorFlags
}

func (c cancelCommand) Run(ctx context.Context, t *terminal) error {
	s, err := c.load(t)
	if err != nil {
		return err
	}
	key, err := c.key(t, s)
	if err == nil && key == "" {
		err = errors.New("no API key: give --state, --api-key-file or FAIRPACT_API_KEY")
	}
	if err != nil {
		return err
	}
	call, err := s.call(key)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/cancel", nil)
}

type certificateCommand struct {
	partyFlags
	Out      string `placeholder:"FILE" help:"File for the certificate. Default: standard output."`
	Bundle   string `placeholder:"FILE" help:"File for the bundle, which proves the certificate offline."`
	Sealed   string `placeholder:"FILE" help:"Your sealed file. The command puts its input and salt into the bundle, and does not send them."`
	LogProof string `name:"tlog-proof" placeholder:"FILE" help:"File for the proof of inclusion under a checkpoint (c2sp.org/tlog-proof)."`
	TreeHead string `placeholder:"FILE" help:"File for the signed tree head of the proof."`
	Keys     string `placeholder:"FILE" help:"File for the key set, which states the verifying keys and what each key may sign."`
	Status   string `placeholder:"FILE" help:"File for the service status, which states the verifying keys but not what each key may sign."`
}

func (c certificateCommand) Run(ctx context.Context, t *terminal) error {
	if c.Sealed != "" && c.Bundle == "" {
		return errors.New("--sealed puts the input into a bundle: give --bundle FILE too")
	}
	// The service returns a certificate only for an invite token. The initiator's state file
	// holds all tokens, so the initiator uses the token of party 0.
	if c.Party == nil && c.Token == "" && c.TokenFile == "" {
		if s, err := c.load(t); err == nil && len(s.Invites) > 1 {
			c.Party = &s.Invites[0].Party
		}
	}
	call, err := c.asParty(t)
	if err != nil {
		return err
	}
	if c.Bundle != "" || c.LogProof != "" {
		if err := c.bundle(ctx, t, call); err != nil {
			return err
		}
		if c.Out+c.TreeHead+c.Keys+c.Status == "" {
			return nil
		}
	}
	cert, err := call.client.Get(ctx, call.path("/certificate"), call.token)
	if err != nil {
		return err
	}
	var proof struct {
		LogProof struct {
			TreeSize int64 `json:"tree_size"`
		} `json:"log_proof"`
	}
	if err := json.Unmarshal(cert, &proof); err != nil {
		return fmt.Errorf("cannot parse the certificate of deal %s: %w", call.dealID, err)
	}
	for _, evidence := range []struct{ path, file string }{
		{fmt.Sprintf("/v1/log/tree-head?tree_size=%d", proof.LogProof.TreeSize), c.TreeHead}, {"/v1/pubkeys", c.Keys}, {"/v1/status", c.Status},
	} {
		if evidence.file == "" {
			continue
		}
		body, err := call.client.Get(ctx, evidence.path, "")
		if err == nil {
			err = os.WriteFile(evidence.file, append(body, '\n'), 0o644) // #nosec G306 -- public evidence
		}
		if err != nil {
			return err
		}
	}
	if c.Out != "" {
		return os.WriteFile(c.Out, append(cert, '\n'), 0o600)
	}
	_, err = fmt.Fprintln(t.out, string(cert))
	return err
}
