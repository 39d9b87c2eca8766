package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/algorithm"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

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
	call, err := c.call(t)
	if err != nil {
		return err
	}
	of, err := call.declaration(ctx)
	if err != nil {
		return err
	}
	if known := cmp.Or(c.Origin, call.client.BaseURL()); c.SeatKey != "" && of.Origin != nil && *of.Origin != known {
		return refusal{fmt.Errorf("the expected public URL is %s, but the deployment says that its public URL is %s: if the deployment is right, give --origin %s", known, *of.Origin, *of.Origin)}
	}
	// A newer service may have an algorithm that is unknown here; it checks the input at the reveal.
	if a, known := algorithm.Lookup(of.algorithm); known {
		if err := a.CheckInput(of.labels, of.params, mine.members); err != nil {
			return refusal{fmt.Errorf("the commitment was not sent, because the reveal of this input would be refused: %w", err)}
		}
	}
	request := commitment{Commitment: canon.Commitment(mine.canonical, []byte(mine.salt))}
	if c.SeatKey != "" {
		if request, err = of.sign(c.SeatKey, request.Commitment); err != nil {
			return err
		}
	}
	return call.post(ctx, t, "/commit", request)
}

type commitment struct {
	Commitment string `json:"commitment"`
	Key        string `json:"party_key,omitempty"`
	Signature  string `json:"party_signature,omitempty"`
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
	call, err := c.call(t)
	if err != nil {
		return err
	}
	return call.post(ctx, t, "/reveal", sealedFile{mine.canonical, mine.salt})
}

type statusCommand struct{ eitherFlags }

func (c statusCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
	if err != nil {
		return err
	}
	var view json.RawMessage
	if err := call.get(ctx, "", &view); err != nil {
		return err
	}
	return t.answer(view)
}

type drawCommand struct{ eitherFlags }

func (c drawCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
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
