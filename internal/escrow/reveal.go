package escrow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/crash"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Opening is what a party hashed.
type Opening struct {
	Input map[string]any
	Salt  string
}

// Revealed is the response to a reveal call.
type Revealed struct {
	DealID   string          `json:"deal_id"`
	State    deal.State      `json:"state"`
	Party    int             `json:"party"`
	Revealed bool            `json:"revealed"` // always true
	Result   json.RawMessage `json:"result"`   // null until the deal is COMPUTED
}

// Reveal stores a party's input. SPEC 4 rule 4: the call with the last reveal also computes the result
// and tries to issue the certificate, except in a random.v1 deal.
func (s *Service) Reveal(ctx context.Context, a Access, o Opening, rec *Record) (Revealed, error) {
	if known, _ := s.acts.Get(a.seat()); known.revealed { // as in Commit
		if err := s.checkRule(ctx, a, deal.Deal.Reveal); err != nil {
			return Revealed{}, err
		}
	}
	act, err := s.checkOpening(ctx, a, o)
	if err != nil {
		return Revealed{}, s.lateFirst(ctx, a, deal.Deal.Reveal, err)
	}
	act.Replay = rec.Replay()
	if a.deal.algorithm.Rejects(o.Input) {
		return s.reject(ctx, a, act)
	}
	var stored store.ActResult
	for tries := 1; !stored.Done; tries++ {
		act.First = int(a.deal.firstUnrevealed.Load())
		if stored, err = s.store.Reveal(ctx, act); err == nil && !stored.Done {
			err = s.refusal(ctx, a, deal.Deal.Reveal, tries)
		}
		if err != nil {
			return Revealed{}, err
		}
	}
	crash.Point("escrow.revealed")
	if stored.All && a.deal.RoundTime == nil {
		now, err := s.endDeal(ctx, a.deal, deal.Compute, stored.Snapshot)
		if errors.Is(err, errDealChanged) || errors.Is(err, errInputLost) { // the call succeeds all the same
			return s.StoredReveal(ctx, a)
		}
		if problem.Is(err, problem.Overloaded) { // the reveal is stored; the worker ends the deal
			return Revealed{a.deal.DealID, deal.Revealing, a.party, true, nil}, nil
		}
		if err != nil {
			return Revealed{}, err
		}
		return Revealed{a.deal.DealID, now.Phase, a.party, true, now.Result}, nil
	}
	s.options.Waits.Notify(a.deal.DealID)
	if !stored.All {
		raise(&a.deal.firstUnrevealed, stored.Missing)
	}
	return Revealed{a.deal.DealID, deal.Revealing, a.party, true, nil}, nil
}

// StoredReveal answers a reveal that is stored, with the deal's present state and result: if the end
// of the deal failed after it, and for a repeated call without a stored answer.
func (s *Service) StoredReveal(ctx context.Context, a Access) (Revealed, error) {
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return Revealed{}, err
	}
	return Revealed{a.deal.DealID, s.rules(a.deal, now).State(), a.party, true, now.Result}, nil
}

// checkOpening returns the reveal to store, with the encrypted input, if input and salt open the
// party's commitment and the algorithm accepts the input.
func (s *Service) checkOpening(ctx context.Context, a Access, o Opening) (store.Act, error) {
	commitment, err := s.commitmentOf(ctx, a)
	if errors.Is(err, store.ErrNotFound) {
		return store.Act{}, problem.New(problem.CommitsMissing, "party %d has not committed; call %s first", a.party, a.call(problem.Commit))
	}
	if err != nil {
		return store.Act{}, err
	}
	in, err := opens(a, commitment, o)
	if err != nil {
		return store.Act{}, err
	}
	if err := a.deal.checkInput(o.Input); err != nil {
		return store.Act{}, problem.New(problem.InvalidInput, "%s. The party committed to this input, and a commitment cannot be changed: the deal becomes VOID at reveal_deadline %d; create a new deal with %s", err, a.deal.RevealDeadline, problem.Call{Op: problem.CreateDeal})
	}
	writer := s.secrets.Writer()
	return store.Act{
		DealID: a.deal.DealID, Party: a.party, Commitment: commitment,
		Sealed: writer.SealInput(a.deal.DealID, a.party, in), Secret: writer.Fingerprint(),
	}, nil
}

// CheckInput checks an input before it is committed. It stores nothing.
func (a Access) CheckInput(input map[string]any) (warning string, err error) {
	if err := a.deal.checkInput(input); err != nil {
		return "", problem.New(problem.InvalidInput, "%s. Nothing is committed yet: correct the input, then hash it", err)
	}
	return a.deal.algorithm.InputWarning(a.deal.params, input), nil
}

func (s *Service) commitmentOf(ctx context.Context, a Access) (commitment [32]byte, err error) {
	if known, ok := s.acts.Get(a.seat()); ok {
		return known.commitment, nil
	}
	if commitment, err = s.store.Commitment(ctx, a.deal.DealID, a.party); err != nil {
		return commitment, err
	}
	s.noteAct(a, acted{commitment: commitment})
	return commitment, nil
}

func (a Access) seat() seat { return seat{a.deal.DealID, a.party} }

func (s *Service) noteAct(a Access, done acted) {
	if known, ok := s.acts.Get(a.seat()); !ok || known != done {
		s.acts.Add(a.seat(), done, len(a.deal.DealID))
	}
}

// saltHint names a likely mistake with the salt. It never quotes the salt.
func saltHint(salt string) string {
	switch {
	case salt == "":
		return " (no salt was sent)"
	case strings.TrimSpace(salt) != salt:
		return " (the salt begins or ends with white space, which is part of the hash)"
	}
	return ""
}

// reject stores a shapley.v1 rejection and ends the deal.
func (s *Service) reject(ctx context.Context, a Access, act store.Act) (Revealed, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	tries := attempts + len(a.deal.Labels) // each reveal by another party can make one try fail
	for range tries {
		now, err := s.advance(ctx, a, store.WithInputs(len(a.deal.Labels)))
		if err != nil {
			return Revealed{}, err
		}
		if refusal := s.rules(a.deal, now).Reveal(partyStatus(now, a.party), now.Now); refusal != nil {
			return Revealed{}, refusal
		}
		done, err := s.rejected(ctx, a.deal, now, act)
		if err != nil {
			return Revealed{}, err
		}
		if done {
			return Revealed{a.deal.DealID, deal.Void, a.party, true, nil}, nil
		}
	}
	return Revealed{}, fmt.Errorf("the store did not record a rejection that the rules allow: deal %s, %d attempts", a.deal.DealID, tries)
}

// rejected stores the rejections of one or more parties and ends the deal in one transaction. SPEC 3: any
// rejection makes the deal VOID and names the rejector. `now` is the snapshot WithInputs, and acts are in
// party order. It returns false if the deal has changed since `now`.
func (s *Service) rejected(ctx context.Context, d *Deal, now *store.Snapshot, acts ...store.Act) (bool, error) {
	e := &store.Ending{
		DealID: d.DealID, Parties: len(d.Labels), From: deal.Revealing, To: deal.Void, Commits: now.Commits, Reveals: now.Reveals, At: now.Now,
	}
	for _, act := range acts {
		e.VoidFlakers = append(e.VoidFlakers, act.Party)
	}
	var inputs *certificate.InputTree
	if now.Reveals+len(acts) == len(d.Labels) { // `now` has no input of a party that has not revealed
		e.RevealsClosedAt = &now.Now
		inputs = &certificate.InputTree{}
		err := s.eachInput(ctx, d, now, acts, func(_ int, in sealing.Input) error {
			inputs.Add(in.Canonical, in.SaltBytes)
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	if err := s.certify(d, now, inputs, certificate.Rejected, e); err != nil {
		return false, err
	}
	done, err := s.store.Reject(ctx, e, acts...)
	if err == nil && done {
		s.noteEnd(ctx, e)
		crash.Point("escrow.ended")
		_ = s.tryIssue(ctx, certificateOf(e)) // if tryIssue fails, the worker issues the certificate later
	}
	return done, err
}

// A rule returns the reason why a commit, a reveal or a cancel is refused, or nil. The store
// decides, in the statement that stores the action. Only a refused action, a cancel, and one that this process knows to
// be a repetition cost a read.
type rule func(d deal.Deal, p deal.Party, now int64) *problem.Error

// attempts is how often an action is tried, because the deal can change after a refusal.
const attempts = 4

// refusal returns why the store has refused an action, or nil if the caller should try it again.
func (s *Service) refusal(ctx context.Context, a Access, rule rule, tries int) error {
	if err := s.checkRule(ctx, a, rule); err != nil || tries < attempts {
		return err
	}
	return fmt.Errorf("the store refused an action that the rules allow: deal %s, %d times in a row", a.deal.DealID, attempts)
}

// checkRule returns why the rule refuses the action now, or nil.
func (s *Service) checkRule(ctx context.Context, a Access, rule rule) error {
	now, err := s.advance(ctx, a, store.OneParty(a.party))
	if err != nil {
		return err
	}
	if stored := now.Parts[a.party-now.First]; stored.Commitment != nil {
		if hash, err := canon.ParseCommitment(*stored.Commitment); err == nil {
			s.noteAct(a, acted{hash, stored.Revealed})
		}
	}
	if refusal := rule(s.rules(a.deal, now), partyStatus(now, a.party), now.Now); refusal != nil {
		return refusal
	}
	return nil
}

// lateFirst chooses the error for a request that failed with err: a late caller must learn that the
// call is late, even if the request is also invalid. It returns an internal error, UNAVAILABLE or
// READ_ONLY as it is.
func (s *Service) lateFirst(ctx context.Context, a Access, rule rule, err error) error {
	if _, verdict := errors.AsType[*problem.Error](err); !verdict || problem.Is(err, problem.Unavailable) || problem.Is(err, problem.ReadOnly) {
		return err
	}
	if late := s.checkRule(ctx, a, rule); late != nil {
		return late
	}
	return err
}
