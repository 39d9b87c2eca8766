package keys

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func points(n int) (labels []string) {
	for x := 0; len(labels) < n; x++ {
		if label := fmt.Sprintf("es256:02%064x", x); Check(label) == nil {
			labels = append(labels, label)
		}
	}
	return labels
}

// rotating returns a Set with one key for each given signs_from. The Set allows clocks
// to differ by 5 s instead of 5 minutes.
func rotating(t *testing.T, from ...int64) *Set {
	t.Helper()
	var list List
	for i, label := range points(len(from)) {
		list = append(list, Key{Label: label, URI: fmt.Sprint("dev://", i), SignsFrom: &from[i]})
	}
	s, err := NewSet(list, 5)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func accepts(s *Set, label string, now int64) bool {
	_, err := s.Accepted(label, now)
	return err == nil
}

func TestRotationInTime(t *testing.T) {
	t.Parallel()
	k := rotating(t, 0, 100)
	a, b := k.keys[0].Label, k.keys[1].Label
	for _, row := range []struct {
		at             int64
		signs, current string // in GET /v1/status and in GET /v1/pubkeys
		legacy, due    []string
		states         string
	}{
		{0, a, a, []string{}, []string{a}, "current next"},
		{94, a, a, []string{}, []string{a}, "current next"},
		{95, a, b, []string{b}, []string{a}, "retired current"},
		{99, a, b, []string{b}, []string{a}, "retired current"},
		{100, b, b, []string{a}, []string{a, b}, "retired current"},
		{1000, b, b, []string{a}, []string{a, b}, "retired current"},
	} {
		list := k.At(row.at)
		var states []string
		for _, key := range list {
			states = append(states, key.State)
		}
		due := k.Due(row.at).Labels()
		if signs, legacy := k.Status(row.at); signs != row.signs || signs != k.Signs(row.at).Label || list.Current() != row.current || !slices.Equal(legacy, row.legacy) ||
			!slices.Equal(due, row.due) || strings.Join(states, " ") != row.states || accepts(k, b, row.at) != (row.at >= 95) {
			t.Errorf("at %d: %s signs, current %s, legacy %v, due %v, states %v; want row %+v", row.at, signs, list.Current(), legacy, due, states, row)
		}
	}
	if retired := k.At(95)[0].RetiredAt; retired == nil || *retired != 100 {
		t.Errorf("retired at %v, want 100", retired)
	}
}

// If the clocks of two processes differ by at most the margin, each process accepts
// the key that the other process signs with. Every key but the first is accepted from one margin
// before its signs_from, and not earlier. Both rules also hold if two keys begin to sign within one
// margin.
func TestClocksWithinTheMarginAgree(t *testing.T) {
	t.Parallel()
	for _, from := range [][]int64{{0, 50}, {50, 0}, {20, 50}, {0, 50, 53}, {0, 50, 55, 60}, {60, 61}, {0, 30, 60}} {
		k := rotating(t, from...)
		for signer := int64(0); signer < 90; signer++ {
			key := k.Signs(signer)
			for reader := signer - k.margin; reader <= signer+k.margin; reader++ {
				list := k.At(reader)
				if status := append(list.In(Retired).Labels(), list.Current()); !accepts(k, key.Label, reader) || !slices.Contains(status, key.Label) {
					t.Fatalf("keys from %v: signed at %d by the key of %d, but at %d the status is %v, without that key", from, signer, *key.SignsFrom, reader, status)
				}
			}
			current := 0
			for _, key := range k.At(signer) {
				if key.State == Current {
					current++
				}
				if accepts(k, key.Label, signer) && *key.SignsFrom > signer+k.margin && *key.SignsFrom != slices.Min(from) {
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
		"too soon":                    {[]int64{0}, labels[1], 509, 500, "choose at least 10 s from now"},
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
			if _, err := parse(next.Document()); err != nil {
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
	if key := next.Signs(0); key.Label != labels[2] {
		t.Errorf("%+v signs for a clock that is behind, want the new key", key)
	}
	if next, err = rotating(t, 0, 1000).RotateNow(labels[1], "dev://new", 7, 500); err != nil || next.Signs(500).URI != "dev://new" {
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
		"in the margin":      {labels[0], 104, "close it in 1 s"},
		"before it retires":  {labels[0], 50, "close it in 55 s"},
		"the one that signs": {labels[1], 105, "rotate to another key first"},
		"an unknown key":     {labels[2], 105, "is not in the set"},
	} {
		next, err := rotating(t, 0, 100).Close(row.label, 7, false, row.now)
		said := fmt.Sprint(err)
		if err == nil {
			said = string(next.Document())
			if again, err := next.Close(row.label, 7, true, row.now); err != nil || !again.At(0)[0].Disowned {
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
	k := rotating(t, 0)
	for database, good := range map[int64]bool{94: false, 95: true, 100: true, 105: true, 106: false} {
		if err := k.CheckClock(100, database); (err == nil) != good {
			t.Errorf("the database's clock shows %d: %v, want accepted: %t", database, err, good)
		}
	}
}
