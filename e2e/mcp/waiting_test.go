package mcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// An agent follows a deal by making the call that NEXT names: it waits for the
// others, and each answer says by when to look again.
func TestMCPWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	d := c.Create(b)
	inputs := []e2e.Sealed{e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 1}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 1}})}
	d.Commit(0, inputs[0])
	before := c.Tool("get_deal", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0]})
	next := before.Meta.Next
	if next.Tool != "get_deal" || next.Arguments["wait_seconds"] != 45. || next.Arguments["since"] != "COMMITTING" {
		t.Fatalf("next: %+v", next)
	}
	if look := fmt.Sprint(before.Meta.LookAt); look != fmt.Sprint(b["commit_deadline"]) || !strings.Contains(before.Content[1].Text, look) {
		t.Errorf("look at %s, want %v; said %s", look, b["commit_deadline"], before.Content[1].Text)
	}
	waits := func(tool string, arguments e2e.Body) <-chan e2e.Called {
		got := make(chan e2e.Called, 1)
		go func() { got <- c.Tool(tool, arguments) }()
		return got
	}
	revealing := waits(next.Tool, next.Arguments)
	d.Commit(1, inputs[1])
	if then := <-revealing; then.Meta.Next.Tool != "reveal_input" {
		t.Errorf("once all have committed: %+v", then.Meta.Next)
	}
	// The change lies before the call.
	if late := c.Tool(next.Tool, next.Arguments); late.Meta.Next.Tool != "reveal_input" {
		t.Errorf("asked late: %+v", late.Meta.Next)
	}
	certificate := waits("get_certificate", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0], "wait_seconds": 45})
	d.Reveal(0, inputs[0])
	d.Reveal(1, inputs[1])
	if got := <-certificate; got.Meta.Next.Tool != "verify_certificate" {
		t.Errorf("the certificate: %+v", got.Meta.Next)
	}
	c.Fails("INVALID_REQUEST", "get_deal", fmt.Sprintf(`{"deal_id":%q,"invite_token":%q,"wait_seconds":46}`, d.ID, d.Tokens[0]))
	c.Fails("INVALID_REQUEST", "get_deal", fmt.Sprintf(`{"deal_id":%q,"invite_token":%q,"wait_seconds":5,"since":"open"}`, d.ID, d.Tokens[0]))
}

// get_certificate waits for the beacon round and draws.
func TestMCPWaitsForTheDraw(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	round := e2e.BeaconChain(t).RoundAt(time.Now().Unix()) + 4
	d := c.Create(e2e.RandomBody(2, round, time.Hour, 2*time.Hour))
	d.Play(e2e.Body{"nonce": "00"}, e2e.Body{"nonce": "01"})
	got := c.Tool("get_certificate", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[1], "wait_seconds": 45})
	if !strings.Contains(string(got.Structured), fmt.Sprintf(`"round":%d`, round)) {
		t.Errorf("%s", got.Structured)
	}
}
