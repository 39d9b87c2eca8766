package wiring

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Open must refuse a malformed address of the log. Otherwise the error would appear only with
// the first certificate.
func TestAddressesOfTheLogAreChecked(t *testing.T) {
	t.Parallel()
	const good, bad = "http://log:8091", "http://log:port"
	for name, c := range map[string]Config{
		"FAIRPACT_LOG_READ_URL":       {LogReadURL: bad, LogAppendURL: good},
		"FAIRPACT_LOG_APPEND_URL":     {LogReadURL: good, LogAppendURL: bad},
		"FAIRPACT_SERVER_SECRET_FILE": {LogReadURL: good, LogAppendURL: good}, // both addresses are valid, so Open fails later, at the missing secret file
	} {
		c.BeaconRelays, c.EntropyWindow, c.DatabaseConns = []string{"https://relay.test"}, time.Hour, 4
		if _, err := c.Open(t.Context(), "deal-api", slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("Open with a malformed address: %v, want an error that names %s", err, name)
		}
	}
}

func TestPublicURLHasOneForm(t *testing.T) {
	t.Parallel()
	const host = "https://fairpact.example.com"
	for valid, addresses := range map[bool][]string{
		true: {"", host, host + ":1", host + ":65535", "http://127.0.0.1:8080", "http://[::1]:8080", "https://xn--bcher-kva.example", "https://" + strings.Repeat("a", 255)},
		false: {
			"https://Fairpact.example.com", host + "/", host + "?a", "https://u@fairpact.example.com", "fairpact.example.com", "ftp://fairpact.example.com", "https://",
			host + ":443", "http://fairpact.example.com:80", host + ":", host + ":0", host + ":65536", host + ":99999", host + ":08080",
			"https://bücher.example", "https://ho\"st", "https://" + strings.Repeat("a", 256),
		},
	} {
		for _, address := range addresses {
			if err := checkOrigin(address); (err == nil) != valid {
				t.Errorf("%s: %v, want it accepted: %t", address, err, valid)
			}
		}
	}
}
