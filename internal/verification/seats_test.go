package verification_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/algorithm"
	"github.com/fairpact/fairpact/internal/attestation"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/verification"
)

const seatOrigin = "https://fairpact.example.com"

// seatKey is a party's key of either scheme.
type seatKey struct {
	label string
	sign  func(message []byte) string
}

func newSeatKeys(t *testing.T) (ed, es seatKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed = seatKey{"ed25519:" + hex.EncodeToString(public), func(message []byte) string {
		return "ed25519:" + hex.EncodeToString(ed25519.Sign(private, message))
	}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ed, seatKey{es256Label(key), func(message []byte) string { return es256(t, key, message) }}
}

// A certificate does not contain its declaration, so without it the signed params and
// deadlines are not proven.
func TestACertificateAloneLeavesTheDeclarationUnchecked(t *testing.T) {
	t.Parallel()
	const note = "the params and deadlines were not checked"
	cert := drawn(t, algorithm.VectorsOf(algorithm.Random)[0])
	if notes := strings.Join(verification.Verify(verification.Evidence{Certificate: cert}).Notes, "; "); strings.Count(notes, note) != 1 {
		t.Errorf("of a certificate that names a declaration: %q", notes)
	}
	cert["properties"] = []any{"logged"}
	if notes := strings.Join(verification.Verify(verification.Evidence{Certificate: cert}).Notes, "; "); strings.Contains(notes, note) {
		t.Errorf("of a certificate that names none: %q", notes)
	}
}

// seatCases adds cases with seat keys: party 0 brings its key, that of party 1 is declared.
func (f *forger) seatCases(t *testing.T, cert map[string]any, bundleOf func(issued) map[string]any, cases map[string]bundleCase) {
	t.Helper()
	brought, declared := newSeatKeys(t)
	stranger, _ := newSeatKeys(t)
	rows := cert["parties"].([]any)
	labels, keys := make([]any, len(rows)), make([]any, len(rows))
	for i, row := range rows {
		labels[i] = row.(map[string]any)["label"]
	}
	keys[1] = declared.label
	round := int64(12040883) // the declared round
	// seat returns a certificate with these seat signatures, and its bundle.
	seat := func(name, says string, edit func(declaration map[string]any, seats []attestation.Seat, by []attestation.Attestation), change func(cert map[string]any, c *bundleCase), failed ...string) {
		declaration := map[string]any{
			"algorithm": cert["algorithm"], "algorithm_params": map[string]any{"beacon_round": round}, "commit_deadline": int64(1900000000), "reveal_deadline": int64(1900003600),
			"beacon_chain": cert["result"].(map[string]any)["beacon"].(map[string]any)["chain_hash"], "mode": cert["mode"], "retention": cert["retention"],
			"party_keys": keys, "party_labels": labels,
		}
		digest := attestation.Digest(canon.Encode(declaration))
		seats, by := make([]attestation.Seat, len(rows)), make([]attestation.Attestation, len(rows))
		for i, row := range rows {
			seats[i] = attestation.Seat{DealID: cert["deal_id"].(string), Party: i, Commitment: row.(map[string]any)["commitment"].(string), Declaration: digest}
		}
		by[0] = attestation.Attestation{Key: brought.label, Signature: brought.sign(seats[0].Message(seatOrigin)), Origin: seatOrigin}
		by[1] = attestation.Attestation{Declared: true, Key: declared.label, Signature: declared.sign(seats[1].Message(seatOrigin)), Origin: seatOrigin}
		if edit != nil {
			edit(declaration, seats, by)
		}
		seated := maps.Clone(cert)
		seated["properties"] = []any{"inputs-committed-before-reveal", "deterministic-recomputable", "beacon-verified", attestation.Property(digest), "logged"}
		parties := make([]any, len(rows))
		for i, row := range rows {
			party := maps.Clone(row.(map[string]any))
			party["attested_by"] = by[i].String()
			parties[i] = party
		}
		seated["parties"] = parties
		c := bundleCase{Policy: f.policy, Pubkeys: []string{es256Label(f.deployment)}, Failed: append([]string{}, failed...), Says: says, Parties: map[int]string{1: declared.label}}
		if change != nil {
			change(seated, &c)
		}
		bundle := bundleOf(f.issue(t, f.log, "seats", seated)[0])
		bundle["declaration"] = declaration
		if name == "good-seats-without-declaration" {
			delete(bundle, "declaration")
		}
		text, err := json.Marshal(bundle)
		if err != nil {
			t.Fatal(err)
		}
		if c.Bundle, err = canon.Parse(text); err != nil {
			t.Fatal(err)
		}
		cases[name] = c
	}
	party := func(cert map[string]any, i int) map[string]any { return cert["parties"].([]any)[i].(map[string]any) }

	seat("good-seats", "", nil, func(_ map[string]any, c *bundleCase) { c.Parties[0] = brought.label })
	seat("good-seats-unknown", "", nil, func(_ map[string]any, c *bundleCase) {
		c.Unproven = "whose seat key party 0 signed with: the initiator may have named or brought a key of its own"
	})
	seat("good-seats-alone", "", func(_ map[string]any, _ []attestation.Seat, by []attestation.Attestation) {
		by[0] = attestation.Attestation{}
	}, func(_ map[string]any, c *bundleCase) {
		c.Unproven = "who committed as party 0: no seat key signed, and the initiator held every invite token"
	})
	seat("good-seats-without-declaration", "", nil, func(_ map[string]any, c *bundleCase) { c.Unproven = "the params and deadlines were not checked" })
	seat("seat-of-a-stranger", "party 1 signed with "+declared.label, nil, func(_ map[string]any, c *bundleCase) { c.Parties[1] = stranger.label }, "party_keys")
	seat("seat-unsigned", "party 1 has no signature of a seat key that holds", func(_ map[string]any, _ []attestation.Seat, by []attestation.Attestation) {
		by[1].Signature, by[1].Origin = "", ""
	}, nil, "party_keys")
	seat("seat-that-is-not-there", "there is no party 7", nil, func(_ map[string]any, c *bundleCase) { c.Parties[7] = stranger.label }, "party_keys")
	wrong := []string{"party_signatures", "party_keys"}
	for name, edit := range map[string]func(s *attestation.Seat, origin *string){
		"seat-of-another-deal":        func(s *attestation.Seat, _ *string) { s.DealID += "x" },
		"seat-of-another-party":       func(s *attestation.Seat, _ *string) { s.Party = 0 },
		"seat-of-another-commitment":  func(s *attestation.Seat, _ *string) { s.Commitment = "sha256:" + strings.Repeat("0", 64) },
		"seat-of-another-declaration": func(s *attestation.Seat, _ *string) { s.Declaration = strings.Repeat("0", 64) },
		"seat-of-another-deployment":  func(_ *attestation.Seat, origin *string) { *origin = "https://other.example.com" },
	} {
		seat(name, "party 1: ", func(_ map[string]any, seats []attestation.Seat, by []attestation.Attestation) {
			origin := seatOrigin
			edit(&seats[1], &origin)
			by[1].Signature = declared.sign(seats[1].Message(origin))
		}, nil, wrong...)
	}
	seat("seat-high-s", "party 1: ", func(_ map[string]any, _ []attestation.Seat, by []attestation.Attestation) {
		s, _ := new(big.Int).SetString(by[1].Signature[len("es256:")+64:], 16)
		by[1].Signature = by[1].Signature[:len("es256:")+64] + fmt.Sprintf("%064x", s.Sub(elliptic.P256().Params().N, s))
	}, nil, wrong...)
	seat("seat-small-order", "party 0: ", func(_ map[string]any, _ []attestation.Seat, by []attestation.Attestation) {
		// The neutral element as key: a verifier that accepts it accepts S = 0 and R = the
		// neutral element for any message.
		by[0].Key = "ed25519:01" + strings.Repeat("0", 62)
		by[0].Signature = "ed25519:01" + strings.Repeat("0", 126)
	}, nil, "party_signatures")
	seat("seat-of-the-other-scheme", "party 0: ", func(_ map[string]any, _ []attestation.Seat, by []attestation.Attestation) {
		by[0].Signature = by[1].Signature
	}, nil, "party_signatures")
	seat("seat-form", "attested_by is of no known form", nil, func(cert map[string]any, _ *bundleCase) { party(cert, 0)["attested_by"] = "witness" }, "party_signatures")
	seat("seat-uncommitted", "it is a signature without a commitment", nil, func(cert map[string]any, _ *bundleCase) { party(cert, 0)["commitment"] = nil }, "consistency", "party_signatures")
	seat("seat-without-declaration", "names no declaration", nil, func(cert map[string]any, _ *bundleCase) {
		cert["properties"] = []any{"logged"}
	}, "party_signatures", "party_keys", "declaration")
	seat("seat-two-declarations", "two declarations are named", nil, func(cert map[string]any, _ *bundleCase) {
		cert["properties"] = append(cert["properties"].([]any), attestation.Property(strings.Repeat("0", 64)))
	}, "consistency", "party_signatures", "party_keys", "declaration")
	seat("declaration", "another one than the certificate names", func(d map[string]any, _ []attestation.Seat, _ []attestation.Attestation) {
		d["commit_deadline"] = int64(1900000001)
	}, nil, "declaration")
	seat("declaration-of-another-key", "another declared key", func(_ map[string]any, _ []attestation.Seat, by []attestation.Attestation) { by[1].Declared = false }, nil, "declaration")
	closed := func(phase string, at int64) func(map[string]any, *bundleCase) {
		return func(cert map[string]any, _ *bundleCase) {
			timing := maps.Clone(cert["timing"].(map[string]any))
			timing[phase] = at
			cert["timing"] = timing
		}
	}
	seat("declaration-commits-late", "it declares commit_deadline 1900000000, and the commits closed at 1900000000", nil, closed("commits_closed_at", 1900000000), "declaration")
	seat("declaration-reveals-late", "it declares reveal_deadline 1900003600, and the reveals closed at 1900003600", nil, closed("reveals_closed_at", 1900003600), "declaration")
	seat("void-reason", "a reason", nil, func(cert map[string]any, c *bundleCase) {
		cert["properties"] = append(cert["properties"].([]any), "void:missed-reveal")
		c.Says = "one without a VOID"
	}, "consistency")
	round--
	seat("declaration-of-another-round", "it declares beacon round 12040882, and the result was drawn from 12040883", nil, nil, "declaration")
}
