package deadline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

// An outage that fails every retry of every deal is logged once a minute for each
// cause. The lines count all failures.
func TestAnOutageIsLoggedOnceAMinuteForEachCause(t *testing.T) {
	const each = 200
	due := map[string]time.Duration{}
	for i := range each {
		due[fmt.Sprint("unsigned ", i)] = 0
		due[fmt.Sprint("undrawn ", i)] = 0
	}
	var text bytes.Buffer
	bubble(t, due, func(d *deals) {
		d.log = slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})
		d.attend = func(_ context.Context, deal string) (time.Duration, error, bool) {
			if strings.HasPrefix(deal, "undrawn") {
				return 0, problem.New(problem.BeaconUnavailable, "call again").Because(errors.New("no relay")), true
			}
			return 0, fmt.Errorf("signing: %w", fmt.Errorf("try %s: no answer", deal)), true
		}
	}, func(t *testing.T, d *deals, _ *Controller) {
		const minutes = 3
		time.Sleep(minutes*time.Minute + 10*time.Second) // lastRetry is 5 s
		synctest.Wait()
		counted := map[string]int{}
		lines := map[string]int{}
		for line := range strings.Lines(text.String()) {
			var said struct {
				Msg, Cause, Err string
				Times, Deals    int
			}
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				t.Fatal(err)
			}
			lines[said.Cause]++
			counted[said.Cause] += said.Times
			if want := map[string]string{"signing": "signing: try unsigned ", "BEACON_UNAVAILABLE": "no relay"}[said.Cause]; said.Msg != "deals wait, retrying" || want == "" || !strings.HasPrefix(said.Err, want) {
				t.Errorf("%s", line)
			}
			if want := map[bool]int{true: 1, false: each}[lines[said.Cause] == 1]; said.Deals != want { // the first line reports one failure
				t.Errorf("%d deals, want %d: %s", said.Deals, want, line)
			}
		}
		if len(lines) != 2 || lines["signing"] != 1+minutes || lines["BEACON_UNAVAILABLE"] != 1+minutes {
			t.Errorf("%v lines in %d minutes", lines, minutes)
		}
		if tries := d.tries("unsigned "); counted["signing"] > tries || counted["signing"] < tries*9/10 {
			t.Errorf("%d failures are logged of %d tries", counted["signing"], tries)
		}
	})
}
