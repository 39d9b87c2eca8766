package timelock

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

// Opening is what a party seals: its reveal, and the seat for which it is. Because it names deal and
// party, a seal that another party copies opens for nobody else.
type Opening struct {
	DealID string
	Party  int64
	Input  map[string]any // a tree of package canon
	Salt   string
}

// Plaintext returns the RFC 8785 form of {deal_id, input, party, salt}, which a party seals.
func (o Opening) Plaintext() []byte {
	return canon.Encode(map[string]any{"deal_id": o.DealID, "input": o.Input, "party": o.Party, "salt": o.Salt})
}

// ErrOpening is returned for a plaintext that is not the opening of a party's commitment.
var ErrOpening = errors.New("the seal does not hold the opening of the commitment")

// ParseOpening reads a plaintext. It refuses every text that Plaintext does not return, so an
// opening has exactly one plaintext. An error does not quote the text. The error wraps ErrOpening.
func ParseOpening(plaintext []byte) (Opening, error) {
	tree, err := canon.ParseWithin(plaintext, 1) // the input alone may have canon.MaxDepth levels
	if err != nil {
		return Opening{}, fmt.Errorf("%w: its text is %w", ErrOpening, err)
	}
	object, ok := tree.(map[string]any)
	if !ok || len(object) != 4 {
		return Opening{}, fmt.Errorf("%w: its text is not an object of deal_id, input, party and salt", ErrOpening)
	}
	m := canon.MembersOf(object, "")
	o := Opening{
		DealID: m.Text("deal_id", "the id of the deal"),
		Party:  m.Integer("party", "the index of the party"),
		Input:  m.Object("input", "the input"),
		Salt:   m.Text("salt", "the salt"),
	}
	if err := m.Err(); err != nil {
		return Opening{}, fmt.Errorf("%w: %w", ErrOpening, err)
	}
	if len(o.Salt) > canon.MaxSalt {
		return Opening{}, fmt.Errorf("%w: its salt has more than %d bytes", ErrOpening, canon.MaxSalt)
	}
	if !bytes.Equal(o.Plaintext(), plaintext) {
		return Opening{}, fmt.Errorf("%w: its text is not in the canonical form (RFC 8785)", ErrOpening)
	}
	return o, nil
}

// Reveal returns the canonical input and the salt bytes of the opening, if it opens the commitment of
// the party in the deal. The error wraps ErrOpening.
func (o Opening) Reveal(dealID string, party int64, commitment string) (input, salt []byte, err error) {
	if o.DealID != dealID || o.Party != party {
		return nil, nil, fmt.Errorf("%w: it is for another deal or party", ErrOpening)
	}
	input = canon.Encode(o.Input)
	salt, ok := canon.Open(commitment, input, o.Salt)
	if !ok {
		return nil, nil, fmt.Errorf("%w: its input and salt have another hash", ErrOpening)
	}
	return input, salt, nil
}

// Reveal opens a party's seal for the round of the key. It returns the opening with its canonical input and
// its salt bytes, if it opens the commitment of the party in the deal. The error wraps ErrSeal, ErrNotOpened
// or ErrOpening.
func (k Key) Reveal(seal, dealID string, party int64, commitment string) (o Opening, input, salt []byte, err error) {
	sealed, err := Check(drand.Chain{Hash: k.chain}, seal, k.round, len(seal))
	if err != nil {
		return o, nil, nil, err
	}
	plaintext, err := sealed.Open(k)
	if err != nil {
		return o, nil, nil, err
	}
	if o, err = ParseOpening(plaintext); err == nil {
		input, salt, err = o.Reveal(dealID, party, commitment)
	}
	return o, input, salt, err
}
