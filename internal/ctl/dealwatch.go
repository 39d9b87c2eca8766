package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

type watchCommand struct {
	eitherFlags
	Timeout time.Duration `help:"Give up after this time; 0: never."`
}

func (c watchCommand) Run(ctx context.Context, t *terminal) error {
	call, err := c.call(t)
	if err != nil {
		return err
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, refusal{fmt.Errorf("the deal has not ended within %s, or its certificate is not published yet: watch again, or give a longer --timeout", c.Timeout)})
		defer cancel()
	}
	body, err := call.watch(ctx, t)
	if err != nil {
		return cause(ctx, err)
	}
	return t.answer(body)
}

// longestWait is the longest ?wait= that the service accepts.
const longestWait = 45 * time.Second

// watch notes each change of the deal until it has ended, and returns the last answer.
func (c *call) watch(ctx context.Context, t *terminal) ([]byte, error) {
	for last := ""; ; {
		body, tag, err := c.client.Follow(ctx, c.path(""), c.token, last, longestWait)
		var view wire.View
		if err == nil {
			err = json.Unmarshal(body, &view)
		}
		switch {
		case err != nil:
			return nil, err
		case tag != last:
			t.note("%s", progressLine(view, time.Now()))
		default:
			// A service that is stopping answers at once, so limit the rate of requests.
			if err := httpclient.Pause(ctx, time.Second); err != nil {
				return nil, err
			}
		}
		if ended(view) {
			return body, nil
		}
		last = tag
	}
}

// cause returns the cause of ctx once ctx has ended, unless err wraps it: err may say no more than
// "context deadline exceeded".
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return context.Cause(ctx)
	}
	return err
}

// ended reports whether the deal has ended and its certificate is published. An EXPIRED or
// CANCELLED deal gets no certificate, so its state alone decides.
func ended(v wire.View) bool {
	switch v.State {
	case "COMPUTED", "CERTIFIED", "VOID":
		return v.CertificateID != nil
	}
	return v.State == "EXPIRED" || v.State == "CANCELLED"
}

func progressLine(v wire.View, now time.Time) string {
	committed, revealed := 0, 0
	for _, p := range v.Parties {
		if p.Committed {
			committed++
		}
		if p.Revealed {
			revealed++
		}
	}
	parts := []string{v.State, fmt.Sprintf("%d/%d committed", committed, len(v.Parties)), fmt.Sprintf("%d/%d revealed", revealed, len(v.Parties))}
	left := func(deadline int64) string {
		return max(time.Unix(deadline, 0).Sub(now), 0).Truncate(time.Second).String()
	}
	switch {
	case v.State == "OPEN" || v.State == "COMMITTING":
		parts = append(parts, left(v.CommitDeadline)+" left to commit")
	case v.State == "REVEALING" && revealed < len(v.Parties):
		parts = append(parts, left(v.RevealDeadline)+" left to reveal")
	case v.State == "REVEALING":
		parts = append(parts, "waiting for the beacon")
	case (v.State == "COMPUTED" || v.State == "VOID") && v.CertificateID == nil:
		parts = append(parts, "certificate pending")
	}
	return strings.Join(parts, "  ")
}

type certificateCommand struct {
	partyFlags
	Out    string `placeholder:"FILE" help:"New file for the bundle. Default: standard output."`
	Large  bool   `help:"Include the inputs of all parties, if you may see them, even if they take more than 4 MiB."`
	Sealed string `placeholder:"FILE" help:"Your sealed file. The command puts its input and salt into the bundle, and does not send them."`
}

func (c certificateCommand) Run(ctx context.Context, t *terminal) error {
	// The service returns a bundle only for an invite token, so the initiator uses that of party 0.
	if c.Party == nil && c.Token == "" && c.TokenFile == "" {
		if s, err := c.load(t); err == nil && len(s.Invites) > 1 {
			c.Party = &s.Invites[0].Party
		}
	}
	var mine sealed
	if c.Sealed != "" {
		var err error
		if mine, err = t.sealed(c.Sealed); err != nil {
			return err
		}
	}
	call, err := c.call(t)
	if err != nil {
		return err
	}
	path := "/bundle"
	if c.Large {
		path += "?openings=1"
	}
	fetch := func() ([]byte, error) {
		text, err := call.bundle(ctx, t, path)
		if err != nil {
			return nil, err
		}
		whole, err := withInput(t, text, mine)
		return append(whole, '\n'), err
	}
	if c.Out != "" {
		return createSecretFile(c.Out, fetch)
	}
	text, err := fetch()
	if err == nil {
		_, err = t.out.Write(text)
	}
	return err
}

// bundle fetches the bundle. It waits up to 5 s for a checkpoint that covers the certificate,
// because the log signs at most one checkpoint a second. It prints what the bundle lacks.
func (c *call) bundle(ctx context.Context, t *terminal, path string) (text json.RawMessage, err error) {
	var status struct {
		Origin *string
		Quorum bool
	}
	if err := c.client.GetInto(ctx, "/v1/log/status", "", &status); err != nil {
		return nil, err
	}
	var bundle wire.Bundle
	for try := 0; ; try++ {
		if err := c.get(ctx, path, &text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &bundle); err != nil {
			return nil, fmt.Errorf("the service's answer to %s is not a bundle: %w", c.path("/bundle"), err)
		}
		var of struct {
			DealID string `json:"deal_id"`
		}
		if err := json.Unmarshal(bundle.Certificate, &of); err != nil || of.DealID != c.dealID {
			return nil, refusal{fmt.Errorf("the service's answer to %s is the bundle of the deal %.100q", c.path("/bundle"), of.DealID)}
		}
		if bundle.LogProof != "" || status.Origin == nil || try == 10 {
			break
		}
		if err := httpclient.Pause(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
	switch {
	case bundle.LogProof != "" && status.Quorum:
		return text, c.noteQuorum(ctx, t, bundle.LogProof)
	case bundle.LogProof == "" && status.Origin != nil:
		t.note("missing in the bundle: log_proof, because no checkpoint covers the certificate yet; fetch the bundle again in a few seconds")
	case bundle.LogProof == "":
		t.note("missing in the bundle: log_proof, because the log publishes no checkpoints")
	}
	return text, nil
}

// noteQuorum prints a note if logProof lacks the quorum that the deployment's policy requires.
func (c *call) noteQuorum(ctx context.Context, t *terminal, logProof string) error {
	text, err := c.client.Get(ctx, "/v1/log/policy", "")
	if err != nil {
		return err
	}
	policy, err := checkpoint.ParsePolicy(text)
	if err != nil {
		return fmt.Errorf("cannot parse the witness policy that /v1/log/policy returned: %w", err)
	}
	proof, err := checkpoint.ParseProof([]byte(logProof))
	if err != nil {
		return fmt.Errorf("cannot parse log_proof of the bundle: %w", err)
	}
	if _, _, err := policy.Verify(proof.Note); err != nil {
		t.note("missing in the bundle: a quorum of witnesses (%v); fetch the bundle again when the deal is CERTIFIED, or in a minute if the deal is VOID", err)
	}
	return nil
}

// withInput returns the bundle with the party's own input and salt in own_input. It refuses
// an input that does not open the party's commitment. If the bundle has no own_input, or `mine`
// is empty, it prints a note and returns the bundle unchanged.
func withInput(t *terminal, text []byte, mine sealed) ([]byte, error) {
	given, err := canon.ParseWithin(text, inputLevels)
	bundle, ok := given.(map[string]any)
	if err != nil || !ok {
		return nil, fmt.Errorf("cannot parse the bundle: %w", cmp.Or(err, errors.New("it is not a JSON object")))
	}
	own, revealed := bundle["own_input"].(map[string]any)
	switch {
	case !revealed:
		t.note("missing in the bundle: your input, because you did not reveal it or the deal has purged all inputs")
		return text, nil
	case mine.members == nil:
		t.note("missing in the bundle: your input and salt; add them with --sealed FILE")
		return text, nil
	}
	cert, _ := bundle["certificate"].(map[string]any)
	parties, _ := cert["parties"].([]any)
	party, ok := own["party"].(int64)
	if !ok || party < 0 || party >= int64(len(parties)) {
		return nil, fmt.Errorf("own_input.party of the bundle is %v, but the certificate has %d parties, numbered from 0", own["party"], len(parties))
	}
	seat, _ := parties[party].(map[string]any)
	commitment, _ := seat["commitment"].(string)
	if _, opens := canon.Open(commitment, mine.canonical, mine.salt); !opens {
		return nil, refusal{fmt.Errorf("the sealed file does not open the commitment of party %d: give the sealed file of the input that this party committed in this deal", party)}
	}
	own["input"], own["salt"] = mine.members, mine.salt
	return canon.Encode(bundle), nil
}
