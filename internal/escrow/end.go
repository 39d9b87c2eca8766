package escrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// errMoved means that a deal changed while an ending was worked out.
var errMoved = errors.New("escrow: the deal moved on")

// endDeal takes a step that ends a deal and issues its certificate, and returns
// the deal as it then stands. now is the deal with what the step needs, nil where
// the caller has not read it. It returns errMoved where somebody else took a step
// first. Calls that meet the same step at the same moment take it once.
func (s *Service) endDeal(ctx context.Context, d *Deal, step deal.Step, drawn *algorithm.Beacon, now *store.Snapshot) (*store.Snapshot, error) {
	ended, err, _ := s.steps.Do(fmt.Sprint(d.DealID, " ", step), func() (any, error) {
		ctx, cancel := detached(ctx)
		defer cancel()
		return s.endOnce(ctx, d, step, drawn, now)
	})
	if err != nil {
		return nil, err
	}
	return ended.(*store.Snapshot), nil
}

func (s *Service) endOnce(ctx context.Context, d *Deal, step deal.Step, drawn *algorithm.Beacon, now *store.Snapshot) (*store.Snapshot, error) {
	if now == nil {
		want := store.Attested(len(d.Labels))
		if step == deal.Compute || step == deal.Draw {
			want = store.WithInputs
		}
		var err error
		if now, err = s.store.Snapshot(ctx, d.DealID, want); err != nil {
			return nil, err
		}
	}
	rules := s.rules(d, now)
	rules.Unopened = step == deal.Expire // its caller has tried to draw or compute
	if drawn == nil && rules.Next(now.Now) != step || drawn != nil && !rules.AllRevealed() {
		return nil, errMoved
	}
	e, err := s.ending(d, now, step, drawn)
	if err != nil {
		return nil, err
	}
	crash.Point("escrow.before-end")
	done, err := s.store.End(ctx, e)
	if err != nil {
		return nil, err
	}
	if !done {
		return nil, errMoved
	}
	if at, ok := rules.DueAt(); ok && step != deal.Compute {
		noteLateness(at, now.NowMilli)
	}
	s.noteEnd(ctx, e)
	crash.Point("escrow.ended")
	after := *now
	after.Phase, after.RevealsClosedAt, after.ComputedAt = e.To, e.RevealsClosedAt, e.ComputedAt
	after.Result, after.VoidFlakers, after.CertID, after.Sealed = e.Result, e.VoidFlakers, e.CertID, nil
	after.AttestedBy = nil
	if e.CertID != nil {
		after.Published = s.tryIssue(ctx, certificateOf(e)) == nil
	}
	return &after, nil
}

// ending works out how a step ends the deal.
func (s *Service) ending(d *Deal, now *store.Snapshot, step deal.Step, drawn *algorithm.Beacon) (*store.Ending, error) {
	e := &store.Ending{DealID: d.DealID, Parties: len(d.Labels), From: now.Phase, Commits: now.Commits, Reveals: now.Reveals, At: now.Now}
	if s.rules(d, now).AllRevealed() {
		e.RevealsClosedAt = &now.LastReveal
	}
	var inputs []sealing.Input
	void := ""
	switch step {
	case deal.VoidCommits, deal.VoidReveals:
		e.To, void = deal.Void, certificate.MissedReveal
		if step == deal.VoidCommits {
			void = certificate.MissedCommit
		}
		for i, p := range now.Parts {
			if step == deal.VoidCommits && p.Commitment == nil || step == deal.VoidReveals && !p.Revealed {
				e.VoidFlakers = append(e.VoidFlakers, i)
			}
		}
	case deal.Expire: // SPEC 3: EXPIRED has no certificate
		e.To = deal.Expired
		return e, nil
	case deal.Compute, deal.Draw:
		e.To, e.ComputedAt = deal.Computed, &now.Now
		var err error
		if inputs, err = s.inputs(d, now, nil, 0); err != nil {
			return nil, err
		}
		if e.Result, err = compute(d, inputs, drawn); err != nil {
			return nil, err
		}
	}
	return e, s.certify(d, now, inputs, void, e)
}

// inputs decrypts what all parties have revealed, in party order. own is the
// input of the party at index, where its reveal is not stored yet.
func (s *Service) inputs(d *Deal, now *store.Snapshot, own *sealing.Input, index int) ([]sealing.Input, error) {
	all := make([]sealing.Input, 0, len(d.Labels))
	for _, sealed := range now.Sealed {
		if own != nil && len(all) == index {
			all = append(all, *own)
		}
		if sealed == nil {
			return nil, errMoved // purged: the deal has ended
		}
		in, err := s.secrets.OpenInput(d.DealID, len(all), sealed)
		if err != nil {
			return nil, unopened(err)
		}
		all = append(all, in)
	}
	if own != nil && len(all) == index {
		all = append(all, *own)
	}
	if len(all) != len(d.Labels) {
		return nil, errMoved
	}
	return all, nil
}

// errUnopened means that a stored input does not open: its server secret is lost,
// or its row was changed. Callers are told to come again, since an operator may put
// the secret back; at its deadline the deal is EXPIRED (deal.Expire).
var errUnopened = errors.New("escrow: input lost")

func unopened(cause error) error {
	inputsUnopened.Inc()
	return problem.New(problem.Unavailable, "this service cannot open a stored input of the deal at present, and its operator is alerted; send the same request again later").
		After(60).Because(fmt.Errorf("%w: %w", errUnopened, cause))
}

// compute runs the algorithm. SPEC 1: the engine is deterministic and pure.
func compute(d *Deal, inputs []sealing.Input, drawn *algorithm.Beacon) ([]byte, error) {
	objects := make([]map[string]any, len(inputs))
	for i, in := range inputs {
		var err error
		if objects[i], err = canon.ParseObject(in.Canonical); err != nil {
			return nil, fmt.Errorf("stored input: party %d of deal %s: %w", i, d.DealID, err)
		}
	}
	return d.algorithm.Compute(d.Labels, d.params, objects, drawn)
}

// certify writes the unsigned certificate into an ending. SPEC 2.5. void is the flag
// that says why a deal is VOID.
func (s *Service) certify(d *Deal, now *store.Snapshot, inputs []sealing.Input, void string, e *store.Ending) error {
	digest, err := d.digest()
	if err != nil {
		return err
	}
	id := sealing.ID(certPrefix)
	p := certificate.Payload{
		CertVersion: certificate.Version, CertID: id, DealID: d.DealID,
		Outcome: certificate.Void, Algorithm: d.Algorithm, Mode: d.Mode, Retention: d.Retention,
		Parties: make([]certificate.Party, len(now.Parts)), Result: e.Result, VoidFlakers: e.VoidFlakers,
		Timing: certificate.Timing{
			CreatedAt: d.CreatedAt, CommitsClosedAt: now.CommitsClosedAt, RevealsClosedAt: e.RevealsClosedAt, ComputedAt: e.ComputedAt,
		},
	}
	if e.To == deal.Computed {
		p.Outcome = certificate.Computed
	}
	p.Properties = certificate.Properties(certificate.Facts{
		Algorithm: d.Algorithm, Retention: d.Retention, Void: void, Revealed: now.Reveals > 0 || void == certificate.Rejected, Declaration: digest,
	})
	for i, one := range now.Parts {
		p.Parties[i] = certificate.Party{Index: i, Label: d.Labels[i], Commitment: one.Commitment, AttestedBy: d.attested(i, now.AttestedBy[i])}
	}
	// SPEC 2.5: null for a VOID deal with insufficient reveals.
	if len(inputs) == len(now.Parts) {
		root := certificate.InputRoot(leavesOf(inputs))
		p.InputRoot = &root
	}
	payload, err := p.SigningBytes()
	if err != nil {
		return err
	}
	e.CertID, e.Payload, e.MAC = &id, payload, payloadMAC(s.secrets.Writer(), id, payload)
	return nil
}

// leavesOf are the leaves of input_root.
func leavesOf(inputs []sealing.Input) [][]byte {
	leaves := make([][]byte, len(inputs))
	for i, in := range inputs {
		leaves[i] = append(append([]byte{}, in.Canonical...), in.SaltBytes...)
	}
	return leaves
}

// payloadMAC marks a payload as made here. The signature says that this service
// decided so; a row that somebody else wrote into the database must not get one.
func payloadMAC(secret *sealing.Secret, certID string, payload []byte) []byte {
	return secret.MAC([]byte("certificate"), []byte(certID), payload)
}

// certificateOf is the pending certificate that an ending stored.
func certificateOf(e *store.Ending) *store.Certificate {
	return &store.Certificate{CertID: *e.CertID, DealID: e.DealID, Payload: e.Payload, MAC: e.MAC}
}

func (s *Service) noteEnd(ctx context.Context, e *store.Ending) {
	endedBy[e.To].Inc()
	s.options.Waits.Changed(e.DealID)
	s.logger.InfoContext(ctx, "deal ended", "state", e.To, "void_flakers", len(e.VoidFlakers))
}
