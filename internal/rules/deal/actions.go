package deal

import (
	"slices"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// Party says what one party of a deal has done.
type Party struct {
	Index     int
	Committed bool
	Revealed  bool
}

// The methods below say why an action is refused at the unix time `now`, or nil. Every error has
// status 409. The service takes every due step except Draw first. Commit and Reveal still check the
// deadlines, so that an overdue deal never accepts a commit or reveal.

// Commit is the rule of a commit. SPEC 3: the first commit moves the deal from OPEN to COMMITTING, the
// last commit moves it from COMMITTING to REVEALING.
func (d Deal) Commit(p Party, now int64) *problem.Error {
	switch {
	case d.Ended():
		return d.ended(p)
	case p.Committed || d.Phase == Revealing: // in REVEALING all have committed
		return problem.New(problem.AlreadyCommitted, "party %d has committed, and a commitment cannot be changed; wait for the others, then call %s. "+
			"If you did not commit, or the commitment in %s is not yours, somebody used this invite token. The initiator has all tokens of the deal, and can cancel the deal only while no other party has committed. If somebody used your token, do not reveal: let the deal miss its deadline, and create a new deal whose party_keys name your key",
			p.Index, d.call(problem.Reveal), d.call(problem.ReadDeal))
	case now >= d.CommitDeadline:
		return problem.New(problem.DeadlinePassed, "commit_deadline %d has passed (now %d); create a new deal with %s", d.CommitDeadline, now, d.call(problem.CreateDeal))
	}
	return nil
}

// Reveal is the rule of a reveal.
func (d Deal) Reveal(p Party, now int64) *problem.Error {
	switch {
	case d.Ended():
		return d.ended(p)
	case p.Revealed:
		return problem.New(problem.AlreadyRevealed, "party %d has revealed; read the outcome with %s", p.Index, d.call(problem.ReadDeal))
	case d.Phase == Committing && !p.Committed:
		return problem.New(problem.CommitsMissing, "party %d has not committed; call %s before commit_deadline %d", p.Index, d.call(problem.Commit), d.CommitDeadline)
	case d.Phase == Committing:
		return problem.New(problem.CommitsMissing, "%d of %d parties have committed; call %s until the state is REVEALING, then reveal", d.Commits, len(d.Labels), d.call(problem.ReadDeal))
	case now >= d.RevealDeadline:
		return problem.New(problem.DeadlinePassed, "reveal_deadline %d has passed (now %d); create a new deal with %s", d.RevealDeadline, now, d.call(problem.CreateDeal))
	}
	return nil
}

// Entropy is the rule of a draw. SPEC 4 rule 2: repeat calls after COMPUTED report the result.
func (d Deal) Entropy(now int64) *problem.Error {
	switch {
	case !d.Random():
		return problem.New(problem.WrongAlgorithm, "only random.v1 deals draw from the beacon; read this deal with %s", d.call(problem.ReadDeal))
	case d.Phase == Computed || d.Phase == Certified:
		return nil
	case d.Ended():
		return problem.New(problem.DealEnded, "the deal is %s and has no result; create a new deal with %s", d.Phase, d.call(problem.CreateDeal))
	case d.Phase == Committing || d.Reveals < len(d.Labels):
		return problem.New(problem.RevealsMissing, "the deal is %s with %d of %d reveals; call again once all have revealed", d.State(), d.Reveals, len(d.Labels))
	case now < *d.RoundTime:
		return problem.New(problem.BeaconNotReady, "the beacon round is due at %d (now %d); call again then", *d.RoundTime, now).WithRetryAfter(min(*d.RoundTime-now, 86_400))
	}
	return nil
}

// Cancel is the rule of a cancel. SPEC 3: a deal can be cancelled until a counterparty commits. The
// initiator's own commitment does not count.
func (d Deal) Cancel(initiatorCommitted bool) *problem.Error {
	others := d.Commits
	if initiatorCommitted {
		others--
	}
	switch {
	case d.Ended():
		return problem.New(problem.CannotCancel, "the deal is already %s; read it with %s", d.Phase, d.call(problem.ReadDeal))
	case d.Phase == Revealing || others > 0:
		return problem.New(problem.CannotCancel, "other parties have committed (%d), so the deal can no longer be cancelled; let the deal run until it ends or misses a deadline", others)
	}
	return nil
}

func (d Deal) ended(p Party) *problem.Error {
	missed := d.Phase == Void && slices.Contains(d.VoidFlakers, p.Index)
	create := d.call(problem.CreateDeal)
	switch {
	case missed && !p.Committed:
		return problem.New(problem.DeadlinePassed, "commit_deadline %d has passed and the deal is VOID; create a new deal with %s", d.CommitDeadline, create)
	case missed && !p.Revealed:
		return problem.New(problem.DeadlinePassed, "reveal_deadline %d has passed and the deal is VOID; create a new deal with %s", d.RevealDeadline, create)
	}
	return problem.New(problem.DealEnded, "the deal is %s; read the outcome with %s", d.Phase, d.call(problem.ReadDeal))
}

func (d Deal) call(op problem.Op) problem.Call {
	if op == problem.CreateDeal {
		return problem.Call{Op: op}
	}
	return problem.Call{Op: op, DealID: d.ID}
}
