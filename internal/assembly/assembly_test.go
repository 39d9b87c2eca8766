package assembly

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The addresses of the log are looked at before anything is opened: a
// certificate would be the first to find them out, again and again.
func TestAddressesOfTheLog(t *testing.T) {
	t.Parallel()
	const good, bad = "http://log:8091", "http://log:port"
	for name, c := range map[string]Config{
		"FAIRPACT_LOG_READ_URL":       {LogReadURL: bad, LogAppendURL: good},
		"FAIRPACT_LOG_APPEND_URL":     {LogReadURL: good, LogAppendURL: bad},
		"FAIRPACT_SERVER_SECRET_FILE": {LogReadURL: good, LogAppendURL: good}, // the next one
	} {
		c.BeaconRelays, c.EntropyWindow = []string{"https://relay.test"}, time.Hour
		if _, err := c.Open(t.Context(), "deal-api", slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%v, want one of %s", err, name)
		}
	}
}
