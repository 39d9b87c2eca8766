package certificate_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
)

var update = flag.Bool("update", false, "write the shared vectors again")

// This package, the independent verifier (e2e/verifier) and the website share these
// vectors.
const vectorsFile = "../../../e2e/testdata/attestations.json"

type declarationVector struct {
	Declaration json.RawMessage `json:"declaration"`
	Canonical   string          `json:"canonical"`
	SHA256      string          `json:"sha256"`
}

type seatVector struct {
	Origin      string `json:"origin"`
	DealID      string `json:"deal_id"`
	Party       int    `json:"party"`
	Commitment  string `json:"commitment"`
	Declaration string `json:"declaration_sha256"`
	ToSign      string `json:"to_sign"`
	AttestedBy  string `json:"attested_by"`
}

type vectors struct {
	Declarations []declarationVector `json:"declarations"`
	Seats        []seatVector        `json:"seats"`
}

const (
	origin     = "https://fairpact.example.com"
	commitment = "sha256:f62a7f8729d652d68f8ba0f392d16e5e94f4fb9bcd39c2cb704cbdf0e9cb4b7a"
)

func made(t *testing.T) (v vectors) {
	private := ed25519.NewKeyFromSeed([]byte(strings.Repeat("seat", 8)))
	key := "ed25519:" + hex.EncodeToString(private.Public().(ed25519.PublicKey))
	chain := "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
	declarations := []deal.Terms{
		{Algorithm: "split.v1", Params: []byte(`{"items":["car","boat"]}`), CommitDeadline: 1900003600, Mode: "sealed",
			Labels: []string{"ann", "bob"}, SeatKeys: []*string{nil, &key}, Retention: "standard", RevealDeadline: 1900007200},
		{Algorithm: "random.v1", Params: []byte(`{"beacon_round":12040883,"zz":null}`), ChainHash: &chain, CommitDeadline: 1, Mode: "open",
			Labels: []string{"Zoë <a&b>", "\uff21", "😀"}, Retention: "purge", RevealDeadline: canon.MaxInt},
		{Algorithm: "split.v1", Params: []byte(`{"items":["car"]}`), CommitDeadline: 1900003600, Mode: "open", Labels: []string{"ann", "bob"}, Retention: "standard",
			RevealDeadline: 1900007200, Title: "Whose car? <b>😀</b>", Message: "Hello \"Bob\",\n\nI\u202fsay é."},
	}
	for _, d := range declarations {
		text, err := d.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		v.Declarations = append(v.Declarations, declarationVector{text, string(text), certificate.DeclarationDigest(text)})
	}
	for i, declared := range []bool{true, false} {
		seat := certificate.Seat{DealID: "d_EXAMPLE", Party: 1 - i, Commitment: commitment, Declaration: v.Declarations[0].SHA256}
		by := certificate.Attestation{Declared: declared, Key: key, Origin: origin}
		by.Signature = "ed25519:" + hex.EncodeToString(ed25519.Sign(private, seat.Message(origin)))
		v.Seats = append(v.Seats, seatVector{origin, seat.DealID, seat.Party, commitment, seat.Declaration, string(seat.Message(origin)), by.String()})
	}
	return v
}

func TestVectors(t *testing.T) {
	text, err := json.MarshalIndent(made(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(vectorsFile)
	if err != nil || string(kept) != string(text)+"\n" {
		t.Fatalf("%s differs from the vectors that this package makes (%v): run the test with -update if they should change; want\n%s", vectorsFile, err, text)
	}
	var v vectors
	if err := json.Unmarshal(kept, &v); err != nil {
		t.Fatal(err)
	}
	for _, d := range v.Declarations {
		tree, err := canon.Parse(d.Declaration)
		if err != nil || string(canon.Encode(tree)) != d.Canonical {
			t.Errorf("RFC 8785 form of %s: got %s, %v; want %s", d.Declaration, canon.Encode(tree), err, d.Canonical)
		}
		if sum := sha256.Sum256([]byte(d.Canonical)); hex.EncodeToString(sum[:]) != d.SHA256 {
			t.Errorf("SHA-256 of %s: got %x, want %s", d.Canonical, sum, d.SHA256)
		}
	}
	for _, one := range v.Seats {
		by, err := certificate.ParseAttestation(one.AttestedBy)
		seat := certificate.Seat{DealID: one.DealID, Party: one.Party, Commitment: one.Commitment, Declaration: one.Declaration}
		if err != nil || by.String() != one.AttestedBy || string(seat.Message(by.Origin)) != one.ToSign {
			t.Errorf("Parse(%q) = %+v, %v; want it to sign %q", one.AttestedBy, by, err, one.ToSign)
		}
		if err := by.Verify(seat); err != nil {
			t.Errorf("Verify of %s: %v, want no error", one.AttestedBy, err)
		}
		for what, change := range map[string]func(*certificate.Seat, *certificate.Attestation){
			"deal":        func(s *certificate.Seat, _ *certificate.Attestation) { s.DealID += "\n" },
			"party":       func(s *certificate.Seat, _ *certificate.Attestation) { s.Party++ },
			"commitment":  func(s *certificate.Seat, _ *certificate.Attestation) { s.Commitment = s.Commitment[:70] + "0" },
			"declaration": func(s *certificate.Seat, _ *certificate.Attestation) { s.Declaration = v.Declarations[1].SHA256 },
			"origin":      func(_ *certificate.Seat, a *certificate.Attestation) { a.Origin += "0" },
		} {
			seat, by := seat, by
			change(&seat, &by)
			if by.Verify(seat) == nil {
				t.Errorf("the signature of %s verifies for another %s, want an error", one.AttestedBy, what)
			}
		}
	}
}

func TestParseAcceptsOnlyWhatStringWrites(t *testing.T) {
	key, signature := "ed25519:"+strings.Repeat("0a", 32), "ed25519:"+strings.Repeat("0b", 64)
	for text, want := range map[string]certificate.Attestation{
		"initiator":        {},
		"initiator " + key: {Declared: true, Key: key},
		"declared " + key + " " + signature + " https://a.example:8443":             {Declared: true, Key: key, Signature: signature, Origin: "https://a.example:8443"},
		"brought es256:" + strings.Repeat("02", 33) + " " + signature + " http://a": {Key: "es256:" + strings.Repeat("02", 33), Signature: signature, Origin: "http://a"},
	} {
		if got, err := certificate.ParseAttestation(text); err != nil || got != want || got.String() != text {
			t.Errorf("Parse(%q) = %+v, %v; want %+v, written back as the same text", text, got, err, want)
		}
	}
	good := "declared " + key + " " + signature + " https://a"
	for _, text := range []string{"", "initiator ", "initiator\n", "Initiator", "initiator  " + key, "initiator " + strings.ToUpper(key), "initiator es256:02", "witness", good + "/", good + " ", good + "\n", good + "é", "declared " + key, "brought " + key + " " + signature, strings.Replace(good, "https", "ftp", 1)} {
		if got, err := certificate.ParseAttestation(text); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", text, got)
		}
	}
}

func TestDigestOfProperties(t *testing.T) {
	digest := strings.Repeat("0d", 32)
	for _, row := range []struct {
		properties []string
		want       string
		fails      bool
	}{
		{nil, "", false},
		{[]string{"logged"}, "", false},
		{[]string{"logged", certificate.DeclarationProperty(digest)}, digest, false},
		{[]string{certificate.DeclarationProperty(digest), certificate.DeclarationProperty(digest)}, "", true},
		{[]string{certificate.DeclarationProperty(digest[1:])}, "", true},
		{[]string{certificate.DeclarationProperty(strings.ToUpper(digest))}, "", true},
	} {
		got, err := certificate.DeclarationIn(row.properties)
		if (err != nil) != row.fails || err == nil && got != row.want {
			t.Errorf("DigestIn(%v) = %q, %v; want %q, an error: %v", row.properties, got, err, row.want, row.fails)
		}
	}
}
