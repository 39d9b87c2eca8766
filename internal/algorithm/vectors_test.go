package algorithm

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
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

// SPEC 2.10: the catalogue has only these members.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	data, err := canon.Marshal(map[string]any{"algorithms": Catalogue()})
	if err != nil {
		t.Fatal(err)
	}
	tree := object(t, string(data))
	members := func(o map[string]any) string {
		return strings.Join(slices.Sorted(maps.Keys(o)), " ")
	}
	entries := tree["algorithms"].([]any)
	for i, a := range All() {
		entry := entries[i].(map[string]any)
		if got := members(entry); got != "algorithm_params id name parties party_input test_vectors" {
			t.Errorf("%s has %s", a.ID, got)
		}
		if entry["id"] != a.ID || entry["name"] == "" {
			t.Errorf("entry %d is %v", i, entry["id"])
		}
		vector := entry["test_vectors"].([]any)[0].(map[string]any)
		if got := members(vector); got != "algorithm description expected_output input vector_id" || vector["algorithm"] != a.ID {
			t.Errorf("%v has %s", vector["vector_id"], got)
		}
		if got := members(vector["input"].(map[string]any)); got != "algorithm_params party_inputs party_labels" {
			t.Errorf("%v: input has %s", vector["vector_id"], got)
		}
	}
	for _, id := range []string{"", "split", "SPLIT.V1", "split.v2"} {
		if _, ok := Lookup(id); ok {
			t.Errorf("Lookup(%q) finds an algorithm", id)
		}
	}
	for i, want := range []string{"2 to 16", "2 to 10000", "2 to 8"} {
		if got := entries[i].(map[string]any)["parties"]; got != want {
			t.Errorf("parties: %v, want %s", got, want)
		}
	}
	// encoding/json serves the catalogue. It must not lose anything.
	plain, err := json.Marshal(map[string]any{"algorithms": Catalogue()})
	if err != nil {
		t.Fatal(err)
	}
	if again := object(t, string(plain)); !reflect.DeepEqual(again, tree) {
		t.Error("encoding/json and canon give different catalogues")
	}
}
