package algorithm

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/canon"
)

// e2e/verifier computes the same outputs from the protocol alone.
func TestVectors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	count := map[string]int{}
	for _, v := range Vectors() {
		t.Run(v.VectorID, func(t *testing.T) {
			if seen[v.VectorID] || v.Description == "" {
				t.Error("the id is taken, or the description is missing")
			}
			seen[v.VectorID] = true
			count[v.Algorithm]++
			a, ok := Lookup(v.Algorithm)
			if !ok {
				t.Fatalf("algorithm %q", v.Algorithm)
			}
			in := v.Input
			if _, err := a.CheckParams(in.PartyLabels, in.AlgorithmParams); err != nil {
				t.Fatal(err)
			}
			rejected := false
			for i, input := range in.PartyInputs {
				if err := a.CheckInput(in.PartyLabels, in.AlgorithmParams, input); err != nil {
					t.Errorf("party %d: %v", i, err)
				}
				rejected = rejected || a.Rejects(input)
			}
			got, err := a.Compute(in.PartyLabels, in.AlgorithmParams, in.PartyInputs, v.Beacon())
			if v.Void() {
				if !rejected || !errors.Is(err, ErrRejected) {
					t.Errorf("got %s, %v; the vector is VOID", got, err)
				}
				return
			}
			if rejected || err != nil || string(got) != string(v.ExpectedOutput) {
				t.Errorf("got  %s, %v\nwant %s", got, err, v.ExpectedOutput)
			}
		})
	}
	for _, a := range All() {
		if count[a.ID] < 5 {
			t.Errorf("%s has %d vectors, fewer than 5", a.ID, count[a.ID])
		}
	}
}

// SPEC 2.10. e2e/api compares the members with the OpenAPI document, which allows no others.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"split.v1: 2 to 16", "random.v1: 2 to 10000", "shapley.v1: 2 to 8"} {
		entry := Catalogue()[i]
		if got := entry.ID + ": " + entry.Parties; got != want || entry.Name == "" || entry.TestVectors[0].Algorithm != entry.ID {
			t.Errorf("entry %d is %s (%s), want %s", i, got, entry.Name, want)
		}
	}
	for _, id := range []string{"", "split", "SPLIT.V1", "split.v2"} {
		if _, ok := Lookup(id); ok {
			t.Errorf("Lookup(%q) finds an algorithm", id)
		}
	}
	// encoding/json serves the catalogue. It must not lose anything.
	exact, err := canon.Marshal(map[string]any{"algorithms": Catalogue()})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(map[string]any{"algorithms": Catalogue()})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(object(t, string(plain)), object(t, string(exact))) {
		t.Error("encoding/json and canon give different catalogues")
	}
}
