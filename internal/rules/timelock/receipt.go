package timelock

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// The deployment key signs the texts of this file, as it signs certificates, tree heads and
// checkpoints. No text is valid as two of these kinds: a certificate and a tree head begin with
// `{`, and a checkpoint is three lines whose first, the origin, has no space.
const (
	receiptDomain = "fairpact seal receipt v1"
	closingDomain = "fairpact closed commitments v1"
)

// Receipt is what the service signs when it accepts a seal. With the seal and the signature of the
// round, it proves that the party committed and sealed in time, and to what its seal opens.
type Receipt struct {
	Origin     string // web origin of the deployment, as in certificate.Seat.Message
	DealID     string
	Party      int64
	Commitment string // `sha256:` and 64 hex digits
	SealHash   string // Hash of the seal
	Chain      string // hash of the beacon chain
	Round      int64
	Time       int64 // unix seconds, when the service accepted the seal
}

// Message returns the signed text: nine lines, of which no value contains a line end.
func (r Receipt) Message() []byte {
	return fmt.Appendf(nil, "%s\n%s\n%s\n%d\n%s\n%s\n%s\n%d\n%d\n",
		receiptDomain, r.Origin, r.DealID, r.Party, r.Commitment, r.SealHash, r.Chain, r.Round, r.Time)
}

// dealForm allows every id that a deployment makes.
var dealForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// ParseReceipt reads the text of a receipt. It refuses every text that Message does not return. The
// caller verifies the signature with keys.Verify, under a key of the deployment.
func ParseReceipt(text string) (Receipt, error) {
	line := strings.Split(text, "\n")
	if len(line) != 10 || line[0] != receiptDomain || line[9] != "" {
		return Receipt{}, fmt.Errorf("the text is not the receipt of a seal: it does not have nine lines, of which the first is %q", receiptDomain)
	}
	r := Receipt{Origin: line[1], DealID: line[2], Commitment: line[4], SealHash: line[5], Chain: line[6]}
	for at, value := range map[int]*int64{3: &r.Party, 7: &r.Round, 8: &r.Time} {
		number, err := strconv.ParseInt(line[at], 10, 64)
		if err != nil || number < 0 || number > canon.MaxInt {
			return Receipt{}, fmt.Errorf("line %d of the receipt is not an integer from 0 to 2^53-1", at+1)
		}
		*value = number
	}
	if err := r.check(); err != nil {
		return Receipt{}, fmt.Errorf("the receipt is malformed: %w", err)
	}
	if string(r.Message()) != text {
		return Receipt{}, errors.New("the receipt is malformed: an integer is not in plain decimal digits")
	}
	return r, nil
}

func (r Receipt) check() error {
	_, errCommitment := canon.ParseCommitment(r.Commitment)
	_, errSeal := canon.ParseHash(r.SealHash)
	_, errChain := canon.ParseHash(r.Chain)
	if !certificate.ValidOrigin(r.Origin) {
		return errors.New("its origin is not a web origin")
	}
	if !dealForm.MatchString(r.DealID) {
		return errors.New("its deal id is malformed")
	}
	if r.Round < 1 {
		return errors.New("its round is 0")
	}
	return errors.Join(errCommitment, errSeal, errChain)
}

// Matches returns an error if the receipt is not for this seal, or was issued at or after the time
// of the round.
func (r Receipt) Matches(c drand.Chain, seal string) error {
	switch {
	case Hash(seal) != r.SealHash:
		return fmt.Errorf("the receipt is for the seal with hash %s, and this seal has hash %s", r.SealHash, Hash(seal))
	case c.Hash != r.Chain:
		return fmt.Errorf("the receipt is for beacon chain %s, not for %s", r.Chain, c.Hash)
	case r.Time >= c.RoundTime(r.Round):
		return fmt.Errorf("the receipt of time %d was issued after round %d, which is due at %d", r.Time, r.Round, c.RoundTime(r.Round))
	}
	return nil
}

// Closing states all commitments and seals of a deal, when the last commitment has come in. Its Entry
// becomes a leaf of the log before the round. So a service that can read the seals at the round cannot
// commit for an accomplice afterwards: the witnesses' times would be later than the round.
type Closing struct {
	DealID      string
	Declaration string // certificate.DeclarationDigest of the deal's declaration
	Chain       string // hash of the beacon chain
	Round       int64
	Commitments []ClosedCommitment // in party order
}

// ClosedCommitment is a party's commitment with the hash of its seal.
type ClosedCommitment struct {
	Commitment string // `sha256:` and 64 hex digits
	SealHash   string // Hash of the seal; "" if the party did not seal
}

// Text returns the stated text: five lines and one line for each party.
func (c Closing) Text() []byte {
	b := fmt.Appendf(nil, "%s\n%s\n%s\n%s %d\n%d\n", closingDomain, c.DealID, c.Declaration, c.Chain, c.Round, len(c.Commitments))
	for _, one := range c.Commitments {
		b = append(append(b, one.Commitment...), ' ')
		if one.SealHash == "" {
			b = append(b, '-')
		}
		b = append(append(b, one.SealHash...), '\n')
	}
	return b
}

// MarkSize is the number of bytes of a Mark.
const MarkSize = 8

// Entry returns the log entry, which the deployment key signs: the Mark of the deal, and the first 24 bytes
// of the SHA-256 of Text.
func (c Closing) Entry() [32]byte {
	entry, text, mark := [32]byte{}, sha256.Sum256(c.Text()), Mark(c.DealID)
	copy(entry[:], mark[:])
	copy(entry[MarkSize:], text[:])
	return entry
}

// Mark begins every closing entry of a deal. Whoever knows the deal's id finds in a copy of the log whether
// a service prepared a second closing, to choose between them after the round.
func Mark(dealID string) [MarkSize]byte {
	tag := ClosingTag(dealID)
	return [MarkSize]byte(tag[:MarkSize])
}

// ClosingTag returns the tag of the entry. The log accepts at most one entry for each tag, so an honest
// log has one closing of a deal. The tag is never that of a certificate.
func ClosingTag(dealID string) [32]byte {
	return sha256.Sum256([]byte("fairpact closing\x00" + dealID))
}
