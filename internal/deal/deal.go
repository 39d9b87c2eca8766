// Package deal is the state machine of a deal, held against the contract's
// section 3. It is pure: it takes a deal and a time and says what comes next.
//
//	phase        what has happened                               next
//	COMMITTING   all have committed                              Advance  -> REVEALING
//	COMMITTING   now >= commit_deadline and someone is missing   Void     -> VOID, the missing are the flakers
//	REVEALING    all have revealed, not random.v1                Compute  -> COMPUTED
//	REVEALING    all have revealed, random.v1, draw time reached Draw     -> COMPUTED
//	REVEALING    the same, entropy window over                   Expire   -> EXPIRED
//	REVEALING    all have revealed, an input does not open       None until reveal_deadline (random.v1: the end of
//	                                                             the entropy window), then Expire -> EXPIRED
//	REVEALING    now >= reveal_deadline and someone is missing   Void     -> VOID, the missing are the flakers
//	any ended    -                                               None
//
// A shapley.v1 rejection (REVEALING -> VOID) and a cancel (COMMITTING ->
// CANCELLED) come with the call that makes them: see Reveal and Cancel.
//
// Whoever is missing is asked before the clock: a deal that is complete but was
// not advanced, because a process died in between, is never voided.
package deal

import "math"

// State is what a deal view shows (SPEC 3).
type State string

// The states. Open is shown, never stored: a deal is OPEN while it is in the
// phase Committing and nobody has committed. CERTIFIED follows COMPUTED only
// where witnesses are configured.
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

// States are all of them.
var States = []State{Open, Committing, Revealing, Computed, Certified, Void, Expired, Cancelled}

// DrawDelay is how many seconds after the later of the last reveal and the
// beacon round's time the worker draws by itself.
const DrawDelay = 60

// Deal is what decides what may happen to a deal. Times are unix seconds.
type Deal struct {
	ID             string
	Phase          State // never Open
	Parties        int
	Commits        int // how many parties have committed
	Reveals        int // how many parties have revealed
	CommitDeadline int64
	RevealDeadline int64
	LastReveal     int64 // when the newest reveal was accepted; 0 where there is none

	Random        bool  // random.v1: waits for its beacon round after the reveals
	RoundTime     int64 // when the beacon round is due; random.v1 only
	EntropyWindow int64 // seconds that an unpinned round may take before EXPIRED

	Unopened    bool  // an input that was revealed is lost: nothing can be computed
	VoidFlakers []int // ascending; VOID only
}

// Step is what a deal needs before anything else may happen to it.
type Step int

// The steps of the table above.
const (
	None Step = iota
	Advance
	Compute
	Draw
	Expire
	VoidCommits
	VoidReveals
)

// State is the state that a view shows.
func (d Deal) State() State {
	// SPEC 3: the initial state is OPEN.
	if d.Phase == Committing && d.Commits == 0 {
		return Open
	}
	return d.Phase
}

// Ended reports whether nothing can happen to the deal any more but its certificate.
func (d Deal) Ended() bool { return d.Phase != Committing && d.Phase != Revealing }

// AllRevealed reports whether the algorithm has all its inputs.
func (d Deal) AllRevealed() bool { return d.Phase == Revealing && d.Reveals == d.Parties }

// Next is the step that is due at now.
func (d Deal) Next(now int64) Step {
	switch d.Phase {
	case Committing:
		switch {
		case d.Commits == d.Parties:
			return Advance
		case now >= d.CommitDeadline:
			return VoidCommits
		}
	case Revealing:
		switch {
		case d.Reveals < d.Parties && now >= d.RevealDeadline:
			return VoidReveals
		case d.Reveals < d.Parties:
			return None
		case !d.Random && !d.Unopened:
			return Compute
		case !d.Random && now >= d.RevealDeadline:
			return Expire
		case !d.Random:
			return None
		case now >= d.ExpiresAt():
			return Expire
		case now >= d.DrawAt():
			return Draw
		}
	}
	return None
}

// DueAt is the first time at which the clock alone brings a step, and false
// where it brings none.
func (d Deal) DueAt() (int64, bool) {
	switch {
	case d.Phase == Committing && d.Commits < d.Parties:
		return d.CommitDeadline, true
	case d.Phase == Revealing && d.Reveals < d.Parties:
		return d.RevealDeadline, true
	case d.Phase == Revealing && d.Random:
		return min(d.DrawAt(), d.ExpiresAt()), true
	}
	return 0, false
}

// LookAt is the time by which to look at the deal again, however little has
// happened to it: its next deadline, the time from which it can be drawn, or when
// the worker draws it. It is false where the clock brings nothing more.
func (d Deal) LookAt(now int64) (int64, bool) {
	if d.Random && d.AllRevealed() && now < d.RoundTime {
		return d.RoundTime, true
	}
	return d.DueAt()
}

// DrawAt is when the worker draws a random.v1 deal that nobody has asked for.
func (d Deal) DrawAt() int64 { return later(max(d.LastReveal, d.RoundTime), DrawDelay) }

// ExpiresAt is when a random.v1 deal ends without a draw: its round could not
// be pinned, and no party is at fault.
func (d Deal) ExpiresAt() int64 { return later(max(d.RevealDeadline, d.RoundTime), d.EntropyWindow) }

func later(t, seconds int64) int64 {
	if t > math.MaxInt64-seconds {
		return math.MaxInt64
	}
	return t + seconds
}
