package escrow_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/certificate"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/store"
)

const origin = "https://fairpact.example.com"

// at is a replica of a deployment that callers reach at the origin.
func (h *house) at(origin string) *escrow.Service {
	return escrow.New(h.store, h.secrets, h.pen, h.keys, h.log, h.well, escrow.Options{EntropyWindow: window, PublicURL: origin}, slog.New(slog.DiscardHandler))
}

// seatKey makes a key, and what it signs of a deal's seat.
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
				d.PartyKeys = append(d.PartyKeys, nil)
			} else {
				d.PartyKeys = append(d.PartyKeys, &key)
			}
		}
	}
}

// keyedGame is a split whose parties have declared keys, made at the origin.
func (h *house) keyedGame(t *testing.T, change func(*escrow.Declared)) *game {
	t.Helper()
	h.origin = origin
	return h.split(t, change)
}

// signed commits with a seat key, whatever the deal says of it.
func (g *game) signed(t *testing.T, svc *escrow.Service, party int, key string, sign func([]byte) string) answer[escrow.Committed] {
	t.Helper()
	access := g.access(t, svc, g.tokens[party], escrow.AsParty)
	hash := g.commitment(t, party)
	message := of(svc.ToSign(access, store.CommitmentText(hash[:]))).ok(t)
	return of(svc.Commit(t.Context(), access, escrow.Commitment{Hash: hash, Key: key, Signature: sign(message)}, nil))
}

// Where a seat has a declared key, the holder of its token alone commits nothing:
// neither without a signature, nor with another key or another signature.
func TestADeclaredSeatTakesItsKeyOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	svc := h.at(origin)
	key, sign := seatKey("b")
	other, signOther := seatKey("x")
	g := h.keyedGame(t, keyed("", key))
	g.commit(t, svc, 0).ok(t)
	g.commit(t, svc, 1).refused(t, problem.SeatKeyRequired)
	g.signed(t, svc, 1, other, signOther).refused(t, problem.SeatKeyRequired)
	g.signed(t, svc, 1, key, signOther).refused(t, problem.InvalidPartySignature)
	g.signed(t, svc, 1, key, func(m []byte) string { return sign(append(m, '\n')) }).refused(t, problem.InvalidPartySignature)
	g.signed(t, h.at("https://other.example.com"), 1, key, func(m []byte) string {
		return sign([]byte(strings.Replace(string(m), "other", "fairpact", 1)))
	}).refused(t, problem.InvalidPartySignature)
	if v := g.view(t, svc); v.Commits != 1 {
		t.Fatalf("%d have committed", v.Commits)
	}
	g.signed(t, svc, 1, key, sign).ok(t)
	// Late comes before what is wrong with a commitment, and says what to do.
	if said := g.commit(t, svc, 1).refused(t, problem.AlreadyCommitted).Error(); !strings.Contains(said, "somebody used this invite token") {
		t.Errorf("a party whose token was used is told %q", said)
	}
}

// The certificate names who signed, and anybody can check it from the certificate and
// what was declared.
func TestCertificateNamesWhoSigned(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	svc := h.at(origin)
	declared, signDeclared := seatKey("b")
	brought, signBrought := seatKey("a")
	g := h.keyedGame(t, keyed("", declared))
	before := of(svc.Declaration(t.Context(), g.access(t, svc, g.tokens[1], escrow.Read))).ok(t)
	if want := []string{"initiator", "initiator " + declared}; !slices.Equal(before.AttestedBy, want) || before.Party != 1 || before.Origin != origin {
		t.Errorf("before the commits: %+v", before)
	}
	g.signed(t, svc, 0, brought, signBrought).ok(t)
	g.signed(t, svc, 1, declared, signDeclared).ok(t)
	fresh := h.replica() // knows what is stored, and no origin
	g.reveal(t, fresh, 0).ok(t)
	g.reveal(t, fresh, 1).ok(t)
	c := g.certificate(t, fresh).ok(t)
	declaration := of(fresh.Declaration(t.Context(), g.access(t, fresh, g.key, escrow.Read))).ok(t)
	if got := of(attestation.DigestIn(c.Properties)).ok(t); got != declaration.Digest || got != before.Digest || got != attestation.Digest(declaration.Declared) {
		t.Errorf("the certificate names %s, the deal declares %s and %s", got, before.Digest, declaration.Digest)
	}
	for i, want := range []attestation.Attestation{{Key: brought, Origin: origin}, {Declared: true, Key: declared, Origin: origin}} {
		by := of(attestation.Parse(c.Parties[i].AttestedBy)).ok(t)
		seat := attestation.Seat{DealID: g.id, Party: i, Commitment: *c.Parties[i].Commitment, Declaration: declaration.Digest}
		if err := by.Verify(seat, signing.VerifyLabel); err != nil || by.Declared != want.Declared || by.Key != want.Key || by.Origin != want.Origin || declaration.AttestedBy[i] != c.Parties[i].AttestedBy {
			t.Errorf("party %d: %q, %v", i, c.Parties[i].AttestedBy, err)
		}
	}
	bundle := of(fresh.Bundle(t.Context(), g.access(t, fresh, g.tokens[0], escrow.AsParty))).ok(t)
	if string(bundle.Declaration) != string(declaration.Declared) {
		t.Errorf("the bundle declares %s", bundle.Declaration)
	}
	var said struct {
		PartyKeys []*string      `json:"party_keys"`
		Params    map[string]any `json:"algorithm_params"`
	}
	if err := json.Unmarshal(bundle.Declaration, &said); err != nil || len(said.PartyKeys) != 2 || said.PartyKeys[0] != nil || *said.PartyKeys[1] != declared {
		t.Errorf("%s: %v", bundle.Declaration, err)
	}
}

// What a release without seat keys stored of a keyed deal says that the key signed
// nothing.
func TestACommitmentWithoutItsSignatureShows(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	svc := h.at(origin)
	key, sign := seatKey("b")
	g := h.keyedGame(t, keyed(key, key))
	g.signed(t, svc, 0, key, sign).ok(t)
	g.signed(t, svc, 1, key, sign).ok(t)
	h.exec(t, "UPDATE commitments SET attested_by = NULL WHERE deal_id = $1 AND party = 1", g.id)
	g.reveal(t, svc, 0).ok(t)
	g.reveal(t, svc, 1).ok(t)
	if got := g.certificate(t, svc).ok(t).Parties[1].AttestedBy; got != "initiator "+key {
		t.Errorf("attested_by %q", got)
	}
}

func TestSeatKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	key, sign := seatKey("b")
	owner := func(svc *escrow.Service) escrow.Principal {
		return of(svc.Authenticate(t.Context(), of(svc.CreateKey(t.Context(), nil)).ok(t).APIKey)).ok(t)
	}
	now := h.now(t)
	create := func(svc *escrow.Service, keys ...string) answer[escrow.Created] {
		d := escrow.Declared{Algorithm: "split.v1", Mode: "sealed", Retention: "standard", Labels: []string{"a", "b"}, CommitDeadline: now + 3600, RevealDeadline: now + 7200, Params: map[string]any{"items": []any{"car"}}}
		keyed(keys...)(&d)
		return of(svc.Create(t.Context(), owner(svc), d, nil))
	}
	svc := h.at(origin)
	create(svc, key).refused(t, problem.InvalidParams)
	create(svc, key, key, key).refused(t, problem.InvalidParams)
	for _, bad := range []string{"ed25519:" + strings.Repeat("0", 64), "ed25519:01" + strings.Repeat("0", 62), strings.ToUpper(key), "es256:" + strings.Repeat("0", 66), "key"} {
		if said := create(svc, "", bad).refused(t, problem.InvalidParams).Error(); !strings.Contains(said, "party_keys[1]") {
			t.Errorf("%s: %s", bad, said)
		}
	}
	create(svc, "", "").ok(t)
	create(h.replica(), "", "").ok(t)
	create(h.replica(), "", key).refused(t, problem.InvalidRequest)
	g := h.split(t, nil)
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	hash := g.commitment(t, 0)
	of(svc.Commit(t.Context(), access, escrow.Commitment{Hash: hash, Key: "key", Signature: sign(nil)}, nil)).refused(t, problem.InvalidRequest)
	plain := h.replica()
	of(plain.Commit(t.Context(), g.access(t, plain, g.tokens[0], escrow.AsParty), escrow.Commitment{Hash: hash, Key: key, Signature: sign(nil)}, nil)).refused(t, problem.InvalidRequest)
}

// The properties of a VOID say why, and nothing that is not so.
func TestPropertiesOfAVoid(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	svc := h.replica()
	void := func(g *game, want ...string) {
		t.Helper()
		c := g.certificate(t, h.replica()).ok(t) // one that knows the deadlines as they are now
		got := slices.DeleteFunc(slices.Clone(c.Properties), func(p string) bool { return strings.HasPrefix(p, "declaration-sha256:") })
		if c.Outcome != certificate.Void || !slices.Equal(got, want) || len(got)+1 != len(c.Properties) {
			t.Errorf("%s with %v, want %v", c.Outcome, c.Properties, want)
		}
	}
	commits := h.split(t, purge)
	commits.commit(t, svc, 0).ok(t)
	h.exec(t, "UPDATE deals SET commit_deadline = created_at WHERE deal_id = $1", commits.id)
	void(commits, "void:missed-commit", "logged")

	nobody, one := h.split(t, purge), h.split(t, purge)
	for _, g := range []*game{nobody, one} {
		g.commit(t, svc, 0).ok(t)
		g.commit(t, svc, 1).ok(t)
	}
	one.reveal(t, svc, 1).ok(t)
	for _, g := range []*game{nobody, one} {
		h.exec(t, "UPDATE deals SET commit_deadline = created_at, reveal_deadline = created_at + 1 WHERE deal_id = $1", g.id)
		h.exec(t, "UPDATE deals SET created_at = created_at - 10, commit_deadline = commit_deadline - 10, reveal_deadline = reveal_deadline - 10 WHERE deal_id = $1", g.id)
	}
	void(nobody, "void:missed-reveal", "logged")
	void(one, "inputs-committed-before-reveal", "void:missed-reveal", "inputs-purged", "logged")

	rejected := h.shapley(t, `{"accept":false}`, `{"accept":true}`)
	rejected.commit(t, svc, 0).ok(t)
	rejected.commit(t, svc, 1).ok(t)
	rejected.reveal(t, svc, 0).ok(t)
	void(rejected, "inputs-committed-before-reveal", "void:rejected", "logged")
}

// A declaration may hold more values than a text that is read, and is still digested.
func TestDigestOfALargeDeclaration(t *testing.T) {
	t.Parallel()
	labels := make([]string, 10_000)
	for i := range labels {
		labels[i] = "p"
	}
	d := attestation.Declaration{Algorithm: "random.v1", Params: map[string]any{}, PartyLabels: labels}
	if _, err := canon.Parse(d.Bytes()); err != nil {
		t.Errorf("a declaration of 10,000 parties cannot be read: %v", err)
	}
}
