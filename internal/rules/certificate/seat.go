package certificate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/keys"
)

// DeclarationDigest returns the SHA-256 of a declaration (deal.Terms.Canonical), in 64 hex digits.
func DeclarationDigest(declaration []byte) string {
	sum := sha256.Sum256(declaration)
	return hex.EncodeToString(sum[:])
}

const declarationProperty = "declaration-sha256:"

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// DeclarationProperty returns the entry of a certificate's properties that contains a declaration's digest.
func DeclarationProperty(digest string) string { return declarationProperty + digest }

// DeclarationIn returns the digest of the deal's declaration from a certificate's properties. It
// returns "" if they contain none. Two digests are an
// error, and so is a malformed digest.
func DeclarationIn(properties []string) (digest string, err error) {
	for _, p := range properties {
		named, ok := strings.CutPrefix(p, declarationProperty)
		switch {
		case !ok:
		case digest != "":
			return "", errors.New("the properties name two declarations")
		case !digestForm.MatchString(named):
			return "", errors.New("declaration-sha256 is not 64 lower-case hex digits")
		default:
			digest = named
		}
	}
	return digest, nil
}

// domain separates seat signatures from all other signatures by the same key.
const domain = "fairpact seat v1"

// Seat holds what a party's seat key signs, except the deployment's web origin (see Message).
type Seat struct {
	DealID      string
	Party       int
	Commitment  string // `sha256:` and 64 hex digits
	Declaration string // as DeclarationDigest returns it
}

// Message returns the six lines that a seat key signs for the deployment's web origin. No value contains
// a line end, so the lines are unambiguous.
func (s Seat) Message(origin string) []byte {
	return fmt.Appendf(nil, "%s\n%s\n%s\n%d\n%s\n%s\n", domain, origin, s.DealID, s.Party, s.Commitment, s.Declaration)
}

// Attestation is the parsed attested_by of a party. The zero value means `initiator`: only the
// initiator vouches for the party.
type Attestation struct {
	Declared  bool   // true: the initiator declared Key with the deal; false: the commit brought it
	Key       string // es256:HEX or ed25519:HEX; "": the seat has no key
	Signature string // Key's signature of Seat.Message; "": not signed
	Origin    string // web origin of the deployment, which Signature covers; "": not signed
}

const (
	// AttestedByInitiator is attested_by without a seat key.
	AttestedByInitiator = "initiator"

	declared = "declared"
	brought  = "brought"
)

// String returns the text that ParseAttestation reads, as in a certificate's attested_by.
func (a Attestation) String() string {
	switch {
	case a.Key == "":
		return AttestedByInitiator
	case a.Signature == "":
		return AttestedByInitiator + " " + a.Key
	case a.Declared:
		return strings.Join([]string{declared, a.Key, a.Signature, a.Origin}, " ")
	}
	return strings.Join([]string{brought, a.Key, a.Signature, a.Origin}, " ")
}

// originPattern allows printable ASCII after the scheme, except white space and `/`.
const originPattern = `https?://[!-.0-~]{1,255}`

var originForm = regexp.MustCompile(`^` + originPattern + `$`)

// ValidOrigin reports whether the origin of a deployment may be in attested_by.
func ValidOrigin(origin string) bool { return originForm.MatchString(origin) }

var form = regexp.MustCompile(`^(?:initiator(?: ((?:es256:[0-9a-f]{66}|ed25519:[0-9a-f]{64})))?|(declared|brought) ((?:es256:[0-9a-f]{66}|ed25519:[0-9a-f]{64})) ((?:es256|ed25519):[0-9a-f]{128}) (` + originPattern + `))$`)

// ParseAttestation reads attested_by. Any text that String cannot return is an error.
func ParseAttestation(text string) (Attestation, error) {
	parts := form.FindStringSubmatch(text)
	switch {
	case parts == nil:
		return Attestation{}, errors.New("attested_by is of no known form")
	case parts[2] == "":
		return Attestation{Declared: parts[1] != "", Key: parts[1]}, nil
	}
	return Attestation{Declared: parts[2] == declared, Key: parts[3], Signature: parts[4], Origin: parts[5]}, nil
}

// Verify checks a.Signature over the message of s.
func (a Attestation) Verify(s Seat) error {
	return keys.Verify(a.Key, s.Message(a.Origin), a.Signature)
}
