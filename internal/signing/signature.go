package signing

import (
	"bytes"
	"crypto/elliptic"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
)

// The schemes of labels and signatures (SPEC 5.6).
const (
	schemeES256   = "es256"
	schemeEd25519 = "ed25519"
)

var (
	order     = elliptic.P256().Params().N
	halfOrder = new(big.Int).Rsh(order, 1)
)

// inRange reports whether v is in [1, n−1].
func inRange(v *big.Int) bool { return v.Sign() > 0 && v.Cmp(order) < 0 }

// parseDER reads an ECDSA signature in DER (RFC 3279 2.2.3) and returns r and the
// low one of s and n−s: both verify, and one of them must be the form that
// counts, else anyone could make a second signature from a first.
func parseDER(der []byte) (r, s *big.Int, err error) {
	var sig struct{ R, S *big.Int }
	if rest, err := asn1.Unmarshal(der, &sig); err != nil || len(rest) != 0 {
		return nil, nil, errors.New("not one DER sequence of two integers")
	}
	// encoding/asn1 overlooks further elements inside the sequence; encoding
	// again shows them, and any other form that is not the shortest.
	if again, err := asn1.Marshal(sig); err != nil || !bytes.Equal(again, der) {
		return nil, nil, errors.New("not strict DER")
	}
	if !inRange(sig.R) || !inRange(sig.S) {
		return nil, nil, errors.New("r or s is outside [1, n-1]")
	}
	if sig.S.Cmp(halfOrder) > 0 {
		sig.S.Sub(order, sig.S)
	}
	return sig.R, sig.S, nil
}

// formatES256 is the text of a signature.
// SPEC 5.6: a raw r||s signature, low-S form, 128 hex characters.
func formatES256(r, s *big.Int) string {
	var raw [64]byte
	r.FillBytes(raw[:32])
	s.FillBytes(raw[32:])
	return schemeES256 + ":" + hex.EncodeToString(raw[:])
}

// parseSignature reads `<scheme>:<128 lower-case hex>`. An es256 one must have r
// and s in [1, n−1] and s low. The error is ErrMalformed with the reason.
func parseSignature(text string) (scheme string, raw []byte, err error) {
	scheme, digits, ok := strings.Cut(text, ":")
	if !ok || (scheme != schemeES256 && scheme != schemeEd25519) {
		return "", nil, fmt.Errorf("%w: it is to be es256:HEX or ed25519:HEX", ErrMalformed)
	}
	raw, err = canon.ParseHex(digits, 64)
	if err != nil {
		return "", nil, fmt.Errorf("%w: after the colon it has %w", ErrMalformed, err)
	}
	if scheme == schemeES256 {
		r, s := rawES256(raw)
		if !inRange(r) || !inRange(s) {
			return "", nil, fmt.Errorf("%w: r or s is outside [1, n-1]", ErrMalformed)
		}
		if s.Cmp(halfOrder) > 0 {
			return "", nil, fmt.Errorf("%w: s is in the upper half of the order; the low-S form is n-s", ErrMalformed)
		}
	}
	return scheme, raw, nil
}

func rawES256(raw []byte) (r, s *big.Int) {
	return new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])
}
