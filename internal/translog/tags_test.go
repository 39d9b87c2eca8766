package translog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func (d *deployment) tagged(t testing.TB, l *Log, n int, tag Tag) (int64, error) {
	t.Helper()
	appended, err := l.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), tag)
	return appended.LeafIndex, err
}

func takenBy(leaf int64) func(int64, error) error {
	return func(_ int64, err error) error {
		if !errors.Is(err, ErrTagTaken) || !strings.HasSuffix(err.Error(), fmt.Sprintf("leaf %d", leaf)) {
			return fmt.Errorf("%v, want that leaf %d has the tag", err, leaf)
		}
		return nil
	}
}

func isAt(leaf int64) func(int64, error) error {
	return func(index int64, err error) error {
		if err != nil || index != leaf {
			return fmt.Errorf("leaf %d, %v; want leaf %d", index, err, leaf)
		}
		return nil
	}
}

// The log takes one entry with a tag, whatever way the next one comes.
func TestATagHasOneEntry(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l, other := d.open(t, d.pool, nil), d.open(t, openPool(t, d.url), nil)
	tag := func(n int) Tag { return Tag(entryOf(1000 + n)) }

	check(t, isAt(0)(d.tagged(t, l, 0, tag(0))))
	t.Run("the same entry keeps its leaf", func(t *testing.T) {
		for _, replica := range []*Log{l, other} {
			check(t, isAt(0)(d.tagged(t, replica, 0, tag(0))))
			check(t, isAt(0)(d.tagged(t, replica, 0, Tag{})))
		}
	})
	t.Run("another entry is refused", func(t *testing.T) {
		for _, replica := range []*Log{l, other} {
			check(t, takenBy(0)(d.tagged(t, replica, 1, tag(0))))
		}
	})
	t.Run("another entry without a tag, as the release before sends it", func(t *testing.T) {
		check(t, isAt(1)(d.tagged(t, l, 1, Tag{})))
	})
	t.Run("a leaf without a tag is tagged", func(t *testing.T) {
		check(t, takenBy(0)(d.tagged(t, l, 1, tag(0))))
		check(t, isAt(1)(d.tagged(t, other, 1, tag(1))))
		// The head has not moved, and this replica last appended alone.
		check(t, takenBy(1)(d.tagged(t, l, 2, tag(1))))
	})
	t.Run("in one batch", func(t *testing.T) {
		for what, warm := range map[string]bool{"in one statement": true, "under the lock": false} {
			size := committedSize(t, d)
			base := int(size) * 10
			c := func(n int, tag Tag) candidate { return candidate{entryOf(base + n), math.MaxInt64, tag} }
			if warm {
				check(t, second(l.sequencer.sequence(t.Context(), candidatesOf(base+9, base+10))))
				size++
			} else {
				l.sequencer.known = nil
			}
			places, err := l.sequencer.sequence(t.Context(), []candidate{
				c(0, tag(base)), c(1, tag(base)), c(0, tag(base)), c(2, Tag{}), c(2, tag(base+1)), c(3, tag(0))})
			check(t, err)
			want := []place{{size, false}, {size, true}, {size, false}, {size + 1, false}, {size + 1, false}, {0, true}}
			if fmt.Sprint(places) != fmt.Sprint(want) || committedSize(t, d) != size+2 {
				t.Errorf("%s: %v, want %v, in a log of %d", what, places, want, size)
			}
			check(t, takenBy(size+1)(d.tagged(t, other, base+4, tag(base+1))))
		}
	})
	t.Run("one refused for its key does not take the tag", func(t *testing.T) {
		places, err := l.sequencer.sequence(t.Context(), []candidate{{entryOf(900), 0, tag(900)}, {entryOf(901), math.MaxInt64, tag(900)}})
		check(t, err)
		if places[0].index != late || places[1].taken || places[1].index < 0 {
			t.Errorf("%v", places)
		}
	})
	sound(t, l, other)
}

// Of many entries that come with one tag at once, to two replicas, one is logged.
func TestTagsOfTwoReplicasAtOnce(t *testing.T) {
	t.Parallel()
	const tags, each = 12, 8
	d := newDeployment(t)
	replicas := []*Log{d.open(t, d.pool, nil), d.open(t, openPool(t, d.url), nil)}
	var logged [tags][each]bool
	var group sync.WaitGroup
	for n := range tags * each {
		group.Go(func() {
			_, err := d.tagged(t, replicas[n%2], n, Tag(entryOf(1000+n/each)))
			if err != nil && !errors.Is(err, ErrTagTaken) {
				t.Errorf("entry %d: %v", n, err)
			}
			logged[n/each][n%each] = err == nil
		})
	}
	group.Wait()
	for n, all := range logged {
		won := 0
		for _, one := range all {
			if one {
				won++
			}
		}
		if won != 1 {
			t.Errorf("tag %d: %d entries of %d were logged", n, won, each)
		}
	}
	if size := committedSize(t, d); size != tags {
		t.Errorf("%d leaves for %d tags", size, tags)
	}
	sound(t, replicas...)
}

// An old leaf is tagged in a transaction that leaves the head alone. An append
// with that tag, which cannot see it yet, waits for it and is refused.
func TestATagIsTakenDuringAnAppend(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	for n := range 2 {
		d.mustAppend(t, l, n)
	}
	for leaf, way := range []string{"in one statement", "under the lock"} {
		if leaf == 1 {
			l.sequencer.known = nil
		}
		tag := Tag(entryOf(1000 + leaf))
		tx, err := d.pool.Begin(t.Context())
		check(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		_, err = tx.Exec(t.Context(), "INSERT INTO translog.tags (tag, leaf_index) VALUES ($1, $2)", tag[:], leaf)
		check(t, err)
		answered := make(chan error, 1)
		go func() { answered <- takenBy(int64(leaf))(d.tagged(t, l, 2, tag)) }()
		eventually(t, "the append waits, "+way, func() bool {
			rows, err := d.pool.Query(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
			check(t, err)
			waiting, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			check(t, err)
			return waiting > 0
		})
		check(t, tx.Commit(t.Context()))
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
	if size := committedSize(t, d); size != 2 || l.ProofFailures() != 0 {
		t.Errorf("%d leaves, %d contradictions", size, l.ProofFailures())
	}
	check(t, isAt(2)(d.tagged(t, l, 2, Tag(entryOf(1002)))))
}

// The append port takes a tag, none, and nothing else for one.
func TestTagsOverTheAppendPort(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	const secret = "the append secret"
	server := httptest.NewServer(l.AppendHandler(secret))
	t.Cleanup(server.Close)
	client := NewClient(server.URL, "", secret)
	add := func(n int, tag Tag) (int64, error) {
		return client.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), tag)
	}
	tag := Tag(entryOf(1000))
	check(t, isAt(0)(add(0, Tag{}))) // the body that the release before sends
	check(t, isAt(0)(add(0, tag)))
	_, err := add(1, tag)
	if !errors.Is(err, ErrTagTaken) || !strings.Contains(err.Error(), "leaf 0") {
		t.Errorf("another entry: %v", err)
	}
	for _, bad := range []string{"00", strings.Repeat("A", 64), strings.Repeat("ab", 33)} {
		body := fmt.Sprintf(`{"entry":"%x","signature":%q,"tag":%q}`, entryOf(2), d.sign(t, entryOf(2)), bad)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+appendPath, strings.NewReader(body))
		check(t, err)
		request.Header.Set("Authorization", "Bearer "+secret)
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("tag %q: status %d", bad, response.StatusCode)
		}
	}
	if size := committedSize(t, d); size != 1 {
		t.Errorf("%d leaves", size)
	}
}

// Leaves of a release without tags are tagged once, and only as what they are.
func TestTagLeaves(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	l := d.open(t, d.pool, nil)
	fill(t, l, 0, 3)
	tag := func(n int) Tag { return Tag(entryOf(1000 + n)) }
	for _, x := range []struct {
		what    string
		leaf    TaggedLeaf
		without int
	}{
		{"a leaf", TaggedLeaf{0, entryOf(0), tag(0)}, 0},
		{"the same again", TaggedLeaf{0, entryOf(0), tag(0)}, 0},
		{"a leaf that has another entry", TaggedLeaf{1, entryOf(0), tag(1)}, 1},
		{"a leaf that is not there", TaggedLeaf{7, entryOf(7), tag(7)}, 1},
		{"a tag of another leaf", TaggedLeaf{1, entryOf(1), tag(0)}, 1},
	} {
		without, err := TagLeaves(t.Context(), d.pool, []TaggedLeaf{x.leaf, {2, entryOf(2), tag(2)}})
		check(t, err)
		if len(without) != x.without || x.without == 1 && without[0] != x.leaf.Index {
			t.Errorf("%s: without their tag are %v", x.what, without)
		}
	}
	if untagged, err := Untagged(t.Context(), d.pool); err != nil || fmt.Sprint(untagged) != "[1]" {
		t.Errorf("untagged: %v, %v", untagged, err)
	}
	check(t, takenBy(2)(d.tagged(t, l, 3, tag(2))))
}
