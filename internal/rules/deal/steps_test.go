package deal

import (
	"math"
	"testing"
)

func committing(commits int) Deal {
	return Deal{
		ID: "d_1", Terms: &Terms{Labels: make([]string, 2), CommitDeadline: 100, RevealDeadline: 200},
		Snapshot: Snapshot{Phase: Committing, Commits: commits},
	}
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
	d.RoundTime, d.EntropyWindow = new(int64(300)), 1000
	return d
}

// sealed returns a deal whose missing parties are not missing: their seals are not opened yet.
func sealed(d Deal) Deal {
	d.Pending, d.SealTime, d.EntropyWindow = len(d.Labels)-d.Reveals, 130, 1000
	return d
}

func ended(phase State) Deal {
	d := revealing(2)
	d.Phase = phase
	return d
}

func lost(d Deal) Deal {
	d.InputLost = true
	return d
}

var endedPhases = []State{Computed, Certified, Void, Expired, Cancelled}

// SPEC 3: the clock, or the last party's commit or reveal, makes a step due.
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

		{"no reveal, in time", revealing(0), 199, None},
		{"no reveal, the commit deadline is over", revealing(0), 100, None},
		{"no reveal, at the deadline", revealing(0), 200, VoidReveals},
		{"one is missing, at the deadline", revealing(1), 200, VoidReveals},
		{"all have revealed", revealing(2), 150, Compute},
		{"all have revealed, not computed until late", revealing(2), 1_000_000, Compute},

		{"random.v1, one is missing, in time", drawing(1), 199, None},
		{"random.v1, one is missing, at the deadline", drawing(1), 200, VoidReveals},
		{"random.v1, complete, the round is not published", drawing(2), 299, None},
		{"random.v1, complete, the round is published and the parties can draw", drawing(2), 300, None},
		{"random.v1, complete, the last second before the worker draws", drawing(2), 359, None},
		{"random.v1, complete, the worker's turn", drawing(2), 360, Draw},
		{"random.v1, complete, the last second of the window", drawing(2), 1299, Draw},
		{"random.v1, complete, the window is over", drawing(2), 1300, Expire},

		{"sealed, before the round", sealed(revealing(0)), 129, None},
		{"sealed, at the round", sealed(revealing(0)), 130, OpenSeals},
		{"sealed, the round is late", sealed(revealing(1)), 200, OpenSeals},
		{"sealed, the last second of the window", sealed(revealing(1)), 1199, OpenSeals},
		{"sealed, the window is over", sealed(revealing(1)), 1200, Expire},
		{"sealed, random.v1, the window is over", sealed(drawing(1)), 1300, Expire},

		{"an input is lost, in time", lost(revealing(2)), 199, None},
		{"an input is lost, at the deadline", lost(revealing(2)), 200, Expire},
		{"random.v1, an input is lost, the last second of the window", lost(drawing(2)), 1299, Draw},
		{"random.v1, an input is lost, the window is over", lost(drawing(2)), 1300, Expire},
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
				t.Errorf("%s: Next(%d) = %d, want %d (None)", phase, now, got, None)
			}
		}
	}
}

// DrawAt counts from the last reveal or the beacon round's time, whichever is later. ExpiresAt
// counts from the reveal deadline or the beacon round's time, whichever is later.
func TestDrawTimes(t *testing.T) {
	for _, row := range []struct{ round, draw, expiry int64 }{
		{120, 150 + DrawDelay, 200 + 1000}, {300, 300 + DrawDelay, 300 + 1000},
	} {
		d := drawing(2) // last reveal at 150
		d.RoundTime = &row.round
		if d.DrawAt() != row.draw || d.ExpiresAt() != row.expiry {
			t.Errorf("round at %d: DrawAt %d, ExpiresAt %d, want %d and %d", row.round, d.DrawAt(), d.ExpiresAt(), row.draw, row.expiry)
		}
		if d.SealTime = 100; d.DrawAt() != row.draw-DrawDelay {
			t.Errorf("round at %d, with seals: DrawAt %d, want %d", row.round, d.DrawAt(), row.draw-DrawDelay)
		}
		if d.SealTime, d.Audience = 0, AudiencePublic; d.DrawAt() != row.draw-DrawDelay {
			t.Errorf("round at %d, with an audience: DrawAt %d, want %d", row.round, d.DrawAt(), row.draw-DrawDelay)
		}
	}
}

func TestTimesSaturate(t *testing.T) {
	d := drawing(2)
	for _, row := range []struct{ round, window int64 }{
		{math.MaxInt64, 1000}, {math.MaxInt64 - 59, 1000}, {300, math.MaxInt64}, {math.MaxInt64, math.MaxInt64},
	} {
		d.RoundTime, d.EntropyWindow = &row.round, row.window
		if at := d.DrawAt(); at < row.round {
			t.Errorf("round %d: DrawAt = %d, want no time before the round", row.round, at)
		}
		if at := d.ExpiresAt(); at != math.MaxInt64 {
			t.Errorf("round %d, window %d: ExpiresAt = %d, want %d", row.round, row.window, at, int64(math.MaxInt64))
		}
		if row.round > 1<<40 && d.Next(1<<53) != None {
			t.Errorf("round %d: Next(2^53) = %d, want %d (None)", row.round, d.Next(1<<53), None)
		}
	}
}

// LookAt (when to read the deal again) differs from DueAt (when the next step is due) only
// before the beacon round's time. From that time a party can draw; deadline-worker draws later.
func TestDueAtAndLookAt(t *testing.T) {
	short := drawing(2)
	short.EntropyWindow = 10
	for _, row := range []struct {
		what      string
		deal      Deal
		now       int64
		due, look int64 // 0: DueAt or LookAt returns false
	}{
		{"commits are missing", committing(1), 50, 100, 100},
		{"all have committed: the advance waits for no time", committing(2), 50, 0, 0},
		{"reveals are missing", revealing(1), 150, 200, 200},
		{"random.v1, reveals are missing", drawing(1), 150, 200, 200},
		{"all have revealed: the result waits for no time", revealing(2), 150, 0, 0},
		{"random.v1, the round is not published", drawing(2), 150, 360, 300},
		{"random.v1, the round is published", drawing(2), 300, 360, 360},
		{"random.v1, a window shorter than DrawDelay", short, 300, 310, 310},
		{"ended", ended(Computed), 150, 0, 0},
	} {
		if at, ok := row.deal.DueAt(); at != row.due || ok != (row.due != 0) {
			t.Errorf("%s: DueAt = %d, %t; want %d, %t", row.what, at, ok, row.due, row.due != 0)
		}
		if at, ok := row.deal.LookAt(row.now); at != row.look || ok != (row.look != 0) {
			t.Errorf("%s: LookAt = %d, %t; want %d, %t", row.what, at, ok, row.look, row.look != 0)
		}
	}
}

// SPEC 3: the initial state is OPEN; OPEN and COMMITTING are one phase.
func TestState(t *testing.T) {
	for want, d := range map[State]Deal{Open: committing(0), Committing: committing(1), Revealing: drawing(2)} {
		if d.State() != want || d.Ended() {
			t.Errorf("%+v: State = %s, Ended = %t; want %s, false", d, d.State(), d.Ended(), want)
		}
	}
	for _, phase := range endedPhases {
		d := ended(phase)
		d.Commits = 0
		if d.State() != phase || !d.Ended() {
			t.Errorf("a deal of phase %s: State = %s, Ended = %t; want the phase, true", phase, d.State(), d.Ended())
		}
	}
}
