package outage

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/platform/timelimits"
)

// wire forwards TCP connections to a server. While the wire is locked, it still accepts connections
// but forwards nothing.
type wire struct {
	net.Listener
	sync.RWMutex
}

func newWire(t testing.TB, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	e2e.Must(t, err)
	w := &wire{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			go w.carry(near, far)
			go w.carry(far, near)
		}
	}()
	return w
}

func (w *wire) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		w.RLock()
		_, failed := to.Write(buffer[:n])
		w.RUnlock()
		if failed != nil || err != nil {
			return
		}
	}
}

// The key service first hangs for log-server, then for all processes, and then refuses
// connections. Every commit and reveal succeeds, and every deal is COMPUTED. A reveal waits at most
// timelimits.Issue for a signature. When deal-api knows of the outage, reveals no longer wait. Each
// certificate is issued once, after the outage.
func TestKeyServiceOutage(t *testing.T) {
	t.Parallel()
	const players, deals = 4, 20
	kms := e2e.KeyService(t)
	uri := kms.URI(kms.NewKey())
	logs, others := newWire(t, kms.Addr()), newWire(t, kms.Addr())
	by := func(w *wire) string {
		return e2e.OneKey(t, strings.ReplaceAll(uri, url.QueryEscape(kms.Addr()), url.QueryEscape(w.Addr().String())))
	}
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Env[""] = append(o.Env[""], by(others))
		o.Env[localstack.LogServer] = append(o.Env[localstack.LogServer], by(logs))
	})
	c, w := e2e.NewClient(t, stack.BaseURL()), e2e.OpenDB(t, stack)
	load := func(play func(*e2e.Client) (*e2e.UnfinishedDeal, time.Duration)) (took []time.Duration) {
		var mu sync.Mutex
		var group sync.WaitGroup
		for range players {
			group.Go(func() {
				for range deals / players {
					_, wait := play(c)
					mu.Lock()
					took = append(took, wait)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		return took
	}
	fault := func(fault kmstest.Fault) {
		if err := kms.SetFault(fault); err != nil {
			t.Errorf("set the fault %v of the key service: %v", fault, err)
		}
	}

	for _, outage := range []struct {
		what       string
		begin, end func()
	}{
		{"calls of the log-server hang", logs.Lock, logs.Unlock},
		{"all calls hang", func() { logs.Lock(); others.Lock() }, func() { logs.Unlock(); others.Unlock() }},
		{"all calls are refused", func() { fault(kmstest.Down) }, func() { fault(kmstest.None) }},
	} {
		for try := 1; ; try++ {
			calm := quantile(load(playedAndTimed), 0.5) // the median duration of a reveal without an outage
			outage.begin()
			took := load(playedWithoutKey)
			outage.end()
			back, half := time.Now(), quantile(took, 0.5)
			w.Converged()
			t.Logf("%s: reveal p50 %s (%s without it), longest %s; all certificates %s after its end",
				outage.what, half, calm, quantile(took, 1), time.Since(back).Round(time.Millisecond))
			// `half` is the median duration of a reveal during the outage. If deal-api
			// makes each reveal wait for the whole timelimits.Issue, all three tries fail. If only the
			// machine is slow, a later try passes.
			if half <= timelimits.Issue/2+2*calm {
				break
			}
			if try == 3 {
				t.Errorf("%s: the median reveal takes %s, want about the %s without an outage: reveals wait for a key service that is known to be down", outage.what, half, calm)
				break
			}
		}
	}
	e2e.Invariants(t, stack)
}

// playedWithoutKey plays a deal as playedAndTimed does, and requires that the certificate is not
// ready. The caller must first make the key service fail.
func playedWithoutKey(c *e2e.Client) (*e2e.UnfinishedDeal, time.Duration) {
	x, took := playedAndTimed(c)
	c.Refused(409, "CERT_NOT_READY", "GET", x.Deal.Path("/certificate"), x.Deal.Tokens[0], nil)
	return x, took
}

// playedAndTimed makes all calls of a two-party deal and returns the duration of its last
// reveal.
func playedAndTimed(c *e2e.Client) (*e2e.UnfinishedDeal, time.Duration) {
	x := e2e.LastReveal(c, 0)
	began := time.Now()
	a := x.Deal.Reveal(1, x.Inputs[1])
	took := time.Since(began)
	if !strings.Contains(string(a.Body), `"state":"COMPUTED"`) {
		c.T.Errorf("the last reveal: %s, want state COMPUTED", a.Body)
	}
	return x, took
}

// quantile returns the q-quantile of durations, rounded to milliseconds. It returns 0 if
// there are no durations.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Millisecond)
}
