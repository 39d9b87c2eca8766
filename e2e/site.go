package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// Finished has a deal's certificate and the other data that a verifier can use.
type Finished struct {
	Certificate, Head                      Body
	Text, HeadText, ParamsText, InputsText string
	Key                                    string
	Bundle                                 []byte // the bundle, as party 0 downloads it
}

// Played makes all calls of a deal. The returned function waits for the certificate and returns it
// with the newest log_proof and the other data of Finished.
func (c *Client) Played(request Body, inputs ...Body) func() Finished {
	c.T.Helper()
	d := c.Create(request)
	var all []Body
	for _, s := range d.Play(inputs...) {
		all = append(all, Body{"input": s.Input, "salt": s.Salt})
	}
	if request["algorithm"] == "random.v1" {
		c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
	}
	return func() Finished {
		out := Finished{Text: string(d.Certified(DefaultTimeout)), InputsText: JsonText(c.T, all), ParamsText: JsonText(c.T, request["algorithm_params"])}
		var status struct{ Pubkey string }
		c.Want(200, "GET", "/v1/status", "", nil).Into(c.T, &status)
		out.Key = status.Pubkey
		out.Bundle = c.Want(200, "GET", d.Path("/bundle"), d.Tokens[0], nil).Body
		out.Certificate = AsBody(c.T, out.Text)
		size := out.Certificate["log_proof"].(Body)["tree_size"]
		out.HeadText = string(c.Want(200, "GET", fmt.Sprintf("/v1/log/tree-head?tree_size=%v", size), "", nil).Body)
		out.Head = AsBody(c.T, out.HeadText)
		return out
	}
}

// Encoded returns the JSON of a value.
func Encoded(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// JsonText returns the JSON of a value as a string.
func JsonText(t testing.TB, v any) string {
	t.Helper()
	return string(Encoded(t, v))
}

// Decoded reads a JSON object and keeps its numbers as they are written.
func Decoded(t testing.TB, text []byte) (v Body) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// AsBody reads a JSON object and turns its numbers into float64.
func AsBody(t testing.TB, text string) Body {
	t.Helper()
	var v Body
	Answer{Body: []byte(text)}.Into(t, &v)
	return v
}
