package timelock_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/timelock"
)

var fresh = flag.String("fresh", "", "directory for e2e/tlock-js: the test opens theirs.jsonl and writes ours.jsonl")

// e2e/tlock-js runs this test with fresh seals of tlock-js, and opens the fresh seals that it writes.
func TestFreshSealsOfTlockJS(t *testing.T) {
	if *fresh == "" {
		t.Skip("needs npm: e2e/tlock-js runs this test")
	}
	lines, err := os.ReadFile(filepath.Join(*fresh, "theirs.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var ours bytes.Buffer
	for line := range bytes.Lines(lines) {
		var one struct {
			Seal string `json:"seal"`
			Size int    `json:"size"`
		}
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		want := strings.Repeat("x", one.Size)
		sealed, err := timelock.Check(quicknet, one.Seal, realRound, len(one.Seal))
		if err != nil {
			t.Fatalf("%d bytes: %v", one.Size, err)
		}
		if opened, err := sealed.Open(realKey(t)); err != nil || string(opened) != want {
			t.Errorf("the seal of tlock-js opens to %d bytes, %v; want %d", len(opened), err, one.Size)
		}
		one.Seal = timelock.Seal(quicknet, realRound, []byte(want), random(one.Seal))
		if err := json.NewEncoder(&ours).Encode(one); err != nil {
			t.Fatal(err)
		}
	}
	if ours.Len() == 0 {
		t.Fatal("theirs.jsonl holds no seal")
	}
	if err := os.WriteFile(filepath.Join(*fresh, "ours.jsonl"), ours.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
