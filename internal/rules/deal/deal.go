// Package deal is the state machine of a deal (SPEC 3). It is pure: it takes a deal
// and a time, and returns the next step, or the reason why an action is refused.
//
//	phase        condition                                      step         next phase
//	COMMITTING   a party is missing at commit_deadline          VoidCommits  VOID
//	REVEALING    a party is missing at reveal_deadline          VoidReveals  VOID
//	REVEALING    all have revealed, not random.v1               Compute      COMPUTED
//	REVEALING    all have revealed, not random.v1, and an       Expire       EXPIRED
//	             input cannot be decrypted, at reveal_deadline
//	REVEALING    all have revealed, random.v1, at DrawAt        Draw         COMPUTED
//	REVEALING    all have revealed, random.v1, at ExpiresAt     Expire       EXPIRED
//
// In every other case the step is None. With VoidCommits and VoidReveals the missing
// parties become the flakers of the deal. A draw fetches the beacon round of a random.v1
// deal and computes the result.
//
// Three changes of phase are not steps, because a party's call makes them: the last commit
// (COMMITTING -> REVEALING), a shapley.v1 rejection (REVEALING -> VOID) and a cancel
// (COMMITTING -> CANCELLED).
//
// Next looks for missing parties before it looks at the clock. So a deadline never voids a
// deal in which all parties have acted, even if a process died before it took the step.
package deal

import "math"

// State is the state of a deal as clients see it (SPEC 3).
type State string

// The states. The database never stores OPEN and CERTIFIED: State derives OPEN, and a COMPUTED deal is
// shown as CERTIFIED once a quorum of witnesses has cosigned the leaf of its certificate.
const (
	Open       State = "OPEN"
	Committing State = "COMMITTING"
	Revealing  State = "REVEALING"
	Computed   State = "COMPUTED"
	Certified  State = "CERTIFIED"
	Void       State = "VOID"
	Expired    State = "EXPIRED"
	Cancelled  State = "CANCELLED"
)

// States lists all states.
var States = []State{Open, Committing, Revealing, Computed, Certified, Void, Expired, Cancelled}

// DrawDelay is how many seconds deadline-worker waits after the last reveal or the beacon round's
// time, whichever is later, so that a party can draw first.
const DrawDelay = 60

// Snapshot is the part of a deal that changes, at one moment.
type Snapshot struct {
	Phase       State // never Open: method State derives OPEN from Phase and Commits
	Commits     int
	Reveals     int
	LastReveal  int64 // unix seconds, when the newest reveal was accepted; 0 if there is none
	VoidFlakers []int // indexes of the parties that made the deal VOID, ascending
}

// Deal holds the facts that decide a deal's next step and permitted actions.
type Deal struct {
	ID string
	*Terms
	Snapshot
	EntropyWindow int64 // seconds from max(RevealDeadline, RoundTime) to ExpiresAt
	InputLost     bool  // a revealed input cannot be decrypted, so no result can be computed
}

// Step is a change of a deal's phase. The service takes a due step before any other action on the
// deal, except Draw, which waits for a party or for deadline-worker.
type Step int

const (
	None Step = iota
	Compute
	Draw
	Expire
	VoidCommits
	VoidReveals
)

// State returns the state that clients see: Phase, or Open before the first commitment.
func (s Snapshot) State() State {
	// SPEC 3: the initial state is OPEN.
	if s.Phase == Committing && s.Commits == 0 {
		return Open
	}
	return s.Phase
}

// Ended reports whether the deal is final. Its certificate may still be pending.
func (s Snapshot) Ended() bool { return s.Phase != Committing && s.Phase != Revealing }

// AllRevealed reports whether all parties have revealed and the deal has not ended.
func (d Deal) AllRevealed() bool { return d.Phase == Revealing && d.Reveals == len(d.Labels) }

// Next returns the step that is due at the unix time `now`.
func (d Deal) Next(now int64) Step {
	switch d.Phase {
	case Committing:
		if d.Commits < len(d.Labels) && now >= d.CommitDeadline {
			return VoidCommits
		}
	case Revealing:
		switch {
		case d.Reveals < len(d.Labels) && now >= d.RevealDeadline:
			return VoidReveals
		case d.Reveals < len(d.Labels):
			return None
		case !d.Random() && !d.InputLost:
			return Compute
		case !d.Random() && now >= d.RevealDeadline:
			return Expire
		case !d.Random():
			return None
		case now >= d.ExpiresAt():
			return Expire
		case now >= d.DrawAt():
			return Draw
		}
	}
	return None
}

// DueAt returns the first time at which the clock makes a step due, or false. It ignores InputLost,
// which the service notices only when it computes the result.
func (d Deal) DueAt() (int64, bool) {
	switch {
	case d.Phase == Committing && d.Commits < len(d.Labels):
		return d.CommitDeadline, true
	case d.Phase == Revealing && d.Reveals < len(d.Labels):
		return d.RevealDeadline, true
	case d.Phase == Revealing && d.Random():
		return min(d.DrawAt(), d.ExpiresAt()), true
	}
	return 0, false
}

// LookAt is DueAt, except that a deal that waits for its beacon round can be drawn from RoundTime on.
func (d Deal) LookAt(now int64) (int64, bool) {
	if d.Random() && d.AllRevealed() && now < *d.RoundTime {
		return *d.RoundTime, true
	}
	return d.DueAt()
}

// DrawAt returns when deadline-worker draws the result of a random.v1 deal that no party has drawn.
func (d Deal) DrawAt() int64 { return addSaturating(max(d.LastReveal, *d.RoundTime), DrawDelay) }

// ExpiresAt returns when a random.v1 deal ends as EXPIRED because no draw has succeeded.
func (d Deal) ExpiresAt() int64 {
	return addSaturating(max(d.RevealDeadline, *d.RoundTime), d.EntropyWindow)
}

func addSaturating(t, seconds int64) int64 {
	if t > math.MaxInt64-seconds {
		return math.MaxInt64
	}
	return t + seconds
}
