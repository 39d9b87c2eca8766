package api

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/canon"
)

func hexBytes(s string) ([]byte, error) { return hex.DecodeString(s) }

// canonical is the RFC 8785 form of a JSON text.
func canonical(t testing.TB, text []byte) []byte {
	t.Helper()
	tree, err := canon.Parse(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return canon.Encode(tree)
}

// vector is a published one, its JSON kept as it came.
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

// Every published vector is played as a deal and gives exactly its
// expected_output. Those of random.v1 carry a value of drand quicknet, which
// the development beacon cannot give: they are played with its own value of the
// round, which changes the winner and nothing else, and their expected_output
// is computed from the quicknet value beside.
func TestPublishedVectors(t *testing.T) {
	c := surfaceClient(t)
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
					t.Errorf("a vector of %s stands under %s", v.Algorithm, a.ID)
				}
				v.play(t, key)
			})
		}
	}
	if played != len(algorithm.Vectors()) || played < 30 {
		t.Errorf("%d vectors are published, %d are embedded", played, len(algorithm.Vectors()))
	}
}

func (v vector) play(t *testing.T, key string) {
	c := surfaceClient(t)
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	b["algorithm"], b["party_labels"], b["algorithm_params"] = v.Algorithm, v.Input.Labels, v.Input.Params
	d := c.CreateWith(key, b)
	for i, input := range v.Input.Inputs {
		c.Want(200, "POST", d.Path("/commit"), d.Tokens[i], e2e.Body{"commitment": sha(canonical(t, input), []byte(v.ID))})
	}
	void := string(v.Output) == "null"
	for i, input := range v.Input.Inputs {
		a := c.Do("POST", d.Path("/reveal"), d.Tokens[i], e2e.Body{"input": input, "salt": v.ID})
		if a.Status != 200 && !(void && a.Code() == "DEAL_ENDED") {
			t.Fatalf("reveal of party %d: %d %s", i, a.Status, a.Body)
		}
	}
	if v.Algorithm == algorithm.Random {
		v.draw(t, c, d)
		return
	}
	view := d.View()
	if string(canonical(t, view.Result)) != string(canonical(t, v.Output)) || (view.State == "VOID") != void {
		t.Errorf("%s: result %s, want %s", view.State, view.Result, v.Output)
	}
}

// draw compares the draw of the deal with the vector's own, both recomputed.
func (v vector) draw(t *testing.T, c *e2e.Client, d *e2e.Dealt) {
	var deal entropy
	c.Want(200, "POST", d.Path("/entropy"), d.Key, nil).Into(t, &deal)
	params, err := canon.ParseObject(v.Input.Params)
	if err != nil {
		t.Fatal(err)
	}
	var inputs []map[string]any
	for _, text := range v.Input.Inputs {
		input, err := canon.ParseObject(text)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, input)
	}
	random, _ := algorithm.Lookup(algorithm.Random)
	digests := map[string]bool{}
	for _, result := range []json.RawMessage{deal.Result, v.Output} {
		var r struct {
			Beacon      algorithm.Beacon
			NonceDigest string `json:"nonce_digest"`
		}
		if err := json.Unmarshal(result, &r); err != nil {
			t.Fatal(err)
		}
		computed, err := random.Compute(v.Input.Labels, params, inputs, &r.Beacon)
		if err != nil || string(computed) != string(canonical(t, result)) {
			t.Errorf("computed %s: %v, want %s", computed, err, result)
		}
		digests[r.NonceDigest] = true
		if string(result) == string(deal.Result) {
			drawn(t, r.Beacon, params["beacon_round"].(int64))
		}
	}
	if len(digests) != 1 {
		t.Errorf("the nonces of the vector and of the deal differ: %v", digests)
	}
}
