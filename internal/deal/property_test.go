package deal

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func anyTime(t *rapid.T, name string) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.Int64Range(1<<53-1000, 1<<53-1),
		rapid.Int64Range(math.MaxInt64-1000, math.MaxInt64),
	).Draw(t, name)
}

// anyDeal is a deal that the store can hold: nobody reveals before all have
// committed, and counts do not pass the number of parties.
func anyDeal(t *rapid.T) Deal {
	d := Deal{
		ID: "d_1", Parties: rapid.IntRange(2, 5).Draw(t, "parties"),
		CommitDeadline: anyTime(t, "commit deadline"), RevealDeadline: anyTime(t, "reveal deadline"),
		Random: rapid.Bool().Draw(t, "random"),
	}
	d.Phase = rapid.SampledFrom(append([]State{Committing, Revealing, Revealing}, endedPhases...)).Draw(t, "phase")
	d.Commits = d.Parties
	switch d.Phase {
	case Committing:
		d.Commits = rapid.IntRange(0, d.Parties).Draw(t, "commits")
	case Revealing:
		d.Reveals = rapid.IntRange(0, d.Parties).Draw(t, "reveals")
	}
	if d.Reveals > 0 {
		d.LastReveal = anyTime(t, "last reveal")
	}
	if d.Random {
		d.RoundTime = anyTime(t, "round time")
		d.EntropyWindow = anyTime(t, "entropy window")
	}
	return d
}

func (d Deal) complete() bool {
	return d.Phase == Committing && d.Commits == d.Parties || d.Phase == Revealing && d.Reveals == d.Parties
}

// holds checks what is true of every deal at every time.
func holds(t interface{ Fatalf(string, ...any) }, d Deal, now, later int64) {
	step := d.Next(now)
	if d.complete() && (step == VoidCommits || step == VoidReveals) {
		t.Fatalf("a complete deal is voided at %d: %+v", now, d)
	}
	if d.complete() && !d.Random && step == None {
		t.Fatalf("a complete deal waits for nothing at %d: %+v", now, d)
	}
	if d.Ended() && step != None {
		t.Fatalf("an ended deal has step %d at %d: %+v", step, now, d)
	}
	// Time undoes nothing: a step stays due until it is taken, but for the draw,
	// which gives way to the end of the window.
	after := d.Next(max(now, later))
	if step != None && after != step && (step != Draw || after != Expire) {
		t.Fatalf("step %d at %d is step %d at %d: %+v", step, now, after, later, d)
	}
	at, some := d.DueAt()
	switch {
	case !some:
		if after != step && after != Expire {
			t.Fatalf("no time is due, and step %d at %d becomes %d at %d: %+v", step, now, after, later, d)
		}
	case d.Next(at) == None:
		t.Fatalf("due at %d, and nothing is: %+v", at, d)
	case at > math.MinInt64 && d.Next(at-1) != None:
		t.Fatalf("due at %d, and step %d is due before: %+v", at, d.Next(at-1), d)
	}
	// An action counts while now < deadline; at now >= deadline it is late.
	if step == VoidCommits || step == VoidReveals {
		for _, p := range []Party{{}, {Committed: true}, {Committed: true, Revealed: true}} {
			if d.Commit(p, now) == nil || d.Reveal(p, now) == nil {
				t.Fatalf("an overdue deal takes an action of %+v at %d: %+v", p, now, d)
			}
		}
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holds(t, anyDeal(t), anyTime(t, "now"), anyTime(t, "later"))
	})
}

func FuzzNext(f *testing.F) {
	f.Add(uint8(0), uint8(2), uint8(2), uint8(0), int64(100), int64(200), int64(0), int64(0), int64(0), false, int64(100), int64(200))
	f.Add(uint8(1), uint8(2), uint8(2), uint8(2), int64(100), int64(200), int64(150), int64(300), int64(1000), true, int64(359), int64(1300))
	f.Add(uint8(1), uint8(3), uint8(3), uint8(3), int64(100), int64(200), int64(199), int64(120), int64(5), true, int64(204), int64(205))
	f.Add(uint8(1), uint8(2), uint8(2), uint8(2), int64(1), int64(1<<53-1), int64(1), int64(math.MaxInt64), int64(math.MaxInt64), true, int64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, phase, parties, commits, reveals uint8, commitDeadline, revealDeadline, lastReveal, roundTime, window int64, random bool, now, later int64) {
		d := Deal{
			ID: "d_1", Phase: append([]State{Committing, Revealing}, endedPhases...)[int(phase)%7], Parties: max(2, int(parties)),
			CommitDeadline: commitDeadline, RevealDeadline: revealDeadline, LastReveal: lastReveal,
			Random: random, RoundTime: roundTime, EntropyWindow: max(0, window),
		}
		d.Commits, d.Reveals = min(int(commits), d.Parties), min(int(reveals), d.Parties)
		holds(t, d, now, later)
	})
}
