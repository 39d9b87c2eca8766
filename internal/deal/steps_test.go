package deal

import (
	"fmt"
	"math"
	"testing"
)

// The deals of the tables: two parties, commits until 100, reveals until 200,
// and for random.v1 a round at 300 that may take until 1300.

func committing(commits int) Deal {
	return Deal{ID: "d_1", Phase: Committing, Parties: 2, Commits: commits, CommitDeadline: 100, RevealDeadline: 200}
}

func revealing(reveals int) Deal {
	d := committing(2)
	d.Phase, d.Reveals = Revealing, reveals
	if reveals > 0 {
		d.LastReveal = 150
	}
	return d
}

func drawing(reveals int) Deal {
	d := revealing(reveals)
	d.Random, d.RoundTime, d.EntropyWindow = true, 300, 1000
	return d
}

func ended(phase State) Deal {
	d := revealing(2)
	d.Phase = phase
	return d
}

var endedPhases = []State{Computed, Certified, Void, Expired, Cancelled}

// Who waits looks again when a deadline passes, when the deal can be drawn, and
// when the worker draws it.
func TestLookAt(t *testing.T) {
	for _, row := range []struct {
		what string
		deal Deal
		now  int64
		want int64 // 0: nothing more to come
	}{
		{"commits are missing", committing(1), 50, 100},
		{"reveals are missing", revealing(1), 150, 200},
		{"reveals are missing of a draw", drawing(1), 150, 200},
		{"the round is not out", drawing(2), 150, 300},
		{"the round is out", drawing(2), 300, 300 + DrawDelay},
		{"computed", ended(Computed), 150, 0},
		{"cancelled", ended(Cancelled), 50, 0},
	} {
		if at, more := row.deal.LookAt(row.now); at != row.want || more != (row.want != 0) {
			t.Errorf("%s: %d %v, want %d", row.what, at, more, row.want)
		}
	}
}

// SPEC 3, the rows that a clock or a last party brings about.
func TestNext(t *testing.T) {
	for _, row := range []struct {
		what string
		deal Deal
		now  int64
		want Step
	}{
		{"nobody has committed, in time", committing(0), 99, None},
		{"nobody has committed, at the deadline", committing(0), 100, VoidCommits},
		{"one is missing, in time", committing(1), 99, None},
		{"one is missing, at the deadline", committing(1), 100, VoidCommits},
		{"one is missing, after the reveal deadline as well", committing(1), 250, VoidCommits},
		{"all have committed, in time", committing(2), 99, Advance},
		{"all have committed and nobody advanced it until late", committing(2), 100, Advance},
		{"the same, after the reveal deadline", committing(2), 250, Advance},

		{"no reveal, in time", revealing(0), 199, None},
		{"no reveal, the commit deadline is over", revealing(0), 100, None},
		{"no reveal, at the deadline", revealing(0), 200, VoidReveals},
		{"one is missing, at the deadline", revealing(1), 200, VoidReveals},
		{"all have revealed", revealing(2), 150, Compute},
		{"all have revealed and nobody computed it until late", revealing(2), 1_000_000, Compute},

		{"random.v1, one is missing, in time", drawing(1), 199, None},
		{"random.v1, one is missing, at the deadline", drawing(1), 200, VoidReveals},
		{"random.v1, complete, the round is not out", drawing(2), 299, None},
		{"random.v1, complete, the round is out and left to the parties", drawing(2), 300, None},
		{"random.v1, complete, the last second of the parties", drawing(2), 359, None},
		{"random.v1, complete, the worker's turn", drawing(2), 360, Draw},
		{"random.v1, complete, the last second of the window", drawing(2), 1299, Draw},
		{"random.v1, complete, the window is over", drawing(2), 1300, Expire},
	} {
		t.Run(row.what, func(t *testing.T) {
			if got := row.deal.Next(row.now); got != row.want {
				t.Errorf("Next(%d) = %d, want %d", row.now, got, row.want)
			}
		})
	}
	for _, phase := range endedPhases {
		for _, now := range []int64{0, 100, 200, 1300, math.MaxInt64} {
			if got := ended(phase).Next(now); got != None {
				t.Errorf("%s: Next(%d) = %d, want none", phase, now, got)
			}
		}
	}
}

// A draw is left to the parties for DrawDelay after whichever comes later.
func TestDrawWaitsForTheLaterOfRevealAndRound(t *testing.T) {
	d := drawing(2)
	d.RoundTime, d.LastReveal = 120, 150
	if got := d.DrawAt(); got != 150+DrawDelay {
		t.Errorf("round before the last reveal: DrawAt = %d, want %d", got, 150+DrawDelay)
	}
	d.RoundTime = 300
	if got := d.DrawAt(); got != 300+DrawDelay {
		t.Errorf("round after the last reveal: DrawAt = %d, want %d", got, 300+DrawDelay)
	}
	// The window runs from the later of reveal deadline and round.
	d.RoundTime = 120
	if got := d.ExpiresAt(); got != 200+1000 {
		t.Errorf("round before the reveal deadline: ExpiresAt = %d, want 1200", got)
	}
}

func TestTimesSaturate(t *testing.T) {
	d := drawing(2)
	for _, row := range []struct{ round, window int64 }{
		{math.MaxInt64, 1000}, {math.MaxInt64 - 59, 1000}, {300, math.MaxInt64}, {math.MaxInt64, math.MaxInt64},
	} {
		d.RoundTime, d.EntropyWindow = row.round, row.window
		if at := d.DrawAt(); at < row.round {
			t.Errorf("round %d: DrawAt overflows to %d", row.round, at)
		}
		if at := d.ExpiresAt(); at != math.MaxInt64 {
			t.Errorf("round %d, window %d: ExpiresAt = %d, want the largest time", row.round, row.window, at)
		}
		if row.round > 1<<40 && d.Next(1<<53) != None {
			t.Errorf("round %d: Next(2^53) = %d, want none", row.round, d.Next(1<<53))
		}
	}
}

func TestDueAt(t *testing.T) {
	short := drawing(2)
	short.EntropyWindow = 10 // over before the worker's turn
	for _, row := range []struct {
		what string
		deal Deal
		want string
	}{
		{"someone has yet to commit", committing(1), "100 true"},
		{"all have committed: no clock brings the advance", committing(2), "0 false"},
		{"someone has yet to reveal", revealing(1), "200 true"},
		{"random.v1, someone has yet to reveal", drawing(1), "200 true"},
		{"all have revealed: no clock brings the result", revealing(2), "0 false"},
		{"random.v1, complete", drawing(2), "360 true"},
		{"random.v1, complete, a window shorter than DrawDelay", short, "310 true"},
		{"ended", ended(Computed), "0 false"},
	} {
		at, ok := row.deal.DueAt()
		if got := fmt.Sprint(at, ok); got != row.want {
			t.Errorf("%s: DueAt = %s, want %s", row.what, got, row.want)
		}
	}
}

// SPEC 3: the initial state is OPEN; OPEN and COMMITTING are one phase.
func TestState(t *testing.T) {
	if got := committing(0).State(); got != Open {
		t.Errorf("nobody has committed: %s", got)
	}
	if got := committing(1).State(); got != Committing {
		t.Errorf("one has committed: %s", got)
	}
	if got := drawing(2).State(); got != Revealing {
		t.Errorf("random.v1 waiting for its round: %s", got)
	}
	for _, phase := range endedPhases {
		d := ended(phase)
		d.Commits = 0
		if d.State() != phase || !d.Ended() {
			t.Errorf("%s shows as %s, ended %v", phase, d.State(), d.Ended())
		}
	}
}
