package replica

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The rows of those that run are all dead at once where the database was away or
// its clock jumped. One that they kept out does not overtake them then: it only
// looks, for as long as they need to come back.
func TestThoseThatRanGoFirst(t *testing.T) {
	t.Parallel()
	sets := newKeys(t).sets(t)
	url, table := newTable(t, long)
	ran := memberWith(sets["before"])
	table.mustAnnounce(t, ran)
	patient := quickTimes()
	patient.looks = 1 << 30
	g := openWith(t, url, sets["promoted"], patient)
	g.refusedAnew(t)
	if _, err := table.pool.Exec(t.Context(), "UPDATE replica.members SET seen_at = seen_at - make_interval(secs => $1)", long.Seconds()); err != nil {
		t.Fatal(err)
	}
	g.awaitAnswers(t, 3)
	if err := g.Ready(); err == nil || !strings.Contains(err.Error(), "go first") {
		t.Errorf("ready: %v, want a word on who goes first", err)
	}
	if against := table.mustAnnounce(t, ran); len(against) > 0 {
		t.Errorf("one that ran was overtaken by one that it had kept out: %v", against)
	}
	if err := g.refusedAnew(t); !strings.Contains(err.Error(), ran.name) {
		t.Errorf("%v, want the name of %s", err, ran.name)
	}
}

// Only looks in a row count, and only of one that was kept out.
func TestOwes(t *testing.T) {
	t.Parallel()
	away := errors.New("no answer")
	for _, row := range []struct {
		owed    int
		keptOut bool
		against int
		err     error
		want    int
	}{
		{0, false, 0, nil, 0}, {0, false, 1, nil, 0}, {0, false, 0, away, 0},
		{0, true, 1, nil, 16}, {16, true, 0, nil, 15}, {1, true, 0, nil, 0},
		{3, true, 2, nil, 16}, {3, true, 0, away, 16}, {0, true, 0, away, 16},
	} {
		if got := owes(row.owed, 16, row.keptOut, row.against, row.err); got != row.want {
			t.Errorf("%+v: %d", row, got)
		}
	}
	if times := timesFor(lifetime); time.Duration(times.looks)*times.retry < 2*times.beat || times.retry+times.try >= 2*times.beat {
		t.Errorf("%+v: those that ran may need a try and a retry to come back", times)
	}
}
