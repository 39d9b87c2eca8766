package abuse

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

const attackTime = time.Second

// Reads of the largest certificate that a stranger can have made. What a victim's
// calls take beside them is logged: a verdict on time would be one on the machine.
func TestLargeCertificate(t *testing.T) {
	t.Parallel()
	stack := e2e.Own(t, nil)
	c := e2e.NewClient(t, stack.BaseURL())
	labels := make([]string, 10_000)
	for i := range labels {
		labels[i] = fmt.Sprintf("%05d%s", i, strings.Repeat("x", 45))
	}
	round := e2e.BeaconChain(t).RoundAt(time.Now().Add(3*hour).Unix()) + 1
	body := e2e.RandomBody(2, round, 3*time.Second, hour)
	body["party_labels"] = labels
	d := c.Create(body)
	d.Certified(e2e.Patience) // VOID: nobody commits
	certID := *d.View().CertificateID

	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+d.Tokens[1]) }
	attacks := []struct {
		name, path string
		change     func(*http.Request)
	}{
		{"status", "/v1/status", func(*http.Request) {}},
		{"verify", "/v1/verify/" + certID, func(*http.Request) {}},
		{"certificate", d.Path("/certificate"), bearer},
		{"view", d.Path(""), bearer},
		{"status again", "/v1/status", func(*http.Request) {}},
	}
	for _, attack := range attacks {
		var stop atomic.Bool
		var calls, answered, bytes atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
				defer client.CloseIdleConnections()
				for !stop.Load() {
					r, _ := http.NewRequest("GET", c.Base+attack.path, nil)
					attack.change(r)
					answer, err := client.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					n, _ := io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					if answer.StatusCode == 200 {
						answered.Add(1)
					}
					if answer.StatusCode != 200 && answer.StatusCode != 503 {
						t.Errorf("%s: %d", attack.name, answer.StatusCode)
						return
					}
					calls.Add(1)
					bytes.Add(n)
				}
			})
		}
		key := c.Key()
		var took []time.Duration
		began := time.Now()
		for time.Since(began) < attackTime {
			at := time.Now()
			c.CreateWith(key, e2e.SplitBody(hour, 2*hour))
			took = append(took, time.Since(at))
		}
		stop.Store(true)
		all.Wait()
		if answered.Load() == 0 {
			t.Errorf("%s: every call was refused", attack.name)
		}
		slices.Sort(took)
		t.Logf("%-12s %6.0f calls/s, %7d bytes each; a victim's POST p50 %v, p99 %v", attack.name, float64(calls.Load())/attackTime.Seconds(), bytes.Load()/max(1, calls.Load()), took[len(took)/2], took[len(took)*99/100])
	}
	survived(t, stack, c)
}
