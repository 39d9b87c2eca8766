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

// settle takes the steps that are due, whoever is there to take them, and gives
// the deal as it stands after. A certificate that this brings about is issued
// within a bound; where that fails the worker finishes it.
func (s *Service) settle(ctx context.Context, d *declaration) (*store.Status, error) {
	for range 8 {
		st, err := s.store.Status(ctx, d.DealID)
		if err != nil {
			return nil, err
		}
		now := s.standing(d, st)
		step := now.Next(st.Now)
		switch {
		case now.Random && now.AllRevealed() && st.RevealsClosedAt == nil:
			err = s.store.CloseReveals(ctx, d.DealID)
		case step == deal.None || step == deal.Draw: // a draw waits for its caller or the worker
			return st, nil
		case step == deal.Expire:
			err = s.expire(ctx, d)
		default:
			err = s.take(ctx, d, step, nil)
		}
		if err != nil && !errors.Is(err, errMoved) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("deal %s does not settle", d.DealID)
}

// expire ends a random.v1 deal whose round could not be had for the whole
// window, unless it can be had now: a deployment that was down is no reason.
func (s *Service) expire(ctx context.Context, d *declaration) error {
	drawn, err := s.pin(ctx, d)
	switch {
	case err == nil:
		return s.take(ctx, d, deal.Draw, drawn)
	case problem.Is(err, problem.Unavailable):
		return err // the database; nothing is known of the beacon
	}
	return s.take(ctx, d, deal.Expire, nil)
}

// take takes one step. errMoved: somebody else took one first. Calls that meet
// the same step at the same moment take it once.
func (s *Service) take(ctx context.Context, d *declaration, step deal.Step, drawn *algorithm.Beacon) error {
	_, err, _ := s.steps.Do(fmt.Sprint(d.DealID, " ", step), func() (any, error) {
		ctx, cancel := settled(ctx)
		defer cancel()
		return nil, s.takeOnce(ctx, d, step, drawn)
	})
	return err
}

func (s *Service) takeOnce(ctx context.Context, d *declaration, step deal.Step, drawn *algorithm.Beacon) error {
	if step == deal.Advance {
		return s.store.Advance(ctx, d.DealID)
	}
	st, parties, err := s.store.Standings(ctx, d.DealID)
	if err != nil {
		return err
	}
	now := s.standing(d, st)
	if drawn == nil && now.Next(st.Now) != step || drawn != nil && !now.AllRevealed() {
		return errMoved
	}
	e := &store.Ending{
		DealID: d.DealID, From: st.Phase, Commits: st.Commits, Reveals: st.Reveals, At: st.Now,
	}
	var inputs []sealing.Input
	if now.AllRevealed() {
		e.RevealsClosedAt = &st.LastReveal
	}
	switch step {
	case deal.VoidCommits, deal.VoidReveals:
		e.To = deal.Void
		for i, p := range parties {
			if step == deal.VoidCommits && p.Commitment == nil || step == deal.VoidReveals && !p.Revealed {
				e.VoidFlakers = append(e.VoidFlakers, i)
			}
		}
	case deal.Compute, deal.Draw:
		e.To = deal.Computed
		e.ComputedAt = &st.Now
		if inputs, err = s.inputs(ctx, d); err != nil {
			return err
		}
		if e.Result, err = compute(d, inputs, drawn); err != nil {
			return err
		}
	case deal.Expire:
		e.To = deal.Expired
	}
	if e.To != deal.Expired {
		if err := s.certify(d, st, parties, inputs, e); err != nil {
			return err
		}
	}
	crash.Point("escrow.before-end")
	done, err := s.store.End(ctx, e)
	if err != nil {
		return err
	}
	if !done {
		return errMoved
	}
	endedBy[e.To].Inc()
	if at, ok := now.DueAt(); ok && step != deal.Compute {
		noteLateness(at, st.NowMilli)
	}
	s.logger.InfoContext(ctx, "deal ended", "state", e.To, "void_flakers", len(e.VoidFlakers))
	crash.Point("escrow.ended")
	if e.CertID != nil {
		s.issueBounded(ctx, *e.CertID)
	}
	return nil
}

// inputs decrypts what all parties have revealed, in party order.
func (s *Service) inputs(ctx context.Context, d *declaration) ([]sealing.Input, error) {
	sealed, err := s.store.SealedInputs(ctx, d.DealID)
	if err != nil {
		return nil, err
	}
	all := make([]sealing.Input, len(sealed))
	for i, one := range sealed {
		if one == nil {
			return nil, errMoved // purged: the deal has ended
		}
		if all[i], err = s.secret.OpenInput(d.DealID, i, one); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// compute runs the algorithm. SPEC 1: the engine is deterministic and pure.
func compute(d *declaration, inputs []sealing.Input, drawn *algorithm.Beacon) ([]byte, error) {
	objects := make([]map[string]any, len(inputs))
	for i, in := range inputs {
		var err error
		if objects[i], err = canon.ParseObject(in.Canonical); err != nil {
			return nil, fmt.Errorf("stored input of party %d of deal %s: %w", i, d.DealID, err)
		}
	}
	return d.algorithm.Compute(d.Labels, d.params, objects, drawn)
}

// certify writes the unsigned certificate into an ending. SPEC 2.5.
func (s *Service) certify(d *declaration, st *store.Status, parties []store.Standing, inputs []sealing.Input, e *store.Ending) error {
	id := sealing.ID(certPrefix)
	p := certificate.Payload{
		CertVersion: certificate.Version, CertID: id, DealID: d.DealID,
		Outcome: certificate.Void, Algorithm: d.Algorithm, Mode: d.Mode, Retention: d.Retention,
		Parties: make([]certificate.Party, len(parties)), Result: e.Result, VoidFlakers: e.VoidFlakers,
		Timing: certificate.Timing{
			CreatedAt: d.CreatedAt, CommitsClosedAt: st.CommitsClosedAt, RevealsClosedAt: e.RevealsClosedAt, ComputedAt: e.ComputedAt,
		},
	}
	if e.To == deal.Computed {
		p.Outcome = certificate.Computed
	}
	p.Properties = certificate.Properties(p.Outcome, d.Algorithm, d.Retention)
	for i, one := range parties {
		p.Parties[i] = certificate.Party{Index: i, Label: d.Labels[i], Commitment: one.Commitment, AttestedBy: certificate.AttestedByInitiator}
	}
	// SPEC 2.5: null for a VOID deal with insufficient reveals.
	if len(inputs) == len(parties) {
		leaves := make([][]byte, len(inputs))
		for i, in := range inputs {
			leaves[i] = append(append([]byte{}, in.Canonical...), in.SaltBytes...)
		}
		root := certificate.InputRoot(leaves)
		p.InputRoot = &root
	}
	payload, err := p.SigningBytes()
	if err != nil {
		return err
	}
	e.CertID, e.Payload, e.MAC = &id, payload, s.payloadMAC(id, payload)
	return nil
}

// payloadMAC marks a payload as made here. The signature says that this service
// decided so; a row that somebody else wrote into the database must not get one.
func (s *Service) payloadMAC(certID string, payload []byte) []byte {
	return s.secret.MAC([]byte("certificate"), []byte(certID), payload)
}

// refusal makes an error of the table from a rule's no.
func refusal(r *deal.Refusal) error {
	if r == nil {
		return nil
	}
	return problem.New(problem.Code(r.Code), "%s", r.Fix)
}
