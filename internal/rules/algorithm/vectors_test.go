package algorithm

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

func TestVectors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	count := map[string]int{}
	for _, v := range Vectors() {
		t.Run(v.VectorID, func(t *testing.T) {
			if seen[v.VectorID] || v.Description == "" {
				t.Errorf("the id %s occurs twice: %v; the description is %q: want a new id and a description", v.VectorID, seen[v.VectorID], v.Description)
			}
			seen[v.VectorID] = true
			count[v.Algorithm]++
			a, ok := Lookup(v.Algorithm)
			if !ok {
				t.Fatalf("the vector names the unknown algorithm %q", v.Algorithm)
			}
			in := v.Input
			if _, err := a.CheckParams(in.PartyLabels, in.AlgorithmParams); err != nil {
				t.Fatal(err)
			}
			rejected := false
			for i, input := range in.PartyInputs {
				if err := a.CheckInput(in.PartyLabels, in.AlgorithmParams, input, a.InputLimit(in.AlgorithmParams)); err != nil {
					t.Errorf("CheckInput of party %d: %v, want no error", i, err)
				}
				rejected = rejected || a.Rejects(input)
			}
			got, err := a.Compute(in.PartyLabels, in.AlgorithmParams, in.PartyInputs, v.Beacon())
			if v.Void() {
				if !rejected || !errors.Is(err, ErrRejected) {
					t.Errorf("Compute = %s, %v, rejected: %v; want %v", got, err, rejected, ErrRejected)
				}
				return
			}
			if rejected || err != nil || string(got) != string(v.ExpectedOutput) {
				t.Errorf("Compute = %s, %v\n   want %s", got, err, v.ExpectedOutput)
			}
		})
	}
	for _, a := range All() {
		if count[a.ID] < 5 {
			t.Errorf("%s has %d vectors, want at least 5", a.ID, count[a.ID])
		}
	}
}

// SPEC 2.10 defines the catalogue. The tests in e2e/api compare it with the OpenAPI document.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"split.v1: 2 to 16", "random.v1: 2 to 10000", "shapley.v1: 2 to 8"} {
		entry := Catalogue()[i]
		if got := entry.ID + ": " + entry.Parties; got != want || entry.Name == "" || entry.TestVectors[0].Algorithm != entry.ID {
			t.Errorf("catalogue entry %d is %s with the name %q, want %s with a name", i, got, entry.Name, want)
		}
	}
	for _, id := range []string{"", "split", "SPLIT.V1", "split.v2"} {
		if _, ok := Lookup(id); ok {
			t.Errorf("Lookup(%q) finds an algorithm, want none", id)
		}
	}
	// The service writes the catalogue with encoding/json, which must not lose digits.
	exact, err := canon.Marshal(map[string]any{"algorithms": Catalogue()})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(map[string]any{"algorithms": Catalogue()})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(object(t, string(plain)), object(t, string(exact))) {
		t.Errorf("encoding/json writes the catalogue as %s, want %s, as canon does", plain, exact)
	}
}
