package mcp

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

func TestMCPWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	b := e2e.SplitBody(time.Hour, 2*time.Hour)
	d := c.Create(b)
	inputs := []e2e.Sealed{e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)}
	d.Commit(0, inputs[0])
	before := c.Tool("get_deal", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0]})
	next := before.Meta.Next
	if next.Tool != "get_deal" || next.Arguments["wait_seconds"] != 45. || next.Arguments["since"] != "COMMITTING" || next.Arguments["invite_token"] != "<INVITE_TOKEN>" {
		t.Fatalf("the next step is %+v, want get_deal that waits 45 s since COMMITTING", next)
	}
	next.Arguments["invite_token"] = d.Tokens[0]
	if look := fmt.Sprint(before.Meta.LookAt); look != fmt.Sprint(b["commit_deadline"]) || !strings.Contains(before.Content[1].Text, look) {
		t.Errorf("look_at is %s, want %v, also in the text %q", look, b["commit_deadline"], before.Content[1].Text)
	}
	waits := func(tool string, arguments e2e.Body) <-chan e2e.ToolResult {
		got := make(chan e2e.ToolResult, 1)
		go func() { got <- c.Tool(tool, arguments) }()
		return got
	}
	revealing := waits(next.Tool, next.Arguments)
	d.Commit(1, inputs[1])
	if then := <-revealing; then.Meta.Next.Tool != "reveal_input" {
		t.Errorf("after the last commit the next step is %+v, want reveal_input", then.Meta.Next)
	}
	if late := c.Tool(next.Tool, next.Arguments); late.Meta.Next.Tool != "reveal_input" {
		t.Errorf("for a call after the change the next step is %+v, want reveal_input", late.Meta.Next)
	}
	certificate := waits("get_certificate", e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[0], "wait_seconds": 45})
	d.Reveal(0, inputs[0])
	d.Reveal(1, inputs[1])
	if got := <-certificate; got.Meta.Next.Tool != "verify_certificate" {
		t.Errorf("after the certificate the next step is %+v, want verify_certificate", got.Meta.Next)
	}
	for _, wait := range []string{"46", "-100", "10000000000"} { // as a time limit, the last two have passed
		c.Fails("INVALID_REQUEST", "get_deal", fmt.Sprintf(`{"deal_id":%q,"invite_token":%q,"wait_seconds":%s}`, d.ID, d.Tokens[0], wait))
	}
	c.Fails("INVALID_REQUEST", "get_deal", fmt.Sprintf(`{"deal_id":"","invite_token":%q}`, d.Tokens[0]))
	c.Fails("INVALID_REQUEST", "verify_certificate", `{"cert_id":""}`)
	c.Fails("INVALID_REQUEST", "get_deal", fmt.Sprintf(`{"deal_id":%q,"invite_token":%q,"wait_seconds":5,"since":"open"}`, d.ID, d.Tokens[0]))
}

// After the reveals of a random.v1 deal, the next step is get_certificate. Before the beacon round is
// published, get_certificate says when to repeat the call. With wait_seconds, get_certificate waits
// for the round and then draws.
func TestMCPDraws(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	chain := e2e.BeaconChain(t)
	now := time.Now().Unix()
	for _, round := range []int64{chain.RoundAt(now + 3600), chain.RoundAt(now) + 4} {
		d := c.Create(e2e.RandomBody(2, round, time.Hour, 2*time.Hour))
		token := e2e.Body{"deal_id": d.ID, "invite_token": d.Tokens[1]}
		d.Play(e2e.Body{"nonce": "aa"}, e2e.Body{"nonce": "bb"})
		if next := c.Tool("get_deal", token).Meta.Next; next.Tool != "get_certificate" {
			t.Errorf("after the last reveal the next step is %+v, want get_certificate", next)
		}
		if chain.RoundTime(round) > now+600 {
			r := c.Fails("CERT_NOT_READY", "get_certificate", e2e.JsonText(t, token))
			if at := fmt.Sprint(chain.RoundTime(round)); !strings.Contains(r.Content[0].Text, at) || r.Meta.Error.RetryAfter == nil || *r.Meta.Error.RetryAfter < 3000 {
				t.Errorf("get_certificate before the round at %s: %+v, want that time and retry_after of at least 3000", at, r)
			}
			continue
		}
		token["wait_seconds"] = 45
		got := c.Tool("get_certificate", token).Structured
		if !strings.Contains(string(got), fmt.Sprintf(`"round":%d`, round)) {
			t.Errorf("the certificate has no draw of round %d: %s", round, got)
		}
		e2e.RequireIndependentVerdict(t, c, got, true)
	}
}

// get_deal tells a party that its seat has a declared key. compute_commitment_tool returns the text
// to sign. The party signs locally and commits.
func TestMCPSeatKey(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := "ed25519:" + hex.EncodeToString(public)
	body := e2e.SplitBody(time.Hour, 2*time.Hour)
	body["party_keys"] = []any{nil, key}
	body["api_key"] = c.Key()
	var made struct {
		DealID  string                   `json:"deal_id"`
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	c.Tool("create_deal", body).Into(t, &made)
	bob := e2e.Seal(t, e2e.BobsValues)
	deal := func(more e2e.Body) e2e.Body {
		more["deal_id"], more["invite_token"] = made.DealID, made.Invites[1].Token
		return more
	}
	if next := c.Tool("get_deal", deal(e2e.Body{})).Meta.Next; !strings.Contains(next.Why, "declared the seat key "+key+" for you") || next.Tool != "compute_commitment_tool" {
		t.Errorf("the next step is %+v, want compute_commitment_tool and the declared seat key %s", next, key)
	}
	half := c.Tool("compute_commitment_tool", deal(e2e.Body{"input": e2e.Body{"valuations": e2e.Body{"car": 1}}, "salt": bob.Salt}))
	if next := half.Meta.Next; next.Arguments["party_key"] != key || next.Arguments["deal_id"] != made.DealID || !strings.Contains(next.Why, "READ `warning` FIRST") {
		t.Errorf("after an input that leaves out items the next step is %+v, want commit_input with the key and a warning", next)
	}
	text := e2e.JsonText(t, deal(e2e.Body{"commitment": bob.Commitment}))
	c.Fails("SEAT_KEY_REQUIRED", "commit_input", text)
	var hashed struct {
		Commitment string
		ToSign     string `json:"to_sign"`
	}
	c.Tool("compute_commitment_tool", deal(e2e.Body{"commitment": bob.Commitment})).Into(t, &hashed)
	if lines := strings.Split(hashed.ToSign, "\n"); hashed.Commitment != bob.Commitment || len(lines) != 7 || lines[0] != "fairpact seat v1" || lines[2] != made.DealID || lines[3] != "1" || lines[4] != bob.Commitment {
		t.Fatalf("to_sign is %q, want 7 lines for party 1 of deal %s with commitment %s", hashed.ToSign, made.DealID, bob.Commitment)
	}
	whole := hashed.ToSign
	c.Tool("compute_commitment_tool", deal(e2e.Body{"input": bob.Input, "salt": bob.Salt})).Into(t, &hashed)
	if hashed.ToSign != whole {
		t.Errorf("with input and salt instead of the commitment, to_sign is %q, want %q", hashed.ToSign, whole)
	}
	c.Fails("INVALID_REQUEST", "compute_commitment_tool", `{"commitment":"`+bob.Commitment+`"}`)
	sign := func(message string) e2e.Body {
		return deal(e2e.Body{"commitment": bob.Commitment, "party_key": key, "party_signature": "ed25519:" + hex.EncodeToString(ed25519.Sign(private, []byte(message)))})
	}
	c.Fails("INVALID_PARTY_SIGNATURE", "commit_input", e2e.JsonText(t, sign(strings.TrimSpace(whole))))
	var committed struct{ Committed bool }
	if c.Tool("commit_input", sign(whole)).Into(t, &committed); !committed.Committed {
		t.Error("commit_input with the seat's signature returned committed false, want true")
	}
}
