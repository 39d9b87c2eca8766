package api

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

var useCase = regexp.MustCompile("(?ms)^```json ([a-z]+)\n(.*?)^```\n")

// Each deal of the page /use-cases ends as the page says, and the independent verifier agrees.
func TestUseCases(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	page := string(c.Want(200, "GET", "/use-cases", "", nil).Body)
	var names []string
	for _, found := range useCase.FindAllStringSubmatch(page, -1) {
		names = append(names, found[1])
		t.Run(found[1], func(t *testing.T) {
			t.Parallel()
			c := c.In(t)
			var deal struct {
				Algorithm string         `json:"algorithm"`
				Labels    []string       `json:"party_labels"`
				Params    map[string]any `json:"algorithm_params"`
				Inputs    []e2e.Body
				Result    json.RawMessage
			}
			e2e.Must(t, json.Unmarshal([]byte(found[2]), &deal))
			draw := deal.Result == nil
			if draw { // a round that is already published, so that the test does not wait
				deal.Params["beacon_round"] = e2e.BeaconChain(t).RoundAt(time.Now().Unix()) - 10
			}
			d := c.Create(e2e.Timed(e2e.Body{"algorithm": deal.Algorithm, "party_labels": deal.Labels, "algorithm_params": deal.Params}, e2e.After(time.Hour), e2e.After(2*time.Hour)))
			d.Play(deal.Inputs...)
			if draw {
				c.Want(200, "POST", d.Path("/entropy"), d.Tokens[0], nil)
			}
			certificate := d.Certified(e2e.DefaultTimeout)
			var got struct {
				Result json.RawMessage
			}
			e2e.Must(t, json.Unmarshal(certificate, &got))
			if draw {
				var winner struct{ Label string }
				e2e.Must(t, json.Unmarshal(got.Result, &winner))
				if !slices.Contains(deal.Labels, winner.Label) {
					t.Errorf("the draw has the result %s, want one of %v", got.Result, deal.Labels)
				}
			} else {
				e2e.Same(t, "the result on the page and in the certificate", deal.Result, got.Result)
			}
			e2e.RequireIndependentVerdict(t, c, certificate, true)
		})
	}
	if want := []string{"estate", "heirs", "raffle", "bonus", "price"}; !slices.Equal(names, want) {
		t.Errorf("/use-cases has the deals %v, want %v", names, want)
	}
}
