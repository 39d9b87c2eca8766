package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/checkpoint"
)

// bundle writes the bundle, its log proof, or both to files. It waits up to 5 s for a
// checkpoint that covers the certificate, because the log signs at most one checkpoint a
// second.
func (c certificateCommand) bundle(ctx context.Context, t *terminal, call *call) error {
	var mine *sealed
	if c.Sealed != "" {
		s, err := t.sealed(c.Sealed)
		if err != nil {
			return err
		}
		mine = &s
	}
	var status struct {
		Origin *string
		Quorum bool
	}
	body, err := call.client.Get(ctx, "/v1/log/status", "")
	if err == nil {
		err = json.Unmarshal(body, &status)
	}
	if err != nil {
		return err
	}
	var text []byte
	var bundle struct {
		LogProof string `json:"log_proof"`
	}
	for try := 0; ; try++ {
		if text, err = call.client.Get(ctx, call.path("/bundle"), call.token); err != nil {
			return err
		}
		if err := json.Unmarshal(text, &bundle); err != nil {
			return fmt.Errorf("the service's answer to %s is not a bundle: %w", call.path("/bundle"), err)
		}
		if bundle.LogProof != "" || status.Origin == nil || try == checkpointTries {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(checkpointWait):
		}
	}
	if c.Bundle != "" {
		if text, err = withInput(t, text, mine); err != nil {
			return err
		}
		if err := os.WriteFile(c.Bundle, append(text, '\n'), 0o600); err != nil {
			return err
		}
		switch {
		case bundle.LogProof != "" && status.Quorum:
			if err := noteQuorum(ctx, t, call, bundle.LogProof); err != nil {
				return err
			}
		case bundle.LogProof == "" && status.Origin != nil:
			t.note("missing in the bundle: log_proof, because no checkpoint covers the certificate yet; fetch the bundle again in a few seconds")
		case bundle.LogProof == "":
			t.note("missing in the bundle: log_proof, because the log publishes no checkpoints")
		}
	}
	switch {
	case c.LogProof == "":
		return nil
	case bundle.LogProof == "":
		return refusal{errors.New("the service returned a bundle without log_proof. If GET /v1/log/status returns a null origin, the log publishes no checkpoints. Otherwise no checkpoint covers the certificate yet: try again in a few seconds")}
	}
	return os.WriteFile(c.LogProof, []byte(bundle.LogProof), 0o644) // #nosec G306 -- public evidence
}

const (
	checkpointTries = 10
	checkpointWait  = 500 * time.Millisecond
)

// noteQuorum prints a note if the checkpoint in logProof lacks the quorum of witnesses that
// the deployment's published policy requires.
func noteQuorum(ctx context.Context, t *terminal, call *call, logProof string) error {
	text, err := call.client.Get(ctx, "/v1/log/policy", "")
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
// an input that does not open the party's commitment. If the bundle has no own_input, or if
// the parameter `mine` is nil, it prints a note and returns the bundle unchanged.
func withInput(t *terminal, text []byte, mine *sealed) ([]byte, error) {
	var bundle, own map[string]json.RawMessage
	if err := json.Unmarshal(text, &bundle); err != nil {
		return nil, fmt.Errorf("cannot parse the bundle: %w", err)
	}
	switch {
	case bundle["own_input"] == nil:
		t.note("missing in the bundle: your input, because you did not reveal it or the deal has purged all inputs")
		return text, nil
	case mine == nil:
		t.note("missing in the bundle: your input and salt; add them with --sealed FILE")
		return text, nil
	}
	var place struct{ Party int }
	var cert struct {
		Parties []struct{ Commitment *string }
	}
	err := json.Unmarshal(bundle["own_input"], &own)
	if err == nil {
		err = json.Unmarshal(bundle["own_input"], &place)
	}
	if err == nil {
		err = json.Unmarshal(bundle["certificate"], &cert)
	}
	if err != nil || place.Party < 0 || place.Party >= len(cert.Parties) {
		return nil, fmt.Errorf("own_input.party of the bundle is %d, but the certificate has %d parties, numbered from 0", place.Party, len(cert.Parties))
	}
	opens := false
	if of := cert.Parties[place.Party].Commitment; of != nil {
		_, opens = canon.Open(*of, mine.canonical, mine.salt)
	}
	if !opens {
		return nil, refusal{fmt.Errorf("the sealed file does not open the commitment of party %d: give the sealed file of the input that this party committed in this deal", place.Party)}
	}
	own["input"] = mine.canonical
	if own["salt"], err = json.Marshal(mine.salt); err == nil {
		bundle["own_input"], err = json.Marshal(own)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(bundle)
}
