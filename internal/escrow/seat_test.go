package escrow_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const origin = "https://fairpact.example.com"

func (h *fixture) at(origin string) *escrow.Service {
	return h.replicaOn(h.store, escrow.Options{PublicURL: origin})
}

func seatKey(seed string) (label string, sign func([]byte) string) {
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(seed, 32)[:32]))
	return "ed25519:" + hex.EncodeToString(key.Public().(ed25519.PublicKey)), func(message []byte) string {
		return "ed25519:" + hex.EncodeToString(ed25519.Sign(key, message))
	}
}

func keyed(keys ...string) func(*escrow.Declared) {
	return func(d *escrow.Declared) {
		for _, key := range keys {
			if key == "" {
				d.SeatKeys = append(d.SeatKeys, nil)
			} else {
				d.SeatKeys = append(d.SeatKeys, &key)
			}
		}
	}
}

func (g *game) signed(t *testing.T, svc *escrow.Service, party int, key string, sign func([]byte) string) answer[escrow.Committed] {
	t.Helper()
	access := g.access(t, svc, g.tokens[party], escrow.AsParty)
	hash := g.commitment(t, party)
	message := of(svc.ToSign(access, store.CommitmentText(hash[:]))).ok(t)
	return of(svc.Commit(t.Context(), access, escrow.Commitment{Hash: hash, Key: key, Signature: sign(message)}, nil))
}

func TestDeclaredSeatAcceptsOnlyItsKey(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.origin = origin
	svc := h.at(origin)
	key, sign := seatKey("b")
	other, signOther := seatKey("x")
	g := h.split(t, keyed("", key))
	g.commit(t, svc, 0).ok(t)
	g.commit(t, svc, 1).refused(t, problem.SeatKeyRequired)
	g.signed(t, svc, 1, other, signOther).refused(t, problem.SeatKeyRequired)
	g.signed(t, svc, 1, key, signOther).refused(t, problem.InvalidPartySignature)
	g.signed(t, svc, 1, key, func(m []byte) string { return sign(append(m, '\n')) }).refused(t, problem.InvalidPartySignature)
	g.signed(t, h.at("https://other.example.com"), 1, key, func(m []byte) string {
		return sign([]byte(strings.Replace(string(m), "other", "fairpact", 1)))
	}).refused(t, problem.InvalidPartySignature)
	if v := g.view(t, svc); v.Commits != 1 {
		t.Fatalf("%d parties have committed, want 1", v.Commits)
	}
	g.signed(t, svc, 1, key, sign).ok(t)
	// A second commitment is refused as ALREADY_COMMITTED, even if its signature is
	// missing.
	if said := g.commit(t, svc, 1).refused(t, problem.AlreadyCommitted).Error(); !strings.Contains(said, "somebody used this invite token") {
		t.Errorf("a second commitment is refused with %q, want a text that warns of a used invite token", said)
	}
}

func TestCertificateContainsSeatSignatures(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.origin = origin
	svc := h.at(origin)
	declared, signDeclared := seatKey("b")
	brought, signBrought := seatKey("a")
	g := h.split(t, keyed("", declared))
	before := of(svc.Declaration(t.Context(), g.access(t, svc, g.tokens[1], escrow.Read))).ok(t)
	if want := []string{"initiator", "initiator " + declared}; !slices.Equal(before.AttestedBy, want) || *before.Party != 1 || *before.Origin != origin {
		t.Errorf("before the commits the declaration is %+v, want attested_by %v, party 1 and origin %s", before, want, origin)
	}
	g.signed(t, svc, 0, brought, signBrought).ok(t)
	g.signed(t, svc, 1, declared, signDeclared).ok(t)
	fresh := h.replica() // this replica has no PublicURL, so the certificate must take attested_by from the database
	g.reveal(t, fresh, 0).ok(t)
	g.reveal(t, fresh, 1).ok(t)
	c := g.certificate(t, fresh).ok(t)
	declaration := of(fresh.Declaration(t.Context(), g.access(t, fresh, g.key, escrow.Read))).ok(t)
	if got := of(certificate.DeclarationIn(c.Properties)).ok(t); got != declaration.Digest || got != before.Digest || got != certificate.DeclarationDigest(declaration.Declared) {
		t.Errorf("the certificate names the declaration %s, want %s, and before the commits it was %s", got, declaration.Digest, before.Digest)
	}
	for i, want := range []certificate.Attestation{{Key: brought, Origin: origin}, {Declared: true, Key: declared, Origin: origin}} {
		by := of(certificate.ParseAttestation(c.Parties[i].AttestedBy)).ok(t)
		seat := certificate.Seat{DealID: g.id, Party: i, Commitment: *c.Parties[i].Commitment, Declaration: declaration.Digest}
		if err := by.Verify(seat); err != nil || by.Declared != want.Declared || by.Key != want.Key || by.Origin != want.Origin || declaration.AttestedBy[i] != c.Parties[i].AttestedBy {
			t.Errorf("party %d: attested_by is %q (%v), want a valid signature by %+v", i, c.Parties[i].AttestedBy, err, want)
		}
	}
	bundle := of(fresh.Bundle(t.Context(), g.access(t, fresh, g.tokens[0], escrow.AsParty), false)).ok(t)
	if string(bundle.Declaration) != string(declaration.Declared) {
		t.Errorf("the bundle has the declaration %s, want %s", bundle.Declaration, declaration.Declared)
	}
}

func TestUnusableSeatKeysAreRefused(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	key, sign := seatKey("b")
	g := h.split(t, nil)
	keyless, svc := h.replica(), h.at(origin)
	create := func(svc *escrow.Service, keys ...string) answer[escrow.Created] {
		d := escrow.Declared{Terms: deal.Terms{Algorithm: "split.v1", Mode: "sealed", Retention: "standard", Labels: []string{"a", "b"}, CommitDeadline: h.now(t) + 3600, RevealDeadline: h.now(t) + 7200, Params: []byte(`{"items":["car"]}`)}}
		keyed(keys...)(&d)
		return of(svc.Create(t.Context(), of(svc.Authenticate(t.Context(), g.key)).ok(t), d, nil, free))
	}
	commit := func(svc *escrow.Service, key string) answer[escrow.Committed] {
		return of(svc.Commit(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty), escrow.Commitment{Hash: g.commitment(t, 0), Key: key, Signature: sign(nil)}, nil))
	}
	create(svc, key, key, key).refused(t, problem.InvalidParams)
	create(svc, key).refused(t, problem.InvalidParams)
	if said := create(svc, "", "key").refused(t, problem.InvalidParams).Error(); !strings.Contains(said, "party_keys[1]") {
		t.Errorf("the refusal is %q, want one that names party_keys[1]", said)
	}
	create(keyless, "", "").ok(t)
	create(keyless, "", key).refused(t, problem.InvalidRequest)
	commit(svc, "key").refused(t, problem.InvalidRequest)
	commit(keyless, key).refused(t, problem.InvalidRequest)
}

func TestLargestDeclarationIsParsed(t *testing.T) {
	t.Parallel()
	labels := make([]string, 10_000)
	for i := range labels {
		labels[i] = "p"
	}
	d := deal.Terms{Algorithm: "random.v1", Params: []byte("{}"), Labels: labels}
	text, err := d.Canonical()
	check(t, err)
	if _, err := canon.Parse(text); err != nil {
		t.Errorf("canon.Parse of a declaration of 10,000 parties: %v, want no error", err)
	}
}
