package algorithm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

func FuzzCompute(f *testing.F) {
	for _, v := range Vectors() {
		seed, err := canon.Marshal(v.Input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	for _, seed := range []string{
		`{"party_labels":["a","b"],"algorithm_params":{"coalition_values":{"b,a":1," a":-2,"":0}},"party_inputs":[{},[]]}`,
		`{"party_labels":["a"],"algorithm_params":{"items":["x"]},"party_inputs":[{"valuations":{}}]}`,
		`{"party_labels":["a","b"],"algorithm_params":{"items":["x"]},"party_inputs":[{"valuations":{}}]}`,
		`{"party_labels":["a","b"],"algorithm_params":{"items":["x"]},"party_inputs":[{"valuations":{}},{}]}`,
		`{"party_labels":["a","b"],"algorithm_params":{},"party_inputs":[{"valuations":{},"nonce":"","accept":true},{"valuations":{},"nonce":"","accept":true}]}`,
		`{"party_labels":["a","b"],"algorithm_params":{"coalition_values":{}},"party_inputs":[{"accept":false},{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		deal, err := canon.ParseObject(data)
		if err != nil {
			return
		}
		labels, inputs := []string{}, []map[string]any{}
		list, _ := deal["party_labels"].([]any)
		for _, v := range list {
			label, _ := v.(string)
			labels = append(labels, label)
		}
		list, _ = deal["party_inputs"].([]any)
		for _, v := range list {
			input, _ := v.(map[string]any)
			inputs = append(inputs, input)
		}
		params, _ := deal["algorithm_params"].(map[string]any)
		beacon := quicknetRound
		if round, ok := params["beacon_round"].(int64); ok {
			beacon.Round = round
		}
		for _, a := range All() {
			_, err := a.CheckParams(labels, params)
			good, rejected := err == nil && len(inputs) == len(labels), false
			for _, input := range inputs {
				good = a.CheckInput(labels, params, input, a.InputLimit(params)) == nil && good
				rejected = a.Rejects(input) || rejected
			}
			got, err := a.Compute(labels, params, inputs, &beacon)
			if want := good && !rejected; (err == nil) != want {
				t.Fatalf("%s: Compute returns the error %v, want success: %v, as the checks say", a.ID, err, want)
			}
			if good && rejected && !errors.Is(err, ErrRejected) {
				t.Fatalf("%s: Compute of a rejected deal: got error %v, want %v", a.ID, err, ErrRejected)
			}
			if err != nil {
				continue
			}
			if _, err := canon.ParseObject(got); err != nil {
				t.Fatalf("%s: Compute = %s, want a JSON object: %v", a.ID, got, err)
			}
			if most := a.ResultLimit(labels, params); len(got) > most {
				t.Fatalf("%s: the result has %d bytes, want at most %d: %s", a.ID, len(got), most, got)
			}
			if again, err := a.Compute(labels, params, inputs, &beacon); err != nil || !bytes.Equal(got, again) {
				t.Fatalf("%s: the second Compute = %s, %v; want %s, as the first", a.ID, again, err, got)
			}
		}
	})
}
