package api

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/canon"
)

// A seat key signs over what the declaration says, and the certificate shows it.
func TestSeatKeys(t *testing.T) {
	t.Parallel()
	c := e2e.NewClient(t, e2e.BaseURL(t))
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := "ed25519:" + hex.EncodeToString(public)
	body := e2e.SplitBody(time.Hour, 2*time.Hour)
	body["party_keys"] = []any{nil, key}
	d := c.Create(body)
	var read struct {
		DealID      string `json:"deal_id"`
		Party       *int
		Origin      string
		Digest      string `json:"declaration_sha256"`
		Declaration map[string]any
		AttestedBy  []string `json:"attested_by"`
	}
	answer := c.Do("GET", d.Path("/declaration"), d.Tokens[1], nil)
	answer.Into(t, &read)
	tree, err := canon.ParseObject(answer.Body)
	if err != nil || answer.Status != 200 {
		t.Fatalf("declaration: %d %s, %v", answer.Status, answer.Body, err)
	}
	if got := attestation.Digest(canon.Encode(tree["declaration"])); got != read.Digest || read.DealID != d.ID || read.Party == nil || *read.Party != 1 || read.Origin == "" {
		t.Errorf("declaration: %s, and its digest is %s", answer.Body, got)
	}
	if want := "[initiator initiator " + key + "]"; fmt.Sprint(read.AttestedBy) != want {
		t.Errorf("attested_by %v, want %s", read.AttestedBy, want)
	}
	if a := c.Do("GET", d.Path("/declaration"), d.Key, nil); a.Status != 200 || !strings.Contains(string(a.Body), `"party":null`) {
		t.Errorf("by the API key: %d %s", a.Status, a.Body)
	}

	ann, bob := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	commit := func(more e2e.Body) e2e.Answer {
		b := bob.Act("commit")
		for name, v := range more {
			b[name] = v
		}
		return c.Do("POST", d.Path("/commit"), d.Tokens[1], b)
	}
	seat := attestation.Seat{DealID: d.ID, Party: 1, Commitment: bob.Commitment, Declaration: read.Digest}
	signed := func(origin string) e2e.Body {
		return e2e.Body{"party_key": key, "party_signature": "ed25519:" + hex.EncodeToString(ed25519.Sign(private, seat.Message(origin)))}
	}
	for what, row := range map[string]struct {
		with e2e.Body
		code string
	}{
		"no signature":        {nil, "SEAT_KEY_REQUIRED"},
		"half of it":          {e2e.Body{"party_key": key}, "INVALID_REQUEST"},
		"another origin":      {signed("https://other.example.com"), "INVALID_PARTY_SIGNATURE"},
		"no signature's form": {e2e.Body{"party_key": key, "party_signature": "ed25519:00"}, "INVALID_PARTY_SIGNATURE"},
	} {
		if a := commit(row.with); a.Code() != row.code {
			t.Errorf("%s: %d %s, want %s", what, a.Status, a.Body, row.code)
		}
	}
	d.Commit(0, ann)
	if a := commit(signed(read.Origin)); a.Status != 200 {
		t.Fatalf("commit: %d %s", a.Status, a.Body)
	}
	d.Reveal(0, ann)
	d.Reveal(1, bob)
	var cert struct {
		Properties []string
		Parties    []struct {
			AttestedBy string `json:"attested_by"`
		}
	}
	e2e.Answer{Body: d.Certified(e2e.Patience)}.Into(t, &cert)
	by, err := attestation.Parse(cert.Parties[1].AttestedBy)
	if err != nil || !by.Declared || by.Key != key || by.Origin != read.Origin || cert.Parties[0].AttestedBy != "initiator" {
		t.Errorf("attested_by %+v, %v", cert.Parties, err)
	}
	if digest, err := attestation.DigestIn(cert.Properties); err != nil || digest != read.Digest {
		t.Errorf("properties %v, %v", cert.Properties, err)
	}

	for what, keys := range map[string][]any{"one for two": {key}, "a string": {"key", nil}, "small order": {nil, "ed25519:01" + strings.Repeat("0", 62)}} {
		b := e2e.SplitBody(time.Hour, 2*time.Hour)
		b["party_keys"] = keys
		if a := c.Do("POST", "/v1/deals", d.Key, b); a.Status != 400 || a.Code() != "INVALID_PARAMS" {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
}
