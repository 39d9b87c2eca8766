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
		c.BeaconRelays, c.EntropyWindow, c.DatabaseConns = []string{"https://relay.test"}, time.Hour, 4
		if _, err := c.Open(t.Context(), "deal-api", slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%v, want one of %s", err, name)
		}
	}
}

func TestPublicURLHasOneForm(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"":                                 true,
		"https://fairpact.example.com":     true,
		"http://127.0.0.1:8080":            true,
		"http://[::1]:8080":                true,
		"https://Fairpact.example.com":     false,
		"https://fairpact.example.com/":    false,
		"https://fairpact.example.com:443": false,
		"http://fairpact.example.com:80":   false,
		"https://fairpact.example.com:":    false,
		"https://u@fairpact.example.com":   false,
		"https://fairpact.example.com?a":   false,
		"fairpact.example.com":             false,
		"ftp://fairpact.example.com":       false,
		"https://":                         false,
		"https://xn--bcher-kva.example":    true,
		"https://bücher.example":           false,
		"https://ho\"st":                   false,
		"https://fairpact.example.com:0":   false,
		"https://fairpact.example.com:1":   true,

		"https://fairpact.example.com:65535":  true,
		"https://fairpact.example.com:65536":  false,
		"https://fairpact.example.com:99999":  false,
		"https://fairpact.example.com:08080":  false,
		"https://" + strings.Repeat("a", 255): true,
		"https://" + strings.Repeat("a", 256): false,
	} {
		t.Run(address, func(t *testing.T) {
			if err := checkOrigin(address); (err == nil) != good {
				t.Errorf("checkOrigin: %v, want it accepted: %v", err, good)
			}
		})
	}
}
