package timelock_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"
	"github.com/consensys/gnark-crypto/ecc/bls12-381/fr"
	"pgregory.net/rapid"

	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// tlock is drand's stanza for filippo.io/age: a recipient, and with a signature an identity. It
// shares no code with the package, so a mistake in the encryption of the file key shows here.
type tlock struct {
	chain     drand.Chain
	round     int64
	signature []byte
	sigma     []byte // 16 bytes
}

func (l tlock) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	var key, u bls.G2Affine
	if _, err := key.SetBytes(l.chain.PublicKey); err != nil {
		return nil, err
	}
	r := h3(l.sigma, fileKey)
	u.ScalarMultiplicationBase(r)
	gt, err := bls.Pair([]bls.G1Affine{drand.Hashed(l.round)}, []bls.G2Affine{key})
	if err != nil {
		return nil, err
	}
	gt.Exp(gt, r) // the package multiplies in G1 instead
	point, raw := u.Bytes(), gt.Bytes()
	body := slices.Concat(point[:], xored(l.sigma, h("IBE-H2", raw[:])), xored(fileKey, h("IBE-H4", l.sigma)))
	return []*age.Stanza{{Type: "tlock", Args: []string{fmt.Sprint(l.round), l.chain.Hash}, Body: body}}, nil
}

func (l tlock) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if len(stanzas) != 1 || stanzas[0].Type != "tlock" || !slices.Equal(stanzas[0].Args, []string{fmt.Sprint(l.round), l.chain.Hash}) || len(stanzas[0].Body) != 128 {
		return nil, age.ErrIncorrectIdentity
	}
	var signature bls.G1Affine
	var u, again bls.G2Affine
	_, err1 := signature.SetBytes(l.signature)
	_, err2 := u.SetBytes(stanzas[0].Body)
	gt, err3 := bls.Pair([]bls.G1Affine{signature}, []bls.G2Affine{u})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	raw := gt.Bytes()
	sigma := xored(stanzas[0].Body[96:112], h("IBE-H2", raw[:]))
	fileKey := xored(stanzas[0].Body[112:], h("IBE-H4", sigma))
	if again.ScalarMultiplicationBase(h3(sigma, fileKey)); !again.Equal(&u) {
		return nil, age.ErrIncorrectIdentity
	}
	return fileKey, nil
}

func h(tag string, data []byte) []byte {
	sum := sha256.Sum256(append([]byte(tag), data...))
	return sum[:16]
}

func h3(sigma, fileKey []byte) *big.Int {
	first := sha256.Sum256(slices.Concat([]byte("IBE-H3"), sigma, fileKey))
	for i := uint16(1); ; i++ {
		x := sha256.Sum256(slices.Concat(binary.LittleEndian.AppendUint16(nil, i), first[:]))
		x[0] /= 2
		if r := new(big.Int).SetBytes(x[:]); r.Cmp(fr.Modulus()) < 0 {
			return r
		}
	}
}

func xored(a, b []byte) []byte {
	c := slices.Clone(a)
	for i := range c {
		c[i] ^= b[i]
	}
	return c
}

func TestAgeOpensOurSealsAndWeTheirs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		round := draw(t, rapid.Int64Range(1, 1<<40), "round")
		size := draw(t, rapid.OneOf(rapid.IntRange(0, 200), rapid.SampledFrom([]int{65535, 65536, 65537, 131072, 525000})), "size")
		text := strings.Repeat(string(rune('a'+size%26)), size)
		random := drawRandom(t)
		l := tlock{dev.Chain(), round, dev.Sign(round), random[:16]}

		ours := timelock.Seal(devChain, round, []byte(text), random)
		r, err := age.Decrypt(armor.NewReader(strings.NewReader(ours)), l)
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := io.ReadAll(r); err != nil || string(opened) != text {
			t.Errorf("age opens our seal to %d bytes, %v; want %d", len(opened), err, size)
		}

		var theirs bytes.Buffer
		armored := armor.NewWriter(&theirs)
		w, err := age.Encrypt(armored, l)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(w, text)
		if err := errors.Join(err, w.Close(), armored.Close()); err != nil {
			t.Fatal(err)
		}
		sealed, err := timelock.Check(devChain, theirs.String(), round, theirs.Len())
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := sealed.Open(devKey(t, round)); err != nil || string(opened) != text {
			t.Errorf("we open the seal of age to %d bytes, %v; want %d", len(opened), err, size)
		}
	})
}
