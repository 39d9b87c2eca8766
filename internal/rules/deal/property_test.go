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

// anyDeal returns a deal that the store can contain: no party reveals before all have
// committed, and counts are at most the number of parties.
func anyDeal(t *rapid.T) Deal {
	d := Deal{
		ID: "d_1", Terms: &Terms{
			Labels:         make([]string, rapid.IntRange(2, 5).Draw(t, "parties")),
			CommitDeadline: anyTime(t, "commit deadline"), RevealDeadline: anyTime(t, "reveal deadline"),
		},
	}
	d.Phase = rapid.SampledFrom(append([]State{Committing, Revealing, Revealing}, endedPhases...)).Draw(t, "phase")
	d.Commits = len(d.Labels)
	switch d.Phase {
	case Committing:
		d.Commits = rapid.IntRange(0, len(d.Labels)-1).Draw(t, "commits") // the last commit makes the deal REVEALING
	case Revealing:
		d.Reveals = rapid.IntRange(0, len(d.Labels)).Draw(t, "reveals")
	}
	if d.Reveals > 0 {
		d.LastReveal = anyTime(t, "last reveal")
	}
	if rapid.Bool().Draw(t, "random") {
		d.RoundTime = new(anyTime(t, "round time"))
		d.EntropyWindow = anyTime(t, "entropy window")
	}
	return d
}

func (d Deal) complete() bool {
	return d.Phase == Revealing && d.Reveals == len(d.Labels)
}

func holds(t *rapid.T, d Deal, now, later int64) {
	step := d.Next(now)
	if d.complete() && (step == VoidCommits || step == VoidReveals) {
		t.Fatalf("a complete deal has the step %d at %d, want no void: %+v", step, now, d)
	}
	if d.complete() && !d.Random() && step == None {
		t.Fatalf("a complete deal has no step at %d, want one: %+v", now, d)
	}
	if d.Ended() && step != None {
		t.Fatalf("an ended deal has step %d at %d, want none: %+v", step, now, d)
	}
	// Next returns a due step at every later time too. The exception is Draw, which becomes Expire
	// at the end of the entropy window.
	after := d.Next(max(now, later))
	if step != None && after != step && (step != Draw || after != Expire) {
		t.Fatalf("step %d, due at %d, became step %d at %d, want it unchanged: %+v", step, now, after, later, d)
	}
	at, some := d.DueAt()
	switch {
	case !some:
		if after != step && after != Expire {
			t.Fatalf("DueAt returns false, but step %d at %d becomes step %d at %d: %+v", step, now, after, later, d)
		}
	case d.Next(at) == None:
		t.Fatalf("DueAt = %d, but no step is due then: %+v", at, d)
	case at > math.MinInt64 && d.Next(at-1) != None:
		t.Fatalf("DueAt = %d, but step %d is due a second earlier: %+v", at, d.Next(at-1), d)
	}
	if step == VoidCommits || step == VoidReveals {
		for _, p := range []Party{{}, {Committed: true}, {Committed: true, Revealed: true}} {
			if d.Commit(p, now) == nil || d.Reveal(p, now) == nil {
				t.Fatalf("an overdue deal accepts a commit or reveal of %+v at %d, want a refusal: %+v", p, now, d)
			}
		}
	}
}

func TestProperties(t *testing.T) { rapid.Check(t, properties) }

func FuzzProperties(f *testing.F) { f.Fuzz(rapid.MakeFuzz(properties)) }

func properties(t *rapid.T) { holds(t, anyDeal(t), anyTime(t, "now"), anyTime(t, "later")) }
