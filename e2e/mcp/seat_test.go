package mcp

import (
	"crypto/ed25519"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
)

// An agent signs with its seat key over MCP: it reads that a key is declared, hashes
// and signs where it is, and commits.
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
	if next := c.Tool("get_deal", deal(e2e.Body{})).Meta.Next.Why; !strings.Contains(next, "declared the seat key "+key+" for you") {
		t.Errorf("the party is told %q", next)
	}
	text := e2e.JsonText(t, deal(e2e.Body{"commitment": bob.Commitment}))
	c.Fails("SEAT_KEY_REQUIRED", "commit_input", text)
	var hashed struct {
		Commitment string
		ToSign     string `json:"to_sign"`
	}
	c.Tool("compute_commitment_tool", deal(e2e.Body{"commitment": bob.Commitment})).Into(t, &hashed)
	if lines := strings.Split(hashed.ToSign, "\n"); hashed.Commitment != bob.Commitment || len(lines) != 7 || lines[0] != "fairpact seat v1" || lines[2] != made.DealID || lines[3] != "1" || lines[4] != bob.Commitment {
		t.Fatalf("to_sign is %q", hashed.ToSign)
	}
	whole := hashed.ToSign
	c.Tool("compute_commitment_tool", deal(e2e.Body{"input": bob.Input, "salt": bob.Salt})).Into(t, &hashed)
	if hashed.ToSign != whole {
		t.Errorf("hashed by the tool, to_sign is %q, want %q", hashed.ToSign, whole)
	}
	c.Fails("INVALID_REQUEST", "compute_commitment_tool", `{"commitment":"`+bob.Commitment+`"}`)
	sign := func(message string) e2e.Body {
		return deal(e2e.Body{"commitment": bob.Commitment, "party_key": key, "party_signature": "ed25519:" + hex.EncodeToString(ed25519.Sign(private, []byte(message)))})
	}
	c.Fails("INVALID_PARTY_SIGNATURE", "commit_input", e2e.JsonText(t, sign(strings.TrimSpace(whole))))
	var committed struct{ Committed bool }
	if c.Tool("commit_input", sign(whole)).Into(t, &committed); !committed.Committed {
		t.Error("not committed")
	}
}
