package signing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
)

// fixture is a key set with a current key, a retired es256 one and a retired
// ed25519 one, and a signature by each.
type fixture struct {
	keys                    *KeySet
	message                 []byte
	current, retired, early string // signatures of message
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	now := newDev(t)
	before := newDev(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeySet(now.PublicKey(), []string{before.PublicKey(), "ed25519:" + hex.EncodeToString(public)})
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{keys: keys, message: []byte(`{"root_hash":"…","tree_size":7}`)}
	sign := func(s *Signer) string {
		signature, err := s.Sign(t.Context(), sha256.Sum256(f.message))
		if err != nil {
			t.Fatal(err)
		}
		return signature
	}
	f.current, f.retired = sign(now), sign(before)
	f.early = "ed25519:" + hex.EncodeToString(ed25519.Sign(private, f.message))
	return f
}

func TestVerifyUnderEveryKey(t *testing.T) {
	f := newFixture(t)
	digest := sha256.Sum256(f.message)
	for name, signature := range map[string]string{"current": f.current, "retired": f.retired, "early": f.early} {
		if err := f.keys.Verify(f.message, signature); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.keys.Verify(append([]byte("x"), f.message...), signature); !errors.Is(err, ErrNotVerified) {
			t.Errorf("%s, another message: %v, want ErrNotVerified", name, err)
		}
		_, err := f.keys.SignedBy(digest, signature)
		if es := name != "early"; es && err != nil || !es && !errors.Is(err, ErrNotVerified) {
			t.Errorf("%s, by digest: %v", name, err)
		}
	}
}

func TestVerifyUnderForeignKeys(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	for _, signature := range []string{f.current, f.retired, f.early} {
		if err := other.keys.Verify(f.message, signature); !errors.Is(err, ErrNotVerified) || errors.Is(err, ErrMalformed) {
			t.Errorf("%.12s: %v, want ErrNotVerified alone", signature, err)
		}
	}
	// An ed25519 key was never listed.
	alone, err := NewKeySet(f.keys.Current(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, signature := range []string{f.retired, f.early} {
		if err := alone.Verify(f.message, signature); !errors.Is(err, ErrNotVerified) {
			t.Errorf("%.12s: %v, want ErrNotVerified", signature, err)
		}
	}
}

func TestEveryChangedDigitIsRefused(t *testing.T) {
	f := newFixture(t)
	for _, signature := range []string{f.current, f.retired, f.early} {
		for i := strings.Index(signature, ":") + 1; i < len(signature); i++ {
			for _, digit := range "0123456789abcdef" {
				if byte(digit) == signature[i] {
					continue
				}
				forged := signature[:i] + string(digit) + signature[i+1:]
				if err := f.keys.Verify(f.message, forged); !errors.Is(err, ErrNotVerified) && !errors.Is(err, ErrMalformed) {
					t.Fatalf("digit %d to %c: %v", i, digit, err)
				}
			}
		}
	}
}

func TestMalformedSignatures(t *testing.T) {
	f := newFixture(t)
	body := strings.TrimPrefix(f.current, "es256:")
	raw, err := hex.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	r, s := rawES256(raw)
	pair := func(r, s *big.Int) string { return formatES256(r, s) }
	zero, one := new(big.Int), big.NewInt(1)
	for name, signature := range map[string]string{
		"empty":              "",
		"no scheme":          body,
		"unknown scheme":     "es384:" + body,
		"upper-case scheme":  "ES256:" + body,
		"space":              "es256: " + body[1:],
		"upper-case hex":     "es256:" + strings.ToUpper(body[:127]) + "A",
		"not hex":            "es256:" + body[:127] + "g",
		"one digit short":    f.current[:len(f.current)-1],
		"one byte short":     f.current[:len(f.current)-2],
		"one byte long":      f.current + "00",
		"newline":            f.current + "\n",
		"two signatures":     f.current + "," + f.current,
		"DER in hex":         "es256:3044" + body,
		"high s":             pair(r, new(big.Int).Sub(order, s)),
		"s just over half":   pair(r, new(big.Int).Add(halfOrder, one)),
		"zero r":             pair(zero, s),
		"zero s":             pair(r, zero),
		"r is n":             pair(order, s),
		"s is n":             pair(r, order),
		"r is all ones":      "es256:" + strings.Repeat("f", 64) + body[64:],
		"ed25519, short":     f.early[:len(f.early)-2],
		"ed25519 upper case": "ed25519:" + strings.ToUpper(strings.TrimPrefix(f.early, "ed25519:")[:127]) + "A",
	} {
		t.Run(name, func(t *testing.T) {
			_, byDigest := f.keys.SignedBy(sha256.Sum256(f.message), signature)
			for which, err := range map[string]error{"Verify": f.keys.Verify(f.message, signature), "SignedBy": byDigest} {
				if !errors.Is(err, ErrMalformed) || errors.Is(err, ErrNotVerified) {
					t.Errorf("%s: %v, want ErrMalformed alone", which, err)
				}
			}
		})
	}
	if err := f.keys.Verify(f.message, pair(r, new(big.Int).Set(halfOrder))); !errors.Is(err, ErrNotVerified) {
		t.Errorf("s at exactly half the order is low: %v, want ErrNotVerified", err)
	}
}

// RFC 8032 5.1.7: S must be below the order, else S plus the order is a second
// signature of the same message.
func TestEd25519UnreducedS(t *testing.T) {
	f := newFixture(t)
	raw, err := hex.DecodeString(strings.TrimPrefix(f.early, "ed25519:"))
	if err != nil {
		t.Fatal(err)
	}
	l, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	littleEndian := slices.Clone(raw[32:])
	slices.Reverse(littleEndian)
	s := new(big.Int).SetBytes(littleEndian)
	s.Add(s, l).FillBytes(littleEndian)
	slices.Reverse(littleEndian)
	forged := "ed25519:" + hex.EncodeToString(append(raw[:32:32], littleEndian...))
	if err := f.keys.Verify(f.message, forged); !errors.Is(err, ErrNotVerified) {
		t.Errorf("%v, want ErrNotVerified", err)
	}
}

func TestKeySetLists(t *testing.T) {
	f := newFixture(t)
	legacy := f.keys.Legacy()
	again, err := NewKeySet(f.keys.Current(), append([]string{f.keys.Current()}, append(legacy, legacy...)...))
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Legacy(); !slices.Equal(got, legacy) {
		t.Errorf("repeated labels: %v, want %v", got, legacy)
	}
	got := f.keys.Legacy()
	got[0] = "changed by the caller"
	if f.keys.Legacy()[0] != legacy[0] {
		t.Error("a caller could change the set")
	}
	alone, err := NewKeySet(f.keys.Current(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := alone.Legacy(); got == nil || len(got) != 0 {
		t.Errorf("no legacy keys: %#v, want an empty list, not null in JSON", got)
	}
}

func TestBadLabels(t *testing.T) {
	good := newFixture(t).keys.Current()
	digits := strings.TrimPrefix(good, "es256:")
	for name, label := range map[string]string{
		"empty":            "",
		"no scheme":        digits,
		"unknown scheme":   "es384:" + digits,
		"upper case":       "es256:" + strings.ToUpper(digits[:65]) + "A",
		"short":            good[:len(good)-2],
		"long":             good + "00",
		"not hex":          good[:len(good)-1] + "g",
		"uncompressed":     "es256:04" + digits[2:] + digits[2:],
		"prefix 04":        "es256:04" + digits[2:],
		"infinity":         "es256:" + strings.Repeat("0", 66),
		"x is not below p": "es256:02" + strings.Repeat("f", 64),
		"x is on no point": "es256:02" + offCurve(t),
		"ed25519 zeros":    "ed25519:" + strings.Repeat("0", 64),
		"ed25519 no point": "ed25519:02" + strings.Repeat("0", 62),
		"ed25519 short":    "ed25519:" + strings.Repeat("a", 62),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewKeySet(good, []string{label}); err == nil || !strings.Contains(err.Error(), "legacy public key 0") {
				t.Errorf("as legacy: %v", err)
			}
			if _, err := NewKeySet(label, nil); err == nil || !strings.Contains(err.Error(), "current public key") {
				t.Errorf("as current: %v", err)
			}
		})
	}
}

func TestEd25519IsLegacyOnly(t *testing.T) {
	label := newFixture(t).keys.Legacy()[1]
	if _, err := NewKeySet(label, nil); err == nil || !strings.Contains(err.Error(), "legacy") {
		t.Errorf("%v; want an error that sends the key to the legacy list", err)
	}
}

// offCurve finds an x of P-256 that has no y.
func offCurve(t *testing.T) string {
	t.Helper()
	for i := range 100 {
		x := fmt.Sprintf("%064x", i)
		if _, _, err := parseLabel("es256:02" + x); err != nil {
			return x
		}
	}
	t.Fatal("a hundred x coordinates and each has a point: the check does nothing")
	return ""
}

// Every key that ed25519 makes passes, and half of all byte strings are no point.
func TestCheckEd25519(t *testing.T) {
	for range 100 {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkEd25519(public); err != nil {
			t.Fatalf("%x: %v", public, err)
		}
	}
	points := 0
	for i := range 200 {
		candidate := sha256.Sum256([]byte{byte(i)})
		if checkEd25519(candidate[:]) == nil {
			points++
		}
	}
	if points < 60 || points > 140 {
		t.Errorf("%d of 200 byte strings are points, want about half", points)
	}
}

// RFC 8032 5.1.3 refuses a y that is not below p = 2^255−19, also where y−p is
// that of a point: it would be a second label of one key.
func TestEd25519UnreducedY(t *testing.T) {
	points := 0
	for k := range byte(19) {
		reduced, unreduced := make([]byte, 32), bytes.Repeat([]byte{0xff}, 32)
		reduced[0], unreduced[0], unreduced[31] = k, 0xed+k, 0x7f // k and p+k
		if checkEd25519(reduced) == nil {
			points++
		}
		if err := checkEd25519(unreduced); err == nil {
			t.Errorf("p+%d passed", k)
		}
	}
	if points == 0 {
		t.Error("no y below 19 has a point: the test shows nothing")
	}
}

// The table of small-order points is right: under each of them a signature that
// nobody made verifies in the standard library, for a message or two in eight.
func TestSmallOrderKeysAreForgeable(t *testing.T) {
	var all [][]byte
	for _, encoding := range smallOrder {
		for _, sign := range []byte{0, 0x80} {
			key, err := hex.DecodeString(encoding)
			if err != nil {
				t.Fatal(err)
			}
			key[31] |= sign
			all = append(all, key)
			if err := checkEd25519(key); err == nil {
				t.Errorf("%x passed", key)
			}
		}
	}
	for _, encoding := range smallOrder {
		key, err := hex.DecodeString(encoding)
		if err != nil {
			t.Fatal(err)
		}
		forged := false
		for i := range 64 {
			for _, r := range all {
				if ed25519.Verify(key, []byte{byte(i)}, append(slices.Clone(r), make([]byte, 32)...)) {
					forged = true
				}
			}
		}
		if !forged {
			t.Errorf("%s is in the table and is not of small order", encoding)
		}
	}
}

func TestVerifyingKeyOfEitherScheme(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewVerifyingKey("ed25519:" + hex.EncodeToString(public))
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("retired")
	signature := "ed25519:" + hex.EncodeToString(ed25519.Sign(private, message))
	if err := k.Verify(message, signature); err != nil {
		t.Error(err)
	}
	if err := k.Verify([]byte("other"), signature); !errors.Is(err, ErrNotVerified) {
		t.Error(err)
	}
	for _, label := range []string{"", "es256:00", "ed25519:" + strings.Repeat("0", 64), "rsa:00"} {
		if _, err := NewVerifyingKey(label); err == nil {
			t.Errorf("%q is a key", label)
		}
	}
}
