package timelock

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"math/big"
	"slices"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
	"github.com/consensys/gnark-crypto/ecc/bls12-381/fr"

	"github.com/fairpact/fairpact/internal/rules/drand"
)

// keySize is the size of the file key and of sigma. kyber truncates H2 and H4 to it.
const keySize = 16

// wrapped is an encrypted file key: the body of the stanza (BF 4.2, drand/kyber encrypt/ibe).
type wrapped struct {
	u    bls.G2Affine // r·G2
	v, w [keySize]byte
}

// wrappedSize is the size of a stanza's body: U, V and W.
const wrappedSize = bls.SizeOfG2AffineCompressed + 2*keySize

// wrap encrypts a file key for a round. sigma MUST be random and used once.
func wrap(c drand.Chain, round int64, fileKey, sigma [keySize]byte) wrapped {
	r := scalar(sigma, fileKey)
	var to wrapped
	to.u.ScalarMultiplicationBase(&r)
	// e(r·H1, P) equals e(H1, P)^r, and multiplication in G1 costs less than a power in GT.
	blinded := drand.Hashed(round)
	blinded.ScalarMultiplication(&blinded, &r)
	to.v = xor(sigma, mask(blinded, c.Key()))
	to.w = xor(fileKey, digest16("IBE-H4", sigma[:]))
	return to
}

// errWrapped says why unwrap refuses: the encryption was made for another key or round, or it was
// changed.
var errWrapped = errors.New("it was not sealed for this round under the public key of the chain, or it was changed")

// unwrap decrypts a file key with the signature of the round. It repeats the encryption, so that
// exactly one U, V, W encrypts a pair of file key and sigma for a round.
func (k Key) unwrap(from wrapped) (fileKey [keySize]byte, err error) {
	sigma := xor(from.v, mask(k.point, from.u))
	fileKey = xor(from.w, digest16("IBE-H4", sigma[:]))
	r := scalar(sigma, fileKey)
	var u bls.G2Affine
	u.ScalarMultiplicationBase(&r)
	if !u.Equal(&from.u) {
		return [keySize]byte{}, errWrapped
	}
	return fileKey, nil
}

// mask is H2 of BF 4.2: the first bytes of SHA-256("IBE-H2" ‖ e(p, q)). GT.Bytes has the byte order
// of drand: the twelve coefficients from the highest to the lowest, big-endian.
func mask(p bls.G1Affine, q bls.G2Affine) [keySize]byte {
	gt, err := bls.Pair([]bls.G1Affine{p}, []bls.G2Affine{q})
	if err != nil {
		panic(err) // only if the slices differ in length
	}
	raw := gt.Bytes()
	return digest16("IBE-H2", raw[:])
}

// scalar is H3 of BF 4.2, as drand/kyber computes it: the first of the SHA-256 values of
// u16le(1) ‖ h, u16le(2) ‖ h, … that is below the group order after a shift of its first byte by
// one bit, where h is SHA-256("IBE-H3" ‖ sigma ‖ fileKey).
func scalar(sigma, fileKey [keySize]byte) (r big.Int) {
	h := sha256.Sum256(slices.Concat([]byte("IBE-H3"), sigma[:], fileKey[:]))
	for i := uint16(1); ; i++ {
		x := sha256.Sum256(append(binary.LittleEndian.AppendUint16(nil, i), h[:]...))
		x[0] >>= 1
		if r.SetBytes(x[:]); r.Cmp(order) < 0 {
			return r
		}
	}
}

var order = fr.Modulus()

func digest16(tag string, data []byte) [keySize]byte {
	sum := sha256.Sum256(slices.Concat([]byte(tag), data))
	return [keySize]byte(sum[:keySize])
}

func xor(a, b [keySize]byte) (c [keySize]byte) {
	subtle.XORBytes(c[:], a[:], b[:])
	return c
}

func (w wrapped) bytes() []byte {
	u := w.u.Bytes()
	return slices.Concat(u[:], w.v[:], w.w[:])
}

// parseWrapped reads the body of a stanza, of wrappedSize bytes.
func parseWrapped(body []byte) (w wrapped, err error) {
	const end = bls.SizeOfG2AffineCompressed
	if w.u, err = parseG2(body[:end]); err != nil {
		return w, err
	}
	w.v, w.w = [keySize]byte(body[end:end+keySize]), [keySize]byte(body[end+keySize:])
	return w, nil
}
