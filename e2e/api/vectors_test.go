package api

import (
	"encoding/json"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

type vector struct {
	ID        string `json:"vector_id"`
	Algorithm string
	Input     struct {
		Labels []string          `json:"party_labels"`
		Params json.RawMessage   `json:"algorithm_params"`
		Inputs []json.RawMessage `json:"party_inputs"`
	}
	Output json.RawMessage `json:"expected_output"`
}

// A deal with the inputs of a published vector has the result in expected_output. Vectors of
// random.v1 use drand quicknet, but this stack has a development beacon. So for random.v1 the test
// compares only nonce_digest.
func TestPublishedVectors(t *testing.T) {
	c := newClient(t)
	var catalogue struct {
		Algorithms []struct {
			ID      string
			Vectors []vector `json:"test_vectors"`
		}
	}
	c.Want(200, "GET", "/v1/algorithms", "", nil).Into(t, &catalogue)
	played, key := 0, c.Key()
	for _, a := range catalogue.Algorithms {
		for _, v := range a.Vectors {
			played++
			t.Run(v.ID, func(t *testing.T) {
				if v.Algorithm != a.ID {
					t.Errorf("a vector of %s is listed under %s", v.Algorithm, a.ID)
				}
				v.play(t, key)
			})
		}
	}
	if played != len(algorithm.Vectors()) || played < 30 {
		t.Errorf("%d vectors are published, want all %d of package algorithm, and at least 30", played, len(algorithm.Vectors()))
	}
}

func (v vector) play(t *testing.T, key string) {
	c := newClient(t)
	d := c.CreateWith(key, changed(split(), "algorithm", v.Algorithm, "party_labels", v.Input.Labels, "algorithm_params", v.Input.Params))
	for i, input := range v.Input.Inputs {
		c.Want(200, "POST", d.Path("/commit"), d.Tokens[i], e2e.Body{"commitment": sha(canonical(t, input), []byte(v.ID))})
	}
	void := string(v.Output) == "null"
	for i, input := range v.Input.Inputs {
		a := c.Do("POST", d.Path("/reveal"), d.Tokens[i], e2e.Body{"input": input, "salt": v.ID})
		if a.Status != 200 && !(void && a.Code() == "DEAL_ENDED") {
			t.Fatalf("reveal of party %d: %d %s, want 200, or DEAL_ENDED after a rejection", i, a.Status, a.Body)
		}
	}
	if v.Algorithm == algorithm.Random {
		var drawn entropy
		c.Want(200, "POST", d.Path("/entropy"), d.Key, nil).Into(t, &drawn)
		if mine, published := e2e.AsBody(t, string(drawn.Result))["nonce_digest"], e2e.AsBody(t, string(v.Output))["nonce_digest"]; mine != published {
			t.Errorf("the deal has the nonce_digest %v, want %v", mine, published)
		}
		return
	}
	view := d.View()
	if string(canonical(t, view.Result)) != string(canonical(t, v.Output)) || (view.State == "VOID") != void {
		t.Errorf("the deal is %s with result %s, want %s", view.State, view.Result, v.Output)
	}
}
