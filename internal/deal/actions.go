package deal

import (
	"fmt"
	"slices"
)

// Refusal is why an action is not possible now. Code is a row of the error
// table; every one of them is a 409.
type Refusal struct {
	Code string
	Fix  string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Fix }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Fix: fmt.Sprintf(format, args...)}
}

// Party is one party's standing in a deal.
type Party struct {
	Index     int
	Committed bool
	Revealed  bool
}

// The actions below are asked of a deal whose due steps have been taken
// (Next is None or Draw), with now the time at which the answer is given.

// Commit tells why p cannot commit at now, or nil.
// SPEC 3: OPEN -> COMMITTING by the first, COMMITTING -> REVEALING by the last.
func (d Deal) Commit(p Party, now int64) *Refusal {
	switch {
	case d.Ended():
		return d.ended(p)
	case p.Committed || d.Phase == Revealing: // where all have
		return refuse("ALREADY_COMMITTED", "party %d has committed and a commitment cannot be changed; wait for the others, then call POST /v1/deals/%s/reveal", p.Index, d.ID)
	case now >= d.CommitDeadline:
		return refuse("DEADLINE_PASSED", "commit_deadline %d has passed (now %d); create a new deal", d.CommitDeadline, now)
	}
	return nil
}

// Reveal tells why p cannot reveal at now, or nil.
func (d Deal) Reveal(p Party, now int64) *Refusal {
	switch {
	case d.Ended():
		return d.ended(p)
	case p.Revealed:
		return refuse("ALREADY_REVEALED", "party %d has revealed; read the outcome with GET /v1/deals/%s", p.Index, d.ID)
	case d.Phase == Committing && !p.Committed:
		return refuse("COMMITS_MISSING", "party %d has not committed; call POST /v1/deals/%s/commit before commit_deadline %d", p.Index, d.ID, d.CommitDeadline)
	case d.Phase == Committing:
		return refuse("COMMITS_MISSING", "%d of %d parties have committed; poll GET /v1/deals/%s until its state is REVEALING, then reveal", d.Commits, d.Parties, d.ID)
	case now >= d.RevealDeadline:
		return refuse("DEADLINE_PASSED", "reveal_deadline %d has passed (now %d); create a new deal", d.RevealDeadline, now)
	}
	return nil
}

// Entropy tells why the draw cannot be made at now, or nil where it can or has
// been made. SPEC 4 rule 2: repeat calls after COMPUTED report the result.
func (d Deal) Entropy(now int64) *Refusal {
	switch {
	case !d.Random:
		return refuse("WRONG_ALGORITHM", "only random.v1 deals draw from the beacon; read this deal with GET /v1/deals/%s", d.ID)
	case d.Phase == Computed || d.Phase == Certified:
		return nil
	case d.Ended():
		return refuse("DEAL_ENDED", "the deal is %s and has no result; create a new deal", d.Phase)
	case d.Phase == Committing || d.Reveals < d.Parties:
		return refuse("REVEALS_MISSING", "the deal is %s with %d of %d reveals; call again once all have revealed", d.State(), d.Reveals, d.Parties)
	case now < d.RoundTime:
		return refuse("BEACON_NOT_READY", "the beacon round is due at %d (now %d); call again then", d.RoundTime, now)
	}
	return nil
}

// Cancel tells why the initiator cannot cancel, or nil. The initiator is party
// 0; its own commitment does not stand in the way.
// SPEC 3: no counterparty has committed yet.
func (d Deal) Cancel(initiatorCommitted bool) *Refusal {
	others := d.Commits
	if initiatorCommitted {
		others--
	}
	switch {
	case d.Ended():
		return refuse("CANNOT_CANCEL", "the deal is %s already; read it with GET /v1/deals/%s", d.Phase, d.ID)
	case d.Phase == Revealing || others > 0:
		return refuse("CANNOT_CANCEL", "%d counterparties have committed; let the deal run or pass its deadlines", others)
	}
	return nil
}

func (d Deal) ended(p Party) *Refusal {
	missed := d.Phase == Void && slices.Contains(d.VoidFlakers, p.Index)
	switch {
	case missed && !p.Committed:
		return refuse("DEADLINE_PASSED", "commit_deadline %d has passed and the deal is VOID; create a new deal", d.CommitDeadline)
	case missed && !p.Revealed:
		return refuse("DEADLINE_PASSED", "reveal_deadline %d has passed and the deal is VOID; create a new deal", d.RevealDeadline)
	}
	return refuse("DEAL_ENDED", "the deal is %s; read the outcome with GET /v1/deals/%s", d.Phase, d.ID)
}
