package escrow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/crash"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/idempotency"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/store"
)

// Reveal stores a party's input where it opens the commitment and fits the
// algorithm. SPEC 4 rule 4: with the last one the algorithm runs and the
// certificate is issued in the same flow.
func (s *Service) Reveal(ctx context.Context, a Access, r RevealRequest, rec *idempotency.Record) (idempotency.Response, error) {
	in := sealing.Input{Canonical: canon.Encode(r.Input), Salt: r.Salt}
	if err := s.opens(ctx, a, r, &in); err != nil {
		// Late or in the wrong state comes first, whatever a reveal opens to.
		if _, bad := errors.AsType[*problem.Error](err); bad {
			if late := s.refused(ctx, a, deal.Deal.Reveal); late != nil {
				return idempotency.Response{}, late
			}
		}
		return idempotency.Response{}, err
	}
	sealed := s.secret.SealInput(a.deal.DealID, a.party, in)
	rejects, tries := a.deal.algorithm.Rejects(r.Input), attempts
	if rejects {
		tries += len(a.deal.Labels) // each other reveal may move the deal under it once
	}
	for range tries {
		var done bool
		var err error
		if rejects {
			done, err = s.reject(ctx, a, in, sealed, rec)
		} else {
			done, err = s.store.Reveal(ctx, a.deal.DealID, a.party, sealed, rec.Replay())
		}
		if err != nil {
			return idempotency.Response{}, err
		}
		if done {
			crash.Point("escrow.revealed")
			return s.afterReveal(ctx, a, rejects)
		}
		if err := s.refused(ctx, a, deal.Deal.Reveal); err != nil {
			return idempotency.Response{}, err
		}
	}
	return idempotency.Response{}, fmt.Errorf("deal %s does not take a reveal that it should", a.deal.DealID)
}

// opens checks the reveal against the commitment and then against the
// algorithm, and notes which reading of the salt matched.
func (s *Service) opens(ctx context.Context, a Access, r RevealRequest, in *sealing.Input) error {
	commitment, _, err := s.store.Party(ctx, a.deal.DealID, a.party)
	if errors.Is(err, store.ErrNotFound) || err == nil && commitment == nil {
		return problem.New(problem.CommitsMissing, "party %d has not committed; call POST /v1/deals/%s/commit first", a.party, a.deal.DealID)
	}
	if err != nil {
		return err
	}
	salt, ok := canon.Open(*commitment, in.Canonical, r.Salt)
	if !ok {
		return problem.New(problem.CommitmentMismatch, "input and salt do not hash to the commitment %s of party %d; send exactly the input and the salt that were committed%s", *commitment, a.party, hint(r.Salt))
	}
	in.SaltBytes = salt
	if err := a.deal.algorithm.CheckInput(a.deal.Labels, a.deal.params, r.Input); err != nil {
		return problem.New(problem.InvalidInput, "%s. This is what was committed, and a commitment cannot be changed: the deal becomes VOID at reveal_deadline %d; create a new one", err, a.deal.RevealDeadline)
	}
	return nil
}

// hint names what most often goes wrong with a salt, and nothing of it.
func hint(salt string) string {
	switch {
	case salt == "":
		return " (no salt was sent)"
	case strings.TrimSpace(salt) != salt:
		return " (the salt begins or ends with white space, which is hashed as well)"
	}
	return ""
}

// reject stores a shapley.v1 rejection and ends the deal in one transaction.
// SPEC 3: any rejection makes the deal VOID, the rejector is named.
func (s *Service) reject(ctx context.Context, a Access, in sealing.Input, sealed []byte, rec *idempotency.Record) (bool, error) {
	st, parties, err := s.store.Standings(ctx, a.deal.DealID)
	if err != nil {
		return false, err
	}
	if s.standing(a.deal, st).Reveal(deal.Party{Index: a.party, Committed: true, Revealed: parties[a.party].Revealed}, st.Now) != nil {
		return false, nil
	}
	e := &store.Ending{
		DealID: a.deal.DealID, From: deal.Revealing, To: deal.Void, Commits: st.Commits, Reveals: st.Reveals,
		VoidFlakers: []int{a.party}, At: st.Now,
	}
	var inputs []sealing.Input
	if st.Reveals+1 == len(parties) {
		e.RevealsClosedAt = &st.Now
		if inputs, err = s.inputsWith(ctx, a, parties, in); err != nil {
			return false, err
		}
	}
	if err := s.certify(a.deal, st, parties, inputs, e); err != nil {
		return false, err
	}
	done, err := s.store.Reject(ctx, e, a.party, sealed, rec.Replay())
	if done {
		endedBy[e.To].Inc()
		crash.Point("escrow.ended")
		s.issueBounded(ctx, *e.CertID)
	}
	return done, err
}

// inputsWith are all parties' inputs, with the caller's own in its place.
func (s *Service) inputsWith(ctx context.Context, a Access, parties []store.Standing, own sealing.Input) ([]sealing.Input, error) {
	sealed, err := s.store.SealedInputs(ctx, a.deal.DealID)
	if err != nil {
		return nil, err
	}
	all := make([]sealing.Input, 0, len(parties))
	for i := range parties {
		if i == a.party {
			all = append(all, own)
			continue
		}
		if len(sealed) == 0 || sealed[0] == nil {
			return nil, nil // the deal moved on: the transaction will refuse
		}
		in, err := s.secret.OpenInput(a.deal.DealID, i, sealed[0])
		if err != nil {
			return nil, err
		}
		all, sealed = append(all, in), sealed[1:]
	}
	return all, nil
}

// afterReveal ends the deal where this was the last reveal.
func (s *Service) afterReveal(ctx context.Context, a Access, ended bool) (idempotency.Response, error) {
	ctx, cancel := settled(ctx)
	defer cancel()
	missing, err := s.missing(ctx, a.deal, func(m *mark) *int { return &m.reveals }, s.store.FirstMissingReveal)
	if err != nil {
		return idempotency.Response{}, err
	}
	if missing && !ended {
		return revealed(a, deal.Revealing, nil)
	}
	return s.Revealed(ctx, a)
}

// Revealed is the answer to a reveal that stands, from the deal as it stands now.
func (s *Service) Revealed(ctx context.Context, a Access) (idempotency.Response, error) {
	ctx, cancel := settled(ctx)
	defer cancel()
	st, err := s.settle(ctx, a.deal)
	if err != nil {
		return idempotency.Response{}, err
	}
	return revealed(a, s.standing(a.deal, st).State(), st.Result)
}

func revealed(a Access, state deal.State, result json.RawMessage) (idempotency.Response, error) {
	return respond(200, struct {
		DealID   string          `json:"deal_id"`
		State    deal.State      `json:"state"`
		Party    int             `json:"party"`
		Revealed bool            `json:"revealed"`
		Result   json.RawMessage `json:"result"`
	}{a.deal.DealID, state, a.party, true, result})
}
