package signing

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func points(n int) (labels []string) {
	for x := 0; len(labels) < n; x++ {
		if label := fmt.Sprintf("es256:02%064x", x); CheckLabel(label) == nil {
			labels = append(labels, label)
		}
	}
	return labels
}

// rotating returns a KeySet with one key for each given signs_from. The KeySet allows clocks
// to differ by 5 s (see Margin) instead of 5 minutes.
func rotating(t *testing.T, from ...int64) *KeySet {
	t.Helper()
	var keys []Key
	for i, label := range points(len(from)) {
		keys = append(keys, Key{PublicKey: label, URI: fmt.Sprint("dev://", i), SignsFrom: &from[i]})
	}
	k, err := newKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	k.margin = 5
	return k
}

func (k *KeySet) when(t int64) *KeySet {
	at := *k
	at.now = func() time.Time { return time.Unix(t, 0) }
	return &at
}

func TestRotationInTime(t *testing.T) {
	t.Parallel()
	k := rotating(t, 0, 100)
	a, b := k.keys[0].PublicKey, k.keys[1].PublicKey
	for _, row := range []struct {
		at             int64
		signs, current string
		legacy, due    []string
		states         string
	}{
		{0, a, a, []string{}, []string{a}, "current next"},
		{94, a, a, []string{}, []string{a}, "current next"},
		{95, a, b, []string{a}, []string{a}, "retired current"},
		{99, a, b, []string{a}, []string{a}, "retired current"},
		{100, b, b, []string{a}, []string{a, b}, "retired current"},
		{1000, b, b, []string{a}, []string{a, b}, "retired current"},
	} {
		at := k.when(row.at)
		var states []string
		for _, key := range at.Keys() {
			states = append(states, key.State)
		}
		if signs := at.Signs(at.now()).PublicKey; signs != row.signs || at.Current() != row.current || !slices.Equal(at.Legacy(), row.legacy) ||
			!slices.Equal(at.Due(), row.due) || strings.Join(states, " ") != row.states || at.Accepts(b) != (row.at >= 95) {
			t.Errorf("at %d: %s signs, status %s and %v, due %v, states %v; want row %+v", row.at, signs, at.Current(), at.Legacy(), at.Due(), states, row)
		}
	}
	if retired := k.when(95).Keys()[0].RetiredAt; retired == nil || *retired != 100 {
		t.Errorf("retired at %v, want 100", retired)
	}
}

// If the clocks of two processes differ by at most the margin (see Margin), each process accepts
// the key that the other process signs with. Every key but the first is accepted from one margin
// before its signs_from, and not earlier. Both rules also hold if two keys begin to sign within one
// margin.
func TestClocksWithinTheMarginAgree(t *testing.T) {
	t.Parallel()
	for _, from := range [][]int64{{0, 50}, {50, 0}, {20, 50}, {0, 50, 53}, {0, 50, 55, 60}, {60, 61}, {0, 30, 60}} {
		k := rotating(t, from...)
		for signer := int64(0); signer < 90; signer++ {
			key := k.Signs(time.Unix(signer, 0))
			for reader := signer - k.margin; reader <= signer+k.margin; reader++ {
				at := k.when(reader)
				if !at.Accepts(key.PublicKey) || !slices.Contains(append(at.Legacy(), at.Current()), key.PublicKey) {
					t.Fatalf("keys from %v: signed at %d by the key of %d, but at %d the status is %s and %v, without that key", from, signer, *key.SignsFrom, reader, at.Current(), at.Legacy())
				}
			}
			current, at := 0, k.when(signer)
			for _, key := range at.Keys() {
				if key.State == StateCurrent {
					current++
				}
				if at.Accepts(key.PublicKey) && *key.SignsFrom > signer+k.margin && *key.SignsFrom != slices.Min(from) {
					t.Fatalf("keys from %v: the key of %d is accepted at %d, want it refused more than the margin before its time", from, *key.SignsFrom, signer)
				}
			}
			if current != 1 {
				t.Fatalf("keys from %v: %d current keys at %d, want 1", from, current, signer)
			}
		}
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	labels := points(4)
	for name, row := range map[string]struct {
		set       []int64
		label     string
		from, now int64
		says      string // part of the error, or of the document if Rotate succeeds
	}{
		"the first":                   {[]int64{0}, labels[1], 1000, 500, `{"pubkey":"` + labels[1] + `","signs_from":1000,"uri":"dev://new"}`},
		"too soon":                    {[]int64{0}, labels[1], 509, 500, "choose 1970-01-01T00:08:30Z or later"},
		"soonest":                     {[]int64{0}, labels[1], 510, 500, `"signs_from":510`},
		"postponed":                   {[]int64{0, 1000}, labels[1], 2000, 994, `"signs_from":2000,"uri":"dev://new"}]`},
		"brought forward":             {[]int64{0, 1000}, labels[1], 510, 500, `"signs_from":510`},
		"postponed in the margin":     {[]int64{0, 1000}, labels[1], 2000, 995, "its time can no longer change"},
		"a second new key":            {[]int64{0, 1000}, labels[2], 2000, 500, "only one key can wait"},
		"to the key that signs":       {[]int64{0}, labels[0], 2000, 500, "cannot be rotated in again"},
		"back to a key":               {[]int64{0, 100}, labels[0], 2000, 500, "cannot be rotated in again"},
		"after one, still near":       {[]int64{0, 498}, labels[2], 2000, 500, `{"pubkey":"` + labels[0] + `","signs_from":0,"uri":"dev://0"}`},
		"after one, retires for ever": {[]int64{0, 100}, labels[2], 2000, 500, `{"pubkey":"` + labels[0] + `","retired_at":100}`},
	} {
		next, err := rotating(t, row.set...).Rotate(row.label, "dev://new", row.from, row.now)
		said := fmt.Sprint(err)
		if err == nil {
			said = string(next.Document())
			if _, err := ParseKeySet(next.Document()); err != nil {
				t.Errorf("%s: the new document does not parse: %v", name, err)
			}
		}
		if !strings.Contains(said, row.says) {
			t.Errorf("%s: %s, want %q", name, said, row.says)
		}
	}
}

func TestRotateNow(t *testing.T) {
	t.Parallel()
	labels := points(3)
	next, err := rotating(t, 0, 1000).RotateNow(labels[2], "dev://new", 7, 500)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(next.Document()), string(document(
		`{"pubkey":"`+labels[0]+`","retired_at":500,"tree_size":7}`,
		`{"pubkey":"`+labels[1]+`","signs_from":1000,"uri":"dev://1"}`,
		`{"pubkey":"`+labels[2]+`","signs_from":500,"uri":"dev://new"}`)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// A process whose clock is behind also signs with the new key, not with the closed key.
	if key := next.Signs(time.Unix(0, 0)); key.PublicKey != labels[2] {
		t.Errorf("%+v signs for a clock that is behind, want the new key", key)
	}
	if next, err = rotating(t, 0, 1000).RotateNow(labels[1], "dev://new", 7, 500); err != nil || next.Signs(time.Unix(500, 0)).URI != "dev://new" {
		t.Errorf("RotateNow to the key that was to sign later: %v, want its new URI to sign", err)
	}
	if _, err = rotating(t, 0).RotateNow(labels[0], "dev://0", 7, 500); err == nil {
		t.Error("RotateNow to the stolen key itself: no error, want one")
	}
}

func TestCloseKey(t *testing.T) {
	t.Parallel()
	labels := points(3)
	for name, row := range map[string]struct {
		label string
		now   int64
		says  string
	}{
		"retired":            {labels[0], 105, `{"pubkey":"` + labels[0] + `","retired_at":100,"tree_size":7}`},
		"in the margin":      {labels[0], 104, "it signs until 1970-01-01T00:01:40Z; close it 5 s after that"},
		"before it retires":  {labels[0], 50, "it signs until 1970-01-01T00:01:40Z; close it 5 s after that"},
		"the one that signs": {labels[1], 105, "rotate to another key first"},
		"an unknown key":     {labels[2], 105, "is not in the set"},
	} {
		next, err := rotating(t, 0, 100).Close(row.label, 7, false, row.now)
		said := fmt.Sprint(err)
		if err == nil {
			said = string(next.Document())
			if again, err := next.Close(row.label, 7, true, row.now); err != nil || !again.Keys()[0].Disowned {
				t.Errorf("%s: closed twice at one size: %v, want no error", name, err)
			}
			if _, err := next.Close(row.label, 8, false, row.now); err == nil {
				t.Errorf("%s: closed again at another size, want an error", name)
			}
		}
		if !strings.Contains(said, row.says) {
			t.Errorf("%s: %s, want %q", name, said, row.says)
		}
	}
}

func TestCheckClock(t *testing.T) {
	t.Parallel()
	k := rotating(t, 0).when(100)
	for database, good := range map[int64]bool{94: false, 95: true, 100: true, 105: true, 106: false} {
		if err := k.CheckClock(database); (err == nil) != good {
			t.Errorf("the database's clock shows %d: %v, want accepted: %t", database, err, good)
		}
	}
}

// OpenRing requires only the key that signs now. If the next key is not open when its signs_from
// comes, Sign returns ErrUnavailable until the key opens. A retired key is never opened.
func TestRing(t *testing.T) {
	labels, uris := newLabels(t, 2)
	path := strings.TrimPrefix(uris[1], "file://")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	from := []int64{0, 100, 200}
	keys, err := newKeySet(
		Key{PublicKey: points(1)[0], URI: "file://" + filepath.Join(t.TempDir(), "gone"), SignsFrom: &from[0]},
		Key{PublicKey: labels[0], URI: uris[0], SignsFrom: &from[1]},
		Key{PublicKey: labels[1], URI: uris[1], SignsFrom: &from[2]})
	if err != nil {
		t.Fatal(err)
	}
	keys.margin = 5
	now := time.Unix(150, 0)
	keys.now = func() time.Time { return now }
	ring, err := OpenRing(t.Context(), keys, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ring.end() // stops the background loop; the test calls ring.try instead
	ring.loop.Wait()
	defer ring.Close()
	digest := sha256.Sum256(nil)
	signs := func(label string) {
		t.Helper()
		signature, err := ring.Sign(t.Context(), digest)
		if key, bad := keys.SignedBy(digest, signature); err != nil || bad != nil || key.PublicKey != label {
			t.Errorf("signed by %s, want %s: %v, %v", key.PublicKey, label, err, bad)
		}
	}
	signs(labels[0])
	untried := newRing(keys, slog.New(slog.DiscardHandler))
	if _, err := untried.Sign(t.Context(), digest); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), labels[0]+", is not open yet") {
		t.Errorf("Sign with a key that was not opened yet: %v, want ErrUnavailable that names the key", err)
	}
	if err := ring.try(t.Context(), keys.keys[2]); err == nil {
		t.Error("a key without a file was opened, want an error")
	}
	now = time.Unix(200, 0)
	if _, err := ring.Sign(t.Context(), digest); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), labels[1]) {
		t.Errorf("Sign with a key that could not be opened: %v, want ErrUnavailable that names the key", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := ring.try(t.Context(), keys.keys[2]); err != nil {
		t.Fatal(err)
	}
	signs(labels[1])

	now = time.Unix(0, 0)
	if _, err := OpenRing(t.Context(), keys, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "the key that signs now") {
		t.Errorf("OpenRing without the key that signs: %v, want an error that names it", err)
	}
}
