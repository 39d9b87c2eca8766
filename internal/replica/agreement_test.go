package replica

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

// Which key sets of a rotation fit each other, asked in both orders, and what a
// process that is refused is told to do.
func TestAgreement(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	sets := keys.sets(t)
	_, table := newTable(t, time.Hour)
	const (
		early   = "it was to sign before all had it. Start this process with the key that the others sign with, roll a key set with its new key as a next one out"
		behind  = "is not in the key set of this one. Give this process the key set and the signing key that the others have"
		late    = "no longer accepts the key of this one, and signs with what is only the next key here. Give this process the key set"
		soon    = "The key of the other is closed here: it was closed while a process still signed with it"
		strange = "Neither accepts the key of the other"
	)
	// By the set of who runs and of who comes; empty: they agree.
	says := map[[2]string]string{
		{"before", "promoted"}: early, {"promoted", "before"}: behind,
		{"before", "closed"}: early, {"closed", "before"}: strange,
		{"published", "closed"}: soon, {"closed", "published"}: late,
	}
	for _, name := range []string{"before", "published", "promoted", "closed"} {
		says[[2]string{name, "foreign"}], says[[2]string{"foreign", name}] = strange, strange
	}
	for running, ranWith := range sets {
		for coming, cameWith := range sets {
			if _, err := table.pool.Exec(t.Context(), "TRUNCATE replica.members"); err != nil {
				t.Fatal(err)
			}
			there, comer := memberWith(ranWith), memberWith(cameWith)
			if against := table.mustAnnounce(t, there); len(against) > 0 {
				t.Fatalf("the first was refused: %v", against)
			}
			against := table.mustAnnounce(t, comer)
			want := says[[2]string{running, coming}]
			if (want == "") != (len(against) == 0) {
				t.Errorf("%s comes while %s runs: %v, want %q", coming, running, against, want)
			}
			// The rule is written twice, in SQL and here: fairpactctl keys check uses this one.
			one, two := Process{SignsWith: there.signsWith, Accepts: there.accepts}, Process{SignsWith: comer.signsWith, Accepts: comer.accepts}
			if agree := !one.Rejects(two) && !two.Rejects(one); agree != (want == "") {
				t.Errorf("%s and %s: Rejects tells that they agree: %v", running, coming, agree)
			}
			if len(against) == 0 {
				continue
			}
			message := (&Gate{me: comer, keys: cameWith}).refusal(against).Error()
			for _, part := range []string{want, there.name, there.kind, there.signsWith, comer.signsWith, "keys.md"} {
				if !strings.Contains(message, part) {
					t.Errorf("%s comes while %s runs: want a word on %q in:\n%s", coming, running, part, message)
				}
			}
			// It wrote nothing, and the one that runs goes on.
			if against := table.mustAnnounce(t, there); len(against) > 0 {
				t.Errorf("%s was disturbed by %s: %v", running, coming, against)
			}
		}
	}
}

// Without a key set file one list of legacy keys serves both sides of a rotation.
func TestAgreementByLegacyKeys(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	_, table := newTable(t, time.Hour)
	for _, row := range []struct {
		current string
		legacy  []string
		in      bool
	}{
		{keys.old, nil, true},
		{keys.new, []string{keys.old}, false},
		{keys.old, []string{keys.old, keys.new}, true},
	} {
		set, err := signing.NewKeySet(row.current, row.legacy)
		if err != nil {
			t.Fatal(err)
		}
		if against := table.mustAnnounce(t, memberWith(set)); (len(against) == 0) != row.in {
			t.Errorf("%s with %v: %v", row.current, row.legacy, against)
		}
	}
	if _, err := table.pool.Exec(t.Context(), "DELETE FROM replica.members WHERE NOT $1 = ANY(accepts)", keys.new); err != nil {
		t.Fatal(err)
	}
	set, err := signing.NewKeySet(keys.new, []string{keys.old, keys.new})
	if err != nil {
		t.Fatal(err)
	}
	if against := table.mustAnnounce(t, memberWith(set)); len(against) > 0 {
		t.Errorf("after all have the list: %v", against)
	}
}

// Of processes that start at the same moment, all that get in agree.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	sets := newKeys(t).sets(t)
	_, table := newTable(t, time.Hour)
	for round := range 60 {
		start := make(chan struct{})
		in := map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, name := range []string{"before", "promoted", "before", "promoted"} {
			all.Go(func() {
				m := memberWith(sets[name])
				<-start
				if len(table.mustAnnounce(t, m)) == 0 {
					mu.Lock()
					in[name]++
					mu.Unlock()
				}
			})
		}
		close(start)
		all.Wait()
		if len(in) != 1 || in["before"]+in["promoted"] != 2 {
			t.Fatalf("round %d: %v got in, want the two of one key set", round, in)
		}
		if _, err := table.pool.Exec(t.Context(), "TRUNCATE replica.members"); err != nil {
			t.Fatal(err)
		}
	}
}

// However processes come, go, die and are written anew: one is let in exactly
// where it agrees with all that are live.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	const lifetime = time.Hour
	sets := newKeys(t).sets(t)
	_, table := newTable(t, lifetime)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"before", "published", "promoted", "closed", "foreign"}
	fit := func(a, b member) bool {
		has := func(m member, key string) bool { return strings.Contains(strings.Join(m.accepts, " "), key) }
		return has(a, b.signsWith) && has(b, a.signsWith)
	}
	var all []member
	live := map[string]bool{}
	admitted := 0
	for step := range 400 {
		if len(all) == 0 || random.IntN(3) == 0 {
			all = append(all, memberWith(sets[names[random.IntN(len(names))]]))
		}
		m := all[random.IntN(len(all))]
		switch random.IntN(5) {
		case 0:
			if err := table.leave(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			delete(live, m.name)
		case 1:
			if _, err := table.pool.Exec(t.Context(), "UPDATE replica.members SET seen_at = seen_at - make_interval(secs => $2) WHERE name = $1", m.name, lifetime.Seconds()); err != nil {
				t.Fatal(err)
			}
			delete(live, m.name)
		default:
			want := 0
			for _, other := range all {
				if other.name != m.name && live[other.name] && !fit(m, other) {
					want++
				}
			}
			against := table.mustAnnounce(t, m)
			if len(against) != want {
				t.Fatalf("seed %d, step %d: %d disagree, want %d", seed, step, len(against), want)
			}
			if want == 0 {
				live[m.name] = true
				admitted++
			}
		}
	}
	if admitted < 40 {
		t.Errorf("seed %d: only %d were let in: the test shows little", seed, admitted)
	}
}

// Only live processes are listed.
func TestRunning(t *testing.T) {
	t.Parallel()
	sets := newKeys(t).sets(t)
	url, table := newTable(t, lifetime)
	alive, dead := memberWith(sets["published"]), memberWith(sets["published"])
	for _, m := range []member{alive, dead} {
		table.mustAnnounce(t, m)
	}
	forged := memberWith(sets["published"])
	table.mustAnnounce(t, forged)
	// Ahead, so that the time that the test takes does not count.
	if _, err := table.pool.Exec(t.Context(), "UPDATE replica.members SET seen_at = clock_timestamp() + CASE name WHEN $1 THEN interval '14 seconds' WHEN $2 THEN interval '1 hour' ELSE interval '-15 seconds' END", alive.name, forged.name); err != nil {
		t.Fatal(err)
	}
	running, err := Running(t.Context(), url)
	if err != nil || len(running) != 1 || running[0].Name != alive.name || running[0].Kind != alive.kind || running[0].SignsWith != alive.signsWith || !slices.Equal(running[0].Accepts, alive.accepts) {
		t.Errorf("%+v, %v; want %+v alone", running, err, alive)
	}
	other := Process{SignsWith: sets["promoted"].Current(), Accepts: sets["promoted"].Accepted()}
	if running[0].Rejects(other) || !(Process{Accepts: sets["before"].Accepted()}).Rejects(other) {
		t.Error("who accepts what is wrong")
	}
}
