package ops

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// Each party accepts its invitation with one command and never comes back. The receipt proves to
// anyone what the party sealed.
func TestCtlJoin(t *testing.T) {
	t.Parallel()
	c, chain := e2e.NewCtl(t, e2e.BaseURL(t)), e2e.BeaconChain(t)
	inputs := []e2e.Body{e2e.AnnsValues, e2e.BobsValues}
	params := c.File("params.json", e2e.Body{"items": []string{"car", "boat"}})
	create := func(file string, by int64) []string {
		return []string{"deal", "create", "--algorithm", "split.v1", "--params", params, "--label", "ann", "--label", "bob",
			"--commit-deadline", fmt.Sprint(by), "--reveal-deadline", fmt.Sprint(by + 140), "--require-seals", "--out", file, "--title", "Car & boat", "--message", "Hello,\nbob"}
	}
	link := func(file string, party int) string {
		var state struct {
			BaseURL string                   `json:"base_url"`
			DealID  string                   `json:"deal_id"`
			Invites []struct{ Token string } `json:"invite_tokens"`
		}
		e2e.Must(t, json.Unmarshal(c.Read(file), &state))
		return fmt.Sprintf("%s/d/%s#%s", state.BaseURL, state.DealID, state.Invites[party].Token)
	}

	later := e2e.After(time.Hour)
	c.Run(0, create("later.json", later)...)
	if text, _ := c.Run(0, "deal", "invite", "--state", "later.json", "--party", "1", "--text"); !strings.Contains(text, "\n\nTitle: Car & boat\nann writes:\n> Hello,\n> bob\n\nGo to your link") {
		t.Errorf("the invitation is\n%s\nwant one with title and message", text)
	}
	input := c.File("input.json", e2e.AnnsValues)
	if _, said := c.Run(1, "deal", "join", link("later.json", 0), input, "--out", "sealed.json"); !strings.Contains(said, "not drand quicknet") {
		t.Errorf("without --development-beacon: %s", said)
	}
	var made struct{ Commitment, Salt, Seal string }
	c.Json(&made, "seal", input, "--timelock", link("later.json", 0), "--development-beacon")
	if _, err := timelock.Check(chain, made.Seal, timelock.RoundOf(chain, later), 16<<10); err != nil || made.Commitment == "" || made.Salt == "" {
		t.Errorf("seal --timelock: %+v, %v", made, err)
	}

	var round int64
	var file string
	e2e.InTime(t, 10*time.Second, func(lead time.Duration) bool {
		by := e2e.After(lead)
		round, file = timelock.RoundOf(chain, by), fmt.Sprintf("deal-%s.json", lead)
		if _, inTime := c.Attempt(create(file, by)...); !inTime {
			return false
		}
		for party, values := range inputs {
			said, inTime := c.Attempt("deal", "join", link(file, party), c.File("input.json", values), "--development-beacon")
			if !inTime {
				return false
			}
			if !strings.Contains(said, "you are done") {
				t.Errorf("party %d: %s", party, said)
			}
		}
		return true
	})
	time.Sleep(time.Until(time.Unix(chain.RoundTime(round), 0)))
	out, _ := c.Run(0, "deal", "watch", "--state", file, "--party", "1", "--json")
	var v e2e.View
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.State != "COMPUTED" {
		t.Errorf("deal watch: %s, want COMPUTED", out)
	}
	t.Logf("COMPUTED %d s after the round is due", time.Now().Unix()-chain.RoundTime(round))
}
