package keys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"
)

// fixture holds three keys, and the signatures of `message` by each of them.
type fixture struct {
	keys              List
	message           []byte
	es, other, edward string
}

func newES256(t *testing.T) (label string, sign func(message []byte) string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if label, err = Label(private.Public()); err != nil {
		t.Fatal(err)
	}
	return label, func(message []byte) string {
		digest := sha256.Sum256(message)
		der, err := ecdsa.SignASN1(rand.Reader, private, digest[:])
		if err != nil {
			t.Fatal(err)
		}
		signature, err := FromDER(der)
		if err != nil {
			t.Fatal(err)
		}
		return signature
	}
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{message: []byte(`{"root_hash":"…","tree_size":7}`)}
	a, signA := newES256(t)
	b, signB := newES256(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f.keys = Of(a, b, "ed25519:"+hex.EncodeToString(public))
	f.es, f.other = signA(f.message), signB(f.message)
	f.edward = "ed25519:" + hex.EncodeToString(ed25519.Sign(private, f.message))
	return f
}

func verify(l List, message []byte, signature string) error {
	_, err := l.SignerOf(message, signature)
	return err
}

func TestVerifyUnderEveryKey(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	digest := sha256.Sum256(f.message)
	for name, signature := range map[string]string{"es256": f.es, "another": f.other, "ed25519": f.edward} {
		if err := verify(f.keys, f.message, signature); err != nil {
			t.Errorf("the signature by the key %s: %v, want it to verify", name, err)
		}
		changed := signature[:len(signature)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(signature, "0")]
		if verify(f.keys, f.message, changed) == nil {
			t.Errorf("a changed signature by the key %s verifies, want it refused", name)
		}
		if err := verify(f.keys, append([]byte("x"), f.message...), signature); !errors.Is(err, ErrNotVerified) {
			t.Errorf("%s, another message: %v, want ErrNotVerified", name, err)
		}
		if err := verify(other.keys, f.message, signature); !errors.Is(err, ErrNotVerified) || errors.Is(err, ErrMalformed) {
			t.Errorf("%s, other keys: %v, want only ErrNotVerified", name, err)
		}
		_, err := f.keys.SignedBy(digest, signature)
		if es := name != "ed25519"; es && err != nil || !es && !errors.Is(err, ErrNotVerified) {
			t.Errorf("SignedBy for the key %s: %v, want success for es256 and ErrNotVerified for ed25519", name, err)
		}
	}
}

func TestMalformedSignatures(t *testing.T) {
	f := newFixture(t)
	body := strings.TrimPrefix(f.es, "es256:")
	raw, err := hex.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	r, s := rawES256(raw)
	zero, one := new(big.Int), big.NewInt(1)
	for name, signature := range map[string]string{
		"empty":              "",
		"no scheme":          body,
		"unknown scheme":     "es384:" + body,
		"upper-case scheme":  "ES256:" + body,
		"space":              "es256: " + body[1:],
		"upper-case hex":     "es256:" + body[:127] + "A",
		"not hex":            "es256:" + body[:127] + "g",
		"one digit short":    f.es[:len(f.es)-1],
		"one byte long":      f.es + "00",
		"newline":            f.es + "\n",
		"high s":             formatES256(r, new(big.Int).Sub(order, s)),
		"s just over half":   formatES256(r, new(big.Int).Add(halfOrder, one)),
		"zero r":             formatES256(zero, s),
		"zero s":             formatES256(r, zero),
		"r is n":             formatES256(order, s),
		"ed25519, short":     f.edward[:len(f.edward)-2],
		"ed25519 upper case": f.edward[:len(f.edward)-1] + "A",
	} {
		_, byDigest := f.keys.SignedBy(sha256.Sum256(f.message), signature)
		for _, err := range []error{verify(f.keys, f.message, signature), byDigest} {
			if !errors.Is(err, ErrMalformed) || errors.Is(err, ErrNotVerified) {
				t.Errorf("%s: %v, want only ErrMalformed", name, err)
			}
		}
	}
	if err := verify(f.keys, f.message, formatES256(r, halfOrder)); !errors.Is(err, ErrNotVerified) {
		t.Errorf("s of exactly half the order is low: %v, want ErrNotVerified", err)
	}
}

func TestBadLabels(t *testing.T) {
	good, _ := newES256(t)
	digits := strings.TrimPrefix(good, "es256:")
	for name, label := range map[string]string{
		"empty":            "",
		"no scheme":        digits,
		"unknown scheme":   "es384:" + digits,
		"upper case":       "es256:" + digits[:65] + "A",
		"short":            good[:len(good)-2],
		"not hex":          good[:len(good)-1] + "g",
		"uncompressed":     "es256:04" + digits[2:] + digits[2:],
		"prefix 04":        "es256:04" + digits[2:],
		"infinity":         "es256:" + strings.Repeat("0", 66),
		"x is not below p": "es256:02" + strings.Repeat("f", 64),
		"x is on no point": "es256:02" + strings.Repeat("0", 63) + "1",
		"ed25519 zeros":    "ed25519:" + strings.Repeat("0", 64),
		"ed25519 no point": "ed25519:02" + strings.Repeat("0", 62),
		"ed25519 short":    "ed25519:" + strings.Repeat("a", 62),
	} {
		_, err := OneSigner(good, "dev://key", []string{label}, Margin)
		if err == nil || !strings.HasPrefix(err.Error(), "keys[1]") || Check(label) == nil || Verify(label, nil, "") == nil {
			t.Errorf("%s: accepted as a label (%v), want errors that name the place", name, err)
		}
	}
}

// RFC 8032 5.1.3 refuses a y coordinate of p = 2^255−19 or more. Otherwise a point with a
// y below 19 would have two labels, one with y and one with y+p.
func TestCheckEd25519(t *testing.T) {
	for range 100 {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkEd25519(public); err != nil {
			t.Fatalf("the generated key %x: %v, want it accepted", public, err)
		}
	}
	points := 0
	for k := range byte(19) {
		reduced, unreduced := make([]byte, 32), bytes.Repeat([]byte{0xff}, 32)
		reduced[0], unreduced[0], unreduced[31] = k, 0xed+k, 0x7f // little-endian: reduced has y = k, unreduced has y = p+k
		if checkEd25519(reduced) == nil {
			points++
		}
		if err := checkEd25519(unreduced); err == nil {
			t.Errorf("the key with y = p+%d is accepted, want it refused", k)
		}
	}
	if points == 0 {
		t.Error("no y below 19 has a point: the test shows nothing")
	}
	// The y coordinates of the points whose order divides 8.
	for _, y := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	} {
		for _, sign := range []byte{0, 0x80} {
			key, err := hex.DecodeString(y)
			if err != nil {
				t.Fatal(err)
			}
			key[31] |= sign
			if checkEd25519(key) == nil {
				t.Errorf("the key %x of small order is accepted, want it refused", key)
			}
		}
	}
}

func TestDERVerifiesElsewhere(t *testing.T) {
	f := newFixture(t)
	der, err := DER(f.es)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(f.message)
	public, err := f.keys[0].ES256()
	if err != nil || !ecdsa.VerifyASN1(public, digest[:], der) {
		t.Errorf("not verified (%v)", err)
	}
	if _, err := DER(f.edward); err == nil {
		t.Error("an ed25519 signature has a DER form")
	}
	if _, err := f.keys[2].ES256(); err == nil {
		t.Error("ES256 accepts an ed25519 label, want an error")
	}
}
