package api

import (
	"crypto/ed25519"
	"encoding/hex"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/canon"
)

// A party signs its commitment with the declared seat key, over the digest of the
// declaration that it reads. The certificate shows both. internal/escrow tests the
// refusals.
func TestSeatKeys(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := "ed25519:" + hex.EncodeToString(public)
	d := c.Create(changed(split(), "party_keys", []any{nil, key}))
	var read struct {
		Party  *int
		Origin string
		Digest string `json:"declaration_sha256"`
	}
	answer := c.Want(200, "GET", d.Path("/declaration"), d.Tokens[1], nil)
	answer.Into(t, &read)
	tree, err := canon.ParseObject(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := attestation.Digest(canon.Encode(tree["declaration"])); got != read.Digest || read.Party == nil || *read.Party != 1 || read.Origin == "" {
		t.Errorf("declaration: %s, and its digest is %s", answer.Body, got)
	}
	read.Party = nil
	if c.Want(200, "GET", d.Path("/declaration"), d.Key, nil).Into(t, &read); read.Party != nil {
		t.Errorf("the declaration read by the API key is for party %d", *read.Party)
	}

	ann, bob := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	d.Commit(0, ann)
	seat := attestation.Seat{DealID: d.ID, Party: 1, Commitment: bob.Commitment, Declaration: read.Digest}
	signed := func(origin string) e2e.Body {
		return changed(bob.Act("commit"), "party_key", key, "party_signature", "ed25519:"+hex.EncodeToString(ed25519.Sign(private, seat.Message(origin))))
	}
	c.Refused(403, "SEAT_KEY_REQUIRED", "POST", d.Path("/commit"), d.Tokens[1], bob.Act("commit"))
	c.Refused(400, "INVALID_PARTY_SIGNATURE", "POST", d.Path("/commit"), d.Tokens[1], signed("https://other.example.com"))
	c.Want(200, "POST", d.Path("/commit"), d.Tokens[1], signed(read.Origin))
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
}
