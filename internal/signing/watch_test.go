package signing

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Two valid public keys: the points G and 2G of the curve P-256.
const (
	one = "es256:036b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
	two = "es256:037cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978"
)

func keySet(t *testing.T, second time.Duration, none bool) *KeySet {
	t.Helper()
	text := fmt.Sprintf(`{"keys":[{"pubkey":"%s","uri":"dev://1","signs_from":0}`, one)
	if !none {
		text += fmt.Sprintf(`,{"pubkey":"%s","uri":"dev://2","signs_from":%d}`, two, time.Now().Add(second).Unix())
	}
	k, err := ParseKeySet(t.Context(), []byte(text+"]}"))
	if err != nil {
		t.Fatal(err)
	}
	return NewKeySet(k)
}

func TestKeysOfTheLog(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		mine, theirs *KeySet
		status       int
		says         string // part of the error of Check; "": no error
		ready        bool
	}{
		"the same":                          {keySet(t, -time.Hour, false), keySet(t, -time.Hour, false), 200, "", true},
		"this process lacks the key":        {keySet(t, 0, true), keySet(t, -time.Hour, false), 200, two, false},
		"here its time is much later":       {keySet(t, time.Hour, false), keySet(t, -time.Hour, false), 200, two, false},
		"here its time is a little later":   {keySet(t, time.Minute, false), keySet(t, -time.Minute, false), 200, "", true},
		"there its time is to come":         {keySet(t, 0, true), keySet(t, time.Hour, false), 200, "", true},
		"the log lacks the key and answers": {keySet(t, -time.Hour, false), keySet(t, 0, true), 200, "", true},
		"the log lacks the key and refuses": {keySet(t, -time.Hour, false), keySet(t, 0, true), 403, "does not list " + two, true},
		"the log has the key and refuses":   {keySet(t, -time.Hour, false), keySet(t, -time.Hour, false), 403, "", true},
		"another server refuses":            {keySet(t, -time.Hour, false), nil, 403, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(row.status) })
			if row.theirs != nil {
				handler = row.theirs.Announce(handler)
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
			w := NewWatch(row.mine)
			err := w.Check(answer.Result())
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("Check: %v, want %q", err, row.says)
			}
			if (w.Ready() == nil) != row.ready {
				t.Errorf("Ready: %v, want ready: %t", w.Ready(), row.ready)
			}
			w.at = w.at.Add(-memory)
			if err := w.Ready(); err != nil {
				t.Errorf("not ready for ever: %v", err)
			}
		})
	}
}

func TestRunAsksTheLogUntilTheEnd(t *testing.T) {
	t.Parallel()
	w := NewWatch(keySet(t, 0, true))
	ctx, stop := context.WithCancel(t.Context())
	asked := 0
	w.Run(ctx, func(context.Context) error {
		asked++
		answer := httptest.NewRecorder()
		answer.Header().Set(keysHeader, one+","+two)
		err := w.Check(answer.Result())
		stop()
		return err
	})
	if asked != 1 || w.Ready() == nil {
		t.Errorf("asked %d times, Ready: %v; want once and an error", asked, w.Ready())
	}
}
