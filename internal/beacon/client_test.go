package beacon_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/beacon"
	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// network is an http.RoundTripper without sockets, because synctest cannot fake time for
// sockets. `hosts` maps a relay's host name to its handler. Every other host refuses
// connections.
type network struct {
	hosts map[string]http.Handler

	mu    sync.Mutex
	asked []string
	open  int
	at    []time.Time
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.asked = append(n.asked, r.URL.Host)
	n.at = append(n.at, time.Now())
	n.open++
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open--
	}()
	handler := n.hosts[r.URL.Host]
	if handler == nil {
		return nil, errors.New("connect: connection refused")
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

func (n *network) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked)
}

const testRound = 1000

var (
	good    = newBeacon("good")
	other   = newBeacon("other")
	goodSig = hex.EncodeToString(good.Sign(testRound))
)

var today = time.Unix(drand.Quicknet().RoundTime(testRound)+1_000_000, 0)

func newBeacon(seed string) *devbeacon.Server {
	s := devbeacon.New([]byte(seed))
	s.Now = func() time.Time { return today }
	return s
}

func says(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
}

func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

var silent = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

func after(d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

func roundJSON(round int64, randomness any, signature string) string {
	body := map[string]any{"round": round, "signature": signature}
	if randomness != nil {
		body["randomness"] = randomness
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func clientOf(hosts map[string]http.Handler, names ...string) (*beacon.Client, *network) {
	n := &network{hosts: hosts}
	var relays []string
	for _, name := range names {
		relays = append(relays, "http://"+name)
	}
	client := beacon.NewClient(good.Chain(), relays)
	client.SetTransport(n)
	client.SetNow(func() time.Time { return today })
	return client, n
}

func checkRound(t *testing.T, got beacon.Round, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	randomness, err := good.Chain().Verify(testRound, good.Sign(testRound))
	if err != nil {
		t.Fatal(err)
	}
	if want := (beacon.Round{Round: testRound, Randomness: hex.EncodeToString(randomness[:]), Signature: goodSig}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The error names each relay only by its host, because the rest of the address may contain
// a secret.
func TestRelaysThatFail(t *testing.T) {
	for name, bad := range map[string]struct {
		relay http.Handler
		says  string
	}{
		"dead":                     {nil, "connection refused"},
		"silent":                   {silent, "no answer within"},
		"500":                      {status(500), "status 500"},
		"404 for a round that was": {status(404), "status 404"},
		"redirect to nowhere":      {status(302), "302"},
		"empty":                    {says(""), "not the JSON"},
		"garbage":                  {says("<html>"), "not the JSON"},
		"just over the bound":      {says(roundJSON(testRound, nil, goodSig) + strings.Repeat(" ", beacon.MaxBody)), "over"},
		"no signature":             {says(`{"round":1000}`), "does not verify"},
		"signature is no hex":      {says(roundJSON(testRound, nil, "zz")), "not hex"},
		"signature is cut":         {says(roundJSON(testRound, nil, goodSig[:94])), "does not verify"},
		"infinity":                 {says(roundJSON(testRound, nil, "c0"+strings.Repeat("00", 47))), "infinity"},
		"signature of another round": {
			says(roundJSON(testRound, nil, hex.EncodeToString(good.Sign(testRound+1)))), "does not verify"},
		"signature by another key": {
			says(roundJSON(testRound, nil, hex.EncodeToString(other.Sign(testRound)))), "does not verify"},
		"valid, of another round": {
			says(roundJSON(testRound+1, nil, hex.EncodeToString(good.Sign(testRound+1)))), "round 1001"},
		"wrong randomness": {says(roundJSON(testRound, strings.Repeat("0", 64), goodSig)), "randomness"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, order := range [][]string{{"bad", "good"}, {"good", "bad"}, {"bad", "bad2", "good"}} {
					client, _ := clientOf(map[string]http.Handler{"bad": bad.relay, "bad2": bad.relay, "good": good}, order...)
					got, err := client.Fetch(t.Context(), testRound)
					checkRound(t, got, err)
				}
				client, _ := clientOf(map[string]http.Handler{"relay.one": bad.relay, "relay.two:8080": status(503)},
					"user:secret-1@relay.one/secret-2/", "relay.two:8080/secret-3")
				got, err := client.Fetch(t.Context(), testRound)
				if got != (beacon.Round{}) || !errors.Is(err, beacon.ErrUnavailable) || errors.Is(err, beacon.ErrNotYet) {
					t.Fatalf("Fetch: %+v, %v; want only ErrUnavailable", got, err)
				}
				for _, want := range []string{"relay.one: ", bad.says, "relay.two:8080: status 503"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error does not say %q: %v", want, err)
					}
				}
				if strings.Contains(err.Error(), "secret") || len(err.Error()) > 1000 {
					t.Errorf("the error is too long or shows a secret: %v", err)
				}
			})
		})
	}
}

func TestRandomnessMayBeLeftOutOrUpperCase(t *testing.T) {
	randomness, err := good.Chain().Verify(testRound, good.Sign(testRound))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"left out":   roundJSON(testRound, nil, goodSig),
		"upper case": roundJSON(testRound, fmt.Sprintf("%X", randomness), strings.ToUpper(goodSig)),
		"with more":  `{"previous_signature":"",` + roundJSON(testRound, nil, goodSig)[1:],
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := clientOf(map[string]http.Handler{"a": says(body)}, "a")
			got, err := client.Fetch(t.Context(), testRound)
			checkRound(t, got, err)
		})
	}
}

func TestNotYet(t *testing.T) {
	due := good.Chain().RoundTime(testRound)
	early, late := time.Unix(due-1, 0), time.Unix(due, 0)
	lying := says(roundJSON(testRound, nil, hex.EncodeToString(other.Sign(testRound))))
	for name, c := range map[string]struct {
		now  time.Time
		a, b http.Handler
		want error
	}{
		"all say 425":                       {early, status(425), status(425), beacon.ErrNotYet},
		"all say 425, our clock is ahead":   {late, status(425), status(425), beacon.ErrNotYet},
		"425 and 404 before its time":       {early, status(425), status(404), beacon.ErrNotYet},
		"425 and 404 after its time":        {late, status(425), status(404), beacon.ErrUnavailable},
		"425 and a dead one before":         {early, status(425), nil, beacon.ErrNotYet},
		"425 and a dead one after":          {late, nil, status(425), beacon.ErrUnavailable},
		"425 and a lying one after":         {late, lying, status(425), beacon.ErrUnavailable},
		"all dead before its time":          {early, nil, nil, beacon.ErrUnavailable},
		"425, but another relay has it":     {late, status(425), good, nil},
		"our clock is behind, one has it":   {early, status(404), good, nil},
		"our clock is behind, first has it": {early, good, silent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := clientOf(map[string]http.Handler{"a": c.a, "b": c.b}, "a", "b")
			client.SetNow(func() time.Time { return c.now })
			got, err := client.Fetch(t.Context(), testRound)
			if c.want == nil {
				checkRound(t, got, err)
				return
			}
			other := beacon.ErrNotYet
			if c.want == other {
				other = beacon.ErrUnavailable
			}
			if got != (beacon.Round{}) || !errors.Is(err, c.want) || errors.Is(err, other) {
				t.Errorf("Fetch: %+v, %v; want no round and %v", got, err, c.want)
			}
		})
	}
}

func TestNoRequestForInvalidRoundsOrCancelledCallers(t *testing.T) {
	client, n := clientOf(map[string]http.Handler{"a": good}, "a")
	for _, round := range []int64{0, -1, drand.MaxRound + 1} {
		if _, err := client.Fetch(t.Context(), round); !errors.Is(err, drand.ErrBadRound) {
			t.Errorf("round %d: %v, want ErrBadRound", round, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Fetch(gone, testRound); !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch with a cancelled context: %v, want context.Canceled", err)
	}
	if asked := n.requests(); len(asked) != 0 {
		t.Errorf("relays asked: %v, want none", asked)
	}
	if _, err := client.Fetch(t.Context(), drand.MaxRound); !errors.Is(err, beacon.ErrNotYet) {
		t.Errorf("the last round: %v, want ErrNotYet", err)
	}
}

func TestRequestsOfTheRace(t *testing.T) {
	const h = beacon.HedgeDelay
	for name, c := range map[string]struct {
		relays []http.Handler
		asked  []time.Duration
		took   time.Duration
		ok     bool
	}{
		"the first answers at once": {[]http.Handler{good, good, good}, []time.Duration{0}, 0, true},
		"the first is a little slow": {
			[]http.Handler{after(h/2, good), good, good}, []time.Duration{0}, h / 2, true},
		"the first is silent": {[]http.Handler{silent, good, good}, []time.Duration{0, h}, h, true},
		"the first two are":   {[]http.Handler{silent, silent, good}, []time.Duration{0, h, 2 * h}, 2 * h, true},
		"the slow one still wins": {
			[]http.Handler{after(h+h/2, good), silent, good}, []time.Duration{0, h}, h + h/2, true},
		"the first fails, all are asked": {
			[]http.Handler{status(500), after(h/4, good), silent}, []time.Duration{0, 0, 0}, h / 4, true},
		"the second fails": {
			[]http.Handler{silent, status(500), good, silent}, []time.Duration{0, h, h, h}, h, true},
		"all are silent": {
			[]http.Handler{silent, silent, silent}, []time.Duration{0, h, 2 * h}, beacon.RelayTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hosts := map[string]http.Handler{}
				var names []string
				for i, relay := range c.relays {
					name := fmt.Sprint("relay", i)
					hosts[name], names = relay, append(names, name)
				}
				client, n := clientOf(hosts, names...)
				start := time.Now()
				got, err := client.Fetch(t.Context(), testRound)
				took := time.Since(start)
				if c.ok {
					checkRound(t, got, err)
				} else {
					if !errors.Is(err, beacon.ErrUnavailable) {
						t.Errorf("Fetch: %v, want ErrUnavailable", err)
					}
					// Fetch fails when the last request times out. The table's c.took is the timeout of
					// one request, so add the time at which the last request starts.
					c.took += c.asked[len(c.asked)-1]
				}
				if took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				synctest.Wait()
				if n.open != 0 {
					t.Errorf("%d requests are still open, want all cancelled", n.open)
				}
				var asked []time.Duration
				for _, at := range n.at {
					asked = append(asked, at.Sub(start))
				}
				if !slices.Equal(asked, c.asked) {
					t.Errorf("asked at %v, want %v", asked, c.asked)
				}
			})
		})
	}
}

func TestOnlyVerifiedRoundsAreKept(t *testing.T) {
	hosts := map[string]http.Handler{"a": status(500)}
	client, n := clientOf(hosts, "a")
	if _, err := client.Fetch(t.Context(), testRound); !errors.Is(err, beacon.ErrUnavailable) {
		t.Fatalf("Fetch: %v, want ErrUnavailable", err)
	}
	hosts["a"] = good
	for range 3 {
		got, err := client.Fetch(t.Context(), testRound)
		checkRound(t, got, err)
	}
	hosts["a"] = status(500)
	got, err := client.Fetch(t.Context(), testRound)
	checkRound(t, got, err)
	if asked := n.requests(); len(asked) != 2 {
		t.Errorf("asked %d times, want once in vain and once", len(asked))
	}
}

func TestOneRaceForAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, n := clientOf(map[string]http.Handler{"a": after(beacon.HedgeDelay/2, good)}, "a")
		first, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := client.Fetch(first, testRound); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that gave up: %v, want context.Canceled", err)
			}
		})
		synctest.Wait()
		for range 16 {
			all.Go(func() {
				got, err := client.Fetch(t.Context(), testRound)
				checkRound(t, got, err)
			})
		}
		synctest.Wait()
		giveUp()
		all.Wait()
		if asked := n.requests(); len(asked) != 1 {
			t.Errorf("asked %d times, want once", len(asked))
		}
	})
}

// Deals may name any old rounds, but the relays are asked for few of them. That delays no recent round.
func TestRelaysAreAskedForFewOldRounds(t *testing.T) {
	client, n := clientOf(map[string]http.Handler{"a": status(500)}, "a")
	now := today
	client.SetNow(func() time.Time { return now })
	newest := good.Chain().RoundAt(today.Unix())
	busy := func(from int64, rounds int) (refused int) {
		for i := range int64(rounds) {
			_, err := client.Fetch(t.Context(), from-i)
			if !errors.Is(err, beacon.ErrUnavailable) {
				t.Fatal(err)
			}
			if errors.Is(err, beacon.ErrBusy) {
				refused++
			}
		}
		return refused
	}
	for _, row := range []struct {
		from    int64
		rounds  int
		refused int
		after   time.Duration
	}{{1000, 100, 80, 0}, {newest, 60, 0, 0}, {newest, 10, 10, 0}, {900, 10, 8, time.Second}, {newest, 10, 5, 0}} {
		now = now.Add(row.after)
		if got := busy(row.from, row.rounds); got != row.refused {
			t.Errorf("%+v: %d are refused", row, got)
		}
	}
	if asked := len(n.requests()); asked != 20+60+2+5 {
		t.Errorf("the relay was asked %d times", asked)
	}
}

func TestCheckRelays(t *testing.T) {
	if err := beacon.CheckRelays([]string{"https://api.drand.sh", "http://127.0.0.1:8090/", "https://x/with/path"}); err != nil {
		t.Error(err)
	}
	for _, relays := range [][]string{nil, {""}, {"api.drand.sh"}, {"ftp://x"}, {"https://"}, {"https://x?a=secret"}, {"https://x#y"}, {"https://api.drand.sh", "http://secret:%zz"}} {
		if err := beacon.CheckRelays(relays); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("CheckRelays(%v): %v, want an error without the address", relays, err)
		}
	}
}
