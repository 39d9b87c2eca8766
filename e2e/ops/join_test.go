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
	by := e2e.After(10 * time.Second)
	c.Run(0, "deal", "create", "--algorithm", "split.v1", "--params", c.File("params.json", e2e.Body{"items": []string{"car", "boat"}}), "--label", "ann", "--label", "bob",
		"--commit-deadline", fmt.Sprint(by), "--reveal-deadline", fmt.Sprint(by+140), "--require-seals", "--out", "deal.json")
	var state struct {
		BaseURL string                   `json:"base_url"`
		DealID  string                   `json:"deal_id"`
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	e2e.Must(t, json.Unmarshal(c.Read("deal.json"), &state))
	join := func(code, party int, input e2e.Body, more ...string) string {
		out := fmt.Sprintf("sealed-%d.json", party)
		link := fmt.Sprintf("%s/d/%s#%s", state.BaseURL, state.DealID, state.Invites[party].Token)
		said, errs := c.Run(code, append([]string{"deal", "join", link, c.File("input.json", input), "--out", out}, more...)...)
		return said + errs
	}
	if said := join(1, 0, e2e.AnnsValues); !strings.Contains(said, "not drand quicknet") {
		t.Errorf("without --development-beacon: %s", said)
	}
	link := fmt.Sprintf("%s/d/%s#%s", state.BaseURL, state.DealID, state.Invites[0].Token)
	alone, _ := c.Run(0, "seal", c.File("input.json", e2e.AnnsValues), "--timelock", link, "--development-beacon", "--json")
	var made struct{ Commitment, Salt, Seal string }
	e2e.Must(t, json.Unmarshal([]byte(alone), &made))
	if _, err := timelock.Check(chain, made.Seal, timelock.RoundOf(chain, by), 16<<10); err != nil || made.Commitment == "" || made.Salt == "" {
		t.Errorf("seal --timelock: %s, %v", alone, err)
	}
	for party, input := range []e2e.Body{e2e.AnnsValues, e2e.BobsValues} {
		if said := join(0, party, input, "--development-beacon"); !strings.Contains(said, "you are done") {
			t.Errorf("party %d: %s", party, said)
		}
	}
	round := timelock.RoundOf(chain, by)
	time.Sleep(time.Until(time.Unix(chain.RoundTime(round), 0)))
	out, _ := c.Run(0, "deal", "watch", "--state", "deal.json", "--party", "1", "--json")
	var v e2e.View
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.State != "COMPUTED" {
		t.Errorf("deal watch: %s, want COMPUTED", out)
	}
	t.Logf("COMPUTED %d s after the round is due", time.Now().Unix()-chain.RoundTime(round))
}
