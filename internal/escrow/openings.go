package escrow

import (
	"context"
	"encoding/json"

	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/budget"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// OpenInput is the input and salt of a party.
type OpenInput struct {
	Party int             `json:"party"`
	Input json.RawMessage `json:"input"` // canonical JSON (RFC 8785)
	Salt  string          `json:"salt"`
}

// OpenInputs holds all inputs of a deal.
type OpenInputs struct {
	DealID string      `json:"deal_id"`
	Inputs []OpenInput `json:"inputs"` // in party order
}

// HasInputs returns the error of Inputs, without reading an input.
func (s *Service) HasInputs(ctx context.Context, a Access) error {
	now, err := s.advance(ctx, a, store.NoParties)
	if err == nil {
		err = s.hidden(ctx, a, now)
	}
	return err
}

// Inputs returns the inputs and salts of all parties, or the error of hidden.
func (s *Service) Inputs(ctx context.Context, a Access) (all OpenInputs, err error) {
	if err := s.HasInputs(ctx, a); err != nil {
		return all, err
	}
	if err := budget.From(ctx).Hold(ctx, budget.MaxSmall); err != nil {
		return all, err
	}
	now, err := s.store.Snapshot(ctx, a.deal.DealID, store.OnlyInputs(len(a.deal.Labels)))
	if err != nil {
		return all, err
	}
	if now.InputBytes > store.SmallRead {
		if err := budget.From(ctx).Hold(ctx, int64(inputCopies*now.InputBytes+store.InputsPage)); err != nil {
			return all, err
		}
	}
	all.DealID = a.deal.DealID
	return all, s.eachInput(ctx, a.deal, now, nil, func(party int, in sealing.Input) error {
		all.Inputs = append(all.Inputs, OpenInput{party, in.Canonical, in.Salt})
		return nil
	})
}

// hidden returns why the parties of a deal do not see each other's inputs, or nil if each of them sees
// all. It is the only place that decides this. After COMPUTED the parties see all inputs of a deal of
// mode open, and of a random.v1 deal in each mode, because a draw can be checked only with all nonces.
// They see the inputs of any other deal once all of them have called Disclose.
func (s *Service) hidden(ctx context.Context, a Access, now *store.Snapshot) error {
	if err := s.notShown(a, now); err != nil || a.shownToAll() {
		return err
	}
	missing, err := s.undisclosed(ctx, a)
	if err == nil && len(missing) > 0 {
		err = problem.New(problem.InputsSealed, "the deal has mode sealed and shows its inputs only once all parties have consented; missing: party %s. Each of them consents with %s", problem.List(missing, "%d", ", "), a.call(problem.Disclose))
	}
	return err
}

// notShown returns why the inputs cannot be shown whatever the parties consent to, or nil.
func (s *Service) notShown(a Access, now *store.Snapshot) error {
	state := s.rules(a.deal, now).State()
	switch {
	case a.deal.ContentsDeleted:
		return problem.New(problem.InputsSealed, "this service has deleted params, title, message, inputs and seals of the deal, as it does some time after a deal ends. The certificate stays: to check the result, the parties need the bundles or inputs that they kept")
	case a.deal.Retention == "purge":
		return problem.New(problem.InputsSealed, "the deal has retention purge: the service deletes the inputs when the deal ends and never shows them. To check the result, the parties give each other their inputs and salts themselves")
	case state == deal.Computed || state == deal.Certified:
		return nil
	case now.Ended():
		return problem.New(problem.InputsSealed, "the deal is %s, and only a deal with a result shows its inputs: this one never will. Read the outcome with %s", state, a.call(problem.ReadDeal))
	}
	return problem.New(problem.InputsNotReady, "the deal is %s, and a deal shows inputs only after it is COMPUTED: wait with %s", state, a.call(problem.ReadDeal))
}

// shownToAll reports whether the parties see all inputs after COMPUTED without calls of Disclose.
func (a Access) shownToAll() bool { return a.deal.Mode == "open" || a.deal.Random() }

// undisclosed lists the parties that have not called Disclose.
func (s *Service) undisclosed(ctx context.Context, a Access) ([]int, error) {
	if a.deal.disclosed.Load() {
		return nil, nil
	}
	missing, err := s.store.Undisclosed(ctx, a.deal.DealID)
	if err == nil && len(missing) == 0 {
		a.deal.disclosed.Store(true)
	}
	return missing, err
}

// Disclosed is the answer to Disclose.
type Disclosed struct {
	DealID    string `json:"deal_id"`
	Party     int    `json:"party"`
	Disclosed bool   `json:"disclosed"` // always true
	Missing   []int  `json:"missing"`   // the parties that have not called Disclose
}

// Disclose stores that a party of a COMPUTED deal consents to show its input to the other parties, who see
// nothing until all have consented. It may be repeated. The party MUST send its input and salt: the initiator
// has had the invite tokens of all parties, so a token alone must not open another party's input.
func (s *Service) Disclose(ctx context.Context, a Access, o Opening) (Disclosed, error) {
	answer := Disclosed{a.deal.DealID, a.party, true, []int{}}
	now, err := s.advance(ctx, a, store.NoParties)
	if err != nil {
		return answer, err
	}
	if err := s.notShown(a, now); err != nil || a.shownToAll() {
		return answer, err
	}
	commitment, err := s.commitmentOf(ctx, a)
	if err != nil {
		return answer, err
	}
	if _, err := opens(a, commitment, o); err != nil {
		return answer, err
	}
	if err := s.store.Disclose(ctx, a.deal.DealID, a.party); err != nil {
		return answer, err
	}
	missing, err := s.undisclosed(ctx, a)
	answer.Missing = append(answer.Missing, missing...)
	return answer, err
}

// opens returns an opening with the bytes of its salt, or COMMITMENT_MISMATCH.
func opens(a Access, commitment [32]byte, o Opening) (sealing.Input, error) {
	in := sealing.Input{Canonical: canon.Encode(o.Input), Salt: o.Salt}
	text := store.CommitmentText(commitment[:])
	var ok bool
	if in.SaltBytes, ok = canon.Open(text, in.Canonical, o.Salt); !ok {
		return in, problem.New(problem.CommitmentMismatch, "input and salt do not hash to the commitment %s of party %d%s; send exactly the input and the salt that were committed", text, a.party, saltHint(o.Salt))
	}
	return in, nil
}
