package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// Two agents without a shell act once each and end their turns. The deal is COMPUTED when they look again.
func TestAgentsActOnce(t *testing.T) {
	t.Parallel()
	c, chain := e2e.NewClient(t, e2e.BaseURL(t)), e2e.BeaconChain(t)
	var key struct {
		APIKey string `json:"api_key"`
	}
	c.Tool("create_key", e2e.Body{}).Into(t, &key)
	const salt = "00112233445566778899aabbccddeeff"
	c.Fails("INVALID_REQUEST", "compute_commitment_tool", fmt.Sprintf(`{"input":{},"salt":%q,"timelock":true}`, salt))
	create := func(by int64) *e2e.CreatedDeal {
		declared := e2e.Timed(e2e.SplitBody(0, 0), by, by+140)
		declared["api_key"], declared["seals"] = key.APIKey, "required"
		return c.Created(key.APIKey, e2e.Answer{Body: c.Tool("create_deal", declared).Structured})
	}
	compute := func(d *e2e.CreatedDeal, party int, input e2e.Body) (hashed struct{ Commitment, Seal string }) {
		step := c.Tool("compute_commitment_tool", e2e.Body{"input": input, "salt": salt, "deal_id": d.ID, "invite_token": d.Tokens[party], "timelock": true})
		step.Into(t, &hashed)
		if next := step.Meta.Next; next.Tool != "commit_input" || next.Arguments["seal"] == nil || !strings.HasPrefix(hashed.Seal, "-----BEGIN AGE") {
			t.Errorf("after compute_commitment_tool: %+v with the seal %.40q", next, hashed.Seal)
		}
		return hashed
	}
	later := create(e2e.After(time.Hour))
	c.Fails("SEAL_REQUIRED", "commit_input", fmt.Sprintf(`{"deal_id":%q,"invite_token":%q,"commitment":%q}`, later.ID, later.Tokens[0], compute(later, 0, e2e.AnnsValues).Commitment))

	var d *e2e.CreatedDeal
	var round int64
	e2e.InTime(t, 10*time.Second, func(lead time.Duration) bool {
		by := e2e.After(lead)
		d, round = create(by), timelock.RoundOf(chain, by)
		for party, input := range []e2e.Body{e2e.AnnsValues, e2e.BobsValues} {
			hashed := compute(d, party, input)
			arguments := e2e.JsonText(t, e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[party], "commitment": hashed.Commitment, "seal": hashed.Seal})
			done := c.Raw("commit_input", arguments)
			if done.IsError && strings.HasPrefix(done.Content[0].Text, "DEADLINE_PASSED") {
				return false
			}
			if at := chain.RoundTime(round); done.IsError || done.Meta.LookAt != at || !strings.Contains(done.Meta.Next.Why, "End your turn") || !strings.Contains(string(done.Structured), "fairpact seal receipt v1") {
				t.Fatalf("after commit_input: %+v, %s; want to look again at %d", done.Meta, done.Structured, at)
			}
		}
		return true
	})
	if waits := c.Tool("get_deal", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0]}); waits.Meta.Next.Tool != "get_deal" || waits.Meta.LookAt != chain.RoundTime(round) {
		t.Errorf("before the round: %+v, want to look again at the round", waits.Meta)
	}
	time.Sleep(time.Until(time.Unix(chain.RoundTime(round), 0)))
	var cert struct {
		Outcome    string
		Properties []string
	}
	e2e.Must(t, json.Unmarshal(d.Certified(time.Minute), &cert))
	if cert.Outcome != "COMPUTED" || !slices.Contains(cert.Properties, fmt.Sprintf("opened-by-timelock:%d", round)) {
		t.Errorf("certificate %+v, want COMPUTED by round %d", cert, round)
	}
}
