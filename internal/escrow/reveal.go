package escrow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Opening is what a party reveals: its input and the salt.
type Opening struct {
	Input map[string]any
	Salt  string
}

// Revealed is a reveal that stands.
type Revealed struct {
	DealID   string          `json:"deal_id"`
	State    deal.State      `json:"state"`
	Party    int             `json:"party"`
	Revealed bool            `json:"revealed"` // true
	Result   json.RawMessage `json:"result"`   // null until COMPUTED
}

// Reveal stores a party's input where it opens the commitment and fits the
// algorithm. SPEC 4 rule 4: with the last one the algorithm runs and the
// certificate is issued in the same flow.
func (s *Service) Reveal(ctx context.Context, a Access, o Opening, rec *idempotency.Record) (Revealed, error) {
	act := store.Act{DealID: a.deal.DealID, Party: a.party, Replay: rec.Replay()}
	in, err := s.open(ctx, a, o, &act)
	if _, invalid := errors.AsType[*problem.Error](err); invalid && !databaseAway(err) {
		// Late or in the wrong state comes first, whatever a reveal opens to.
		if late := s.refused(ctx, a, deal.Deal.Reveal); late != nil {
			return Revealed{}, late
		}
	}
	if err != nil {
		return Revealed{}, err
	}
	if a.deal.algorithm.Rejects(o.Input) {
		return s.reject(ctx, a, in, act)
	}
	for range attempts {
		act.First = int(a.deal.revealed.Load())
		done, err := s.store.Reveal(ctx, act)
		switch {
		case err != nil:
			return Revealed{}, err
		case done.Done && done.All:
			crash.Point("escrow.revealed")
			return s.afterLastReveal(ctx, a, done.Inputs)
		case done.Done:
			crash.Point("escrow.revealed")
			s.options.Waits.Changed(a.deal.DealID)
			raise(&a.deal.revealed, done.Missing)
			return a.revealed(deal.Revealing, nil), nil
		}
		if err := s.refused(ctx, a, deal.Deal.Reveal); err != nil {
			return Revealed{}, err
		}
	}
	return Revealed{}, fmt.Errorf("deal %s: reveal still not accepted after %d attempts", a.deal.DealID, attempts)
}

// open checks a reveal against the commitment and then against the algorithm,
// and puts what it opens and its encrypted form into act.
func (s *Service) open(ctx context.Context, a Access, o Opening, act *store.Act) (sealing.Input, error) {
	in := sealing.Input{Canonical: canon.Encode(o.Input), Salt: o.Salt}
	commitment, err := s.commitmentOf(ctx, a)
	if errors.Is(err, store.ErrNotFound) {
		return in, problem.New(problem.CommitsMissing, "party %d has not committed; call %s first", a.party, a.call(problem.Commit))
	}
	if err != nil {
		return in, err
	}
	text := store.CommitmentText(commitment[:])
	salt, ok := canon.Open(text, in.Canonical, o.Salt)
	if !ok {
		return in, problem.New(problem.CommitmentMismatch, "input and salt do not hash to the commitment %s of party %d; send exactly the input and the salt that were committed%s", text, a.party, saltHint(o.Salt))
	}
	in.SaltBytes = salt
	if err := a.deal.algorithm.CheckInput(a.deal.Labels, a.deal.params, o.Input); err != nil {
		return in, problem.New(problem.InvalidInput, "%s. This is what was committed, and a commitment cannot be changed: the deal becomes VOID at reveal_deadline %d; create a new one with %s", err, a.deal.RevealDeadline, problem.Call{Op: problem.CreateDeal})
	}
	writer := s.secrets.Writer()
	act.Commitment, act.Sealed, act.Secret = commitment, writer.SealInput(a.deal.DealID, a.party, in), writer.Fingerprint()
	return in, nil
}

// CheckInput returns INVALID_INPUT where the input does not fit what the deal
// declares. It changes nothing.
func (a Access) CheckInput(input map[string]any) error {
	if err := a.deal.algorithm.CheckInput(a.deal.Labels, a.deal.params, input); err != nil {
		return problem.New(problem.InvalidInput, "%s. Nothing is committed yet: correct the input, then hash it", err)
	}
	return nil
}

// commitmentOf returns a party's commitment, or store.ErrNotFound.
func (s *Service) commitmentOf(ctx context.Context, a Access) (commitment [32]byte, err error) {
	at := seat{a.deal.DealID, a.party}
	if commitment, ok := s.commitments.Get(at); ok {
		return commitment, nil
	}
	if commitment, err = s.store.Commitment(ctx, a.deal.DealID, a.party); err != nil {
		return commitment, err
	}
	s.commitments.Add(at, commitment, len(a.deal.DealID))
	return commitment, nil
}

// saltHint names what most often goes wrong with a salt, and nothing of it.
func saltHint(salt string) string {
	switch {
	case salt == "":
		return " (no salt was sent)"
	case strings.TrimSpace(salt) != salt:
		return " (the salt begins or ends with white space, which is hashed as well)"
	}
	return ""
}

// afterLastReveal ends the deal, unless it waits for its beacon round.
func (s *Service) afterLastReveal(ctx context.Context, a Access, inputs *store.Snapshot) (Revealed, error) {
	if a.deal.RoundTime != nil {
		s.options.Waits.Changed(a.deal.DealID)
		return a.revealed(deal.Revealing, nil), nil
	}
	now, err := s.endDeal(ctx, a.deal, deal.Compute, nil, inputs)
	if errors.Is(err, errMoved) || errors.Is(err, errUnopened) { // the reveal stands, whatever becomes of the deal
		return s.Revealed(ctx, a)
	}
	if err != nil {
		return Revealed{}, err
	}
	return a.revealed(now.Phase, now.Result), nil
}

// Revealed is the answer to a reveal that stands, from the deal as it stands now.
func (s *Service) Revealed(ctx context.Context, a Access) (Revealed, error) {
	now, err := s.advance(ctx, a.deal, store.Nobody)
	if err != nil {
		return Revealed{}, err
	}
	return a.revealed(s.rules(a.deal, now).State(), now.Result), nil
}

func (a Access) revealed(state deal.State, result []byte) Revealed {
	return Revealed{a.deal.DealID, state, a.party, true, result}
}

func (a Access) call(op problem.Op) problem.Call { return problem.Call{Op: op, DealID: a.deal.DealID} }

// reject stores a shapley.v1 rejection and ends the deal in one transaction.
// SPEC 3: any rejection makes the deal VOID, the rejector is named.
func (s *Service) reject(ctx context.Context, a Access, in sealing.Input, act store.Act) (Revealed, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	for range attempts + len(a.deal.Labels) { // each other reveal may move the deal under it once
		now, err := s.advance(ctx, a.deal, store.WithInputs)
		if err != nil {
			return Revealed{}, err
		}
		if refusal := s.rules(a.deal, now).Reveal(part(now, a.party), now.Now); refusal != nil {
			return Revealed{}, refusal
		}
		e := &store.Ending{
			DealID: a.deal.DealID, Parties: len(a.deal.Labels), From: deal.Revealing, To: deal.Void, Commits: now.Commits, Reveals: now.Reveals,
			VoidFlakers: []int{a.party}, At: now.Now,
		}
		var inputs []sealing.Input
		if now.Reveals+1 == len(a.deal.Labels) {
			e.RevealsClosedAt = &now.Now
			if inputs, err = s.inputs(a.deal, now, &in, a.party); err != nil {
				return Revealed{}, err
			}
		}
		if err := s.certify(a.deal, now, inputs, certificate.Rejected, e); err != nil {
			return Revealed{}, err
		}
		done, err := s.store.Reject(ctx, e, act)
		if err != nil {
			return Revealed{}, err
		}
		if done {
			s.noteEnd(ctx, e)
			crash.Point("escrow.ended")
			_ = s.tryIssue(ctx, certificateOf(e))
			return a.revealed(deal.Void, nil), nil
		}
	}
	return Revealed{}, fmt.Errorf("deal %s: rejection still not accepted after %d attempts", a.deal.DealID, attempts+len(a.deal.Labels))
}
