// Package deal is the state machine of a deal (SPEC 3). It is pure: it takes a deal
// and a time, and returns the next step, or the reason why an action is refused.
//
//	phase        condition                                      step         next phase
//	COMMITTING   a party is missing at commit_deadline          VoidCommits  VOID
//	REVEALING    a party is missing at reveal_deadline          VoidReveals  VOID
//	REVEALING    a seal is not opened, at SealTime               OpenSeals    REVEALING
//	REVEALING    a seal is not opened, at ExpiresAt              Expire       EXPIRED
//	REVEALING    all have revealed, not random.v1               Compute      COMPUTED
//	REVEALING    all have revealed, not random.v1, and an       Expire       EXPIRED
//	             input cannot be decrypted, at reveal_deadline
//	REVEALING    all have revealed, random.v1, at DrawAt        Draw         COMPUTED
//	REVEALING    all have revealed, random.v1, at ExpiresAt     Expire       EXPIRED
//
// In every other case the step is None. Three changes of phase are not steps, because a party's call makes them: the last commit
// (COMMITTING -> REVEALING), a shapley.v1 rejection (REVEALING -> VOID) and a cancel
// (COMMITTING -> CANCELLED).
//
// A seal that is not opened belongs to a party that is not missing: no deadline voids the deal before
// the seals are opened. If their beacon round never comes, nobody is at fault.
//
// Next looks for missing parties before it looks at the clock. So a deadline never voids a
// deal in which all parties have acted, even if a process died before it took the step.
package deal

import (
	"fmt"
	"math"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// State is the state of a deal as clients see it (SPEC 3).
type State string

// The states. The database stores neither OPEN, which method State derives, nor CERTIFIED: a COMPUTED
// deal is shown as CERTIFIED once a quorum of witnesses has cosigned the leaf of its certificate.
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

// DrawDelay is how many seconds deadline-worker waits before it draws, so that a party can draw first (Deal.DrawsAtOnce).
const DrawDelay = 60

// Longest is the maximum number of seconds from the creation of a deal to its reveal deadline, and
// from the reveal deadline to the beacon round.
const Longest = 366 * 24 * 3600

// Terms are what the initiator declares about a deal. They never change. Times are unix seconds.
type Terms struct {
	Algorithm      string
	Params         []byte // algorithm_params in RFC 8785 form, with the members that the algorithm does not know
	Mode           string // sealed or open
	Retention      string // standard or purge
	Labels         []string
	SeatKeys       []*string // by party; nil element: no declared key; nil slice: no party has one
	CommitDeadline int64
	RevealDeadline int64
	Seals          string  // SealsRequired, or "": a commitment may come with or without a seal
	Audience       string  // AudiencePublic, or "": only the parties see the deal
	ActedBy        string  // ActedByInitiator, or "": each party acts for itself
	Title          string  // what the deal is about, in the initiator's words; "": none. Package ops applies the rules Title and Message
	Message        string  // what the initiator says to the other parties; "": nothing
	ChainHash      *string // the beacon chain; nil unless the algorithm is random.v1 or seals are required
	BeaconRound    *int64  // like RoundTime, nil unless the algorithm is random.v1
	RoundTime      *int64  // when the beacon round is due
}

// SealsRequired is Terms.Seals of a deal that takes no commitment without a seal.
const SealsRequired = "required"

// AudiencePublic is Terms.Audience of a deal that everybody who knows its id may read, but none of its inputs other than those of a draw.
const AudiencePublic = "public"

// ActedByInitiator is Terms.ActedBy of a draw in which the initiator acts for every party. Its randomness comes from the beacon alone.
const ActedByInitiator = "initiator"

// SeatKey returns a party's declared key, or nil.
func (t *Terms) SeatKey(party int) *string {
	if t.SeatKeys == nil {
		return nil
	}
	return t.SeatKeys[party]
}

// TextBytes returns the size of title and message.
func (t *Terms) TextBytes() int { return len(t.Title) + len(t.Message) }

// Random reports whether the deal waits for a beacon round after the reveals (random.v1).
func (t *Terms) Random() bool { return t.RoundTime != nil }

// Canonical returns the declaration: the terms in the RFC 8785 form whose digest seat keys and
// certificates name (certificate.DeclarationDigest). It returns an error if Params are malformed.
func (t *Terms) Canonical() ([]byte, error) {
	params, err := canon.ParseObject(t.Params)
	if err != nil {
		return nil, fmt.Errorf("algorithm_params: %w", err)
	}
	labels, keys := make([]any, len(t.Labels)), make([]any, len(t.Labels))
	for i, label := range t.Labels {
		labels[i] = label
		if key := t.SeatKey(i); key != nil {
			keys[i] = *key
		}
	}
	var chain any
	if t.ChainHash != nil {
		chain = *t.ChainHash
	}
	members := map[string]any{
		"algorithm": t.Algorithm, "algorithm_params": params, "beacon_chain": chain, "commit_deadline": t.CommitDeadline, "mode": t.Mode,
		"party_keys": keys, "party_labels": labels, "retention": t.Retention, "reveal_deadline": t.RevealDeadline,
	}
	for name, value := range map[string]string{"seals": t.Seals, "audience": t.Audience, "acted_by": t.ActedBy, "title": t.Title, "message": t.Message} {
		if value != "" {
			members[name] = value
		}
	}
	return canon.Encode(members), nil
}

// Snapshot is the changing part of a deal.
type Snapshot struct {
	Phase       State // never Open: method State derives OPEN from Phase and Commits
	Commits     int
	Reveals     int
	LastReveal  int64 // unix seconds, when the newest reveal was accepted; 0 if there is none
	SealTime    int64 // when the round of the seals is due; 0: no seals
	Pending     int   // REVEALING: seals that are not opened yet, of parties that have not revealed
	VoidFlakers []int // indexes of the parties that made the deal VOID, ascending
}

// Deal holds the facts that decide a deal's next step and permitted actions.
type Deal struct {
	ID string
	*Terms
	Snapshot
	EntropyWindow int64 // seconds from the later of RevealDeadline and RoundTime to ExpiresAt
	InputLost     bool  // a revealed input cannot be decrypted, so no result can be computed
}

// Step is a change of a deal's phase that is not a party's act.
type Step int

const (
	None Step = iota
	Compute
	Draw
	Expire
	OpenSeals
	VoidCommits
	VoidReveals
)

// State returns the state that clients see: Phase, or Open before the first commitment.
func (s Snapshot) State() State {
	if s.Phase == Committing && s.Commits == 0 {
		return Open // SPEC 3: the initial state
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
		case d.Pending > 0 && now >= d.ExpiresAt():
			return Expire
		case d.Pending > 0 && now >= d.SealTime:
			return OpenSeals
		case d.Pending > 0:
			return None
		case d.Reveals < len(d.Labels) && now >= d.RevealDeadline:
			return VoidReveals
		case d.Reveals < len(d.Labels):
			return None
		case !d.Random() && !d.InputLost:
			return Compute
		case !d.Random() && now < d.RevealDeadline:
			return None
		case !d.Random() || now >= d.ExpiresAt():
			return Expire
		case now >= d.DrawAt():
			return Draw
		}
	}
	return None
}

// DueAt returns the first time at which the clock makes a step due, or false. It ignores InputLost.
func (d Deal) DueAt() (int64, bool) {
	switch {
	case d.Phase == Committing && d.Commits < len(d.Labels):
		return d.CommitDeadline, true
	case d.Phase == Revealing && d.Pending > 0:
		return d.SealTime, true
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
func (d Deal) DrawAt() int64 {
	from := max(d.LastReveal, *d.RoundTime)
	if d.DrawsAtOnce() {
		return from
	}
	return addSaturating(from, DrawDelay)
}

// DrawsAtOnce reports whether the service draws as soon as the beacon round is out: a party with a seal does not
// come back, and an audience waits.
func (d Deal) DrawsAtOnce() bool { return d.SealTime != 0 || d.Audience != "" }

// ExpiresAt returns when a deal ends as EXPIRED because no draw has succeeded, or because its seals
// are not opened.
func (d Deal) ExpiresAt() int64 {
	from := d.RevealDeadline
	if d.Random() {
		from = max(from, *d.RoundTime)
	}
	return addSaturating(from, d.EntropyWindow)
}

func addSaturating(t, seconds int64) int64 { return min(t, math.MaxInt64-seconds) + seconds }

// Party says what one party of a deal has done.
type Party struct {
	Index     int
	Committed bool
	Revealed  bool
}

// The rules Commit, Reveal, Entropy and Cancel say why an action is refused at the unix time `now`, or
// nil. The service takes every due step except Draw first. Commit and Reveal still check the deadlines,
// so that an overdue deal never accepts a commit or reveal.

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
		return problem.New(problem.DeadlinePassed, "commit_deadline %d has passed (now %d); create a new deal with %s", d.CommitDeadline, now, createDeal)
	}
	return nil
}

// Reveal is the rule of a reveal.
func (d Deal) Reveal(p Party, now int64) *problem.Error {
	switch {
	case d.Ended():
		return d.ended(p)
	case p.Revealed:
		return problem.New(problem.AlreadyRevealed, "party %d has revealed; read the deal with %s", p.Index, d.call(problem.ReadDeal))
	case d.Phase == Committing && !p.Committed:
		return problem.New(problem.CommitsMissing, "party %d has not committed; call %s before commit_deadline %d", p.Index, d.call(problem.Commit), d.CommitDeadline)
	case d.Phase == Committing:
		return problem.New(problem.CommitsMissing, "%d of %d parties have committed; call %s until the state is REVEALING, then reveal", d.Commits, len(d.Labels), d.call(problem.ReadDeal))
	case now >= d.RevealDeadline:
		return problem.New(problem.DeadlinePassed, "reveal_deadline %d has passed (now %d); create a new deal with %s", d.RevealDeadline, now, createDeal)
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
		return problem.New(problem.DealEnded, "the deal is %s and has no result; create a new deal with %s", d.Phase, createDeal)
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

var createDeal = problem.Call{Op: problem.CreateDeal}

func (d Deal) ended(p Party) *problem.Error {
	missed := d.Phase == Void && slices.Contains(d.VoidFlakers, p.Index)
	switch {
	case missed && !p.Committed:
		return problem.New(problem.DeadlinePassed, "commit_deadline %d has passed and the deal is VOID; create a new deal with %s", d.CommitDeadline, createDeal)
	case missed && !p.Revealed:
		return problem.New(problem.DeadlinePassed, "reveal_deadline %d has passed and the deal is VOID; create a new deal with %s", d.RevealDeadline, createDeal)
	}
	return problem.New(problem.DealEnded, "the deal is %s; read the outcome with %s", d.Phase, d.call(problem.ReadDeal))
}

func (d Deal) call(op problem.Op) problem.Call { return problem.Call{Op: op, DealID: d.ID} }
