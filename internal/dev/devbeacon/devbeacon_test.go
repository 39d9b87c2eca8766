package devbeacon_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/consensys/gnark-crypto/ecc/bls12-381/fp"
	"pgregory.net/rapid"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

func get(t *testing.T, s *devbeacon.Server, path string, into any) int {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	if recorder.Code == http.StatusOK {
		if err := json.Unmarshal(recorder.Body.Bytes(), into); err != nil {
			t.Fatal(err)
		}
	}
	return recorder.Code
}

type round struct {
	Round                 int64
	Randomness, Signature string
}

func at(seconds int64) *devbeacon.Server {
	s := devbeacon.New([]byte("seed"))
	s.Now = func() time.Time { return time.Unix(s.Chain().Genesis+seconds, 0) }
	return s
}

func TestRoundsVerifyOnlyUnderTheirChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.SliceOf(rapid.Byte()).Draw(t, "seed")
		number := rapid.Int64Range(1, drand.MaxRound).Draw(t, "round")
		mine, other := devbeacon.New(seed), devbeacon.New(append(seed, 'x'))
		signature := mine.Sign(number)
		randomness, err := mine.Chain().Verify(number, signature)
		if err != nil {
			t.Fatal(err)
		}
		if randomness != sha256.Sum256(signature) {
			t.Error("the randomness is not the SHA-256 of the signature")
		}
		for name, chain := range map[string]drand.Chain{"another seed": other.Chain(), "quicknet": drand.Quicknet()} {
			if _, err := chain.Verify(number, signature); !errors.Is(err, drand.ErrBadSignature) {
				t.Errorf("%s: %v, want ErrBadSignature", name, err)
			}
		}
		next := number%drand.MaxRound + 1
		if _, err := mine.Chain().Verify(next, signature); !errors.Is(err, drand.ErrBadSignature) {
			t.Errorf("round %d: %v, want ErrBadSignature", next, err)
		}
	})
}

// If x plus the field's modulus fits in 381 bits, the point with this x has a second
// encoding. That encoding would be a second signature of the round.
func TestUnreducedSignatureIsRefused(t *testing.T) {
	s := devbeacon.New([]byte("seed"))
	for number := int64(1); number < 200; number++ {
		signature := s.Sign(number)
		flags := signature[0] & 0xe0
		x := bytes.Clone(signature)
		x[0] &= 0x1f
		sum := new(big.Int).Add(new(big.Int).SetBytes(x), fp.Modulus())
		if sum.BitLen() > 381 {
			continue
		}
		forged := sum.FillBytes(make([]byte, 48))
		forged[0] |= flags
		if _, err := s.Chain().Verify(number, forged); !errors.Is(err, drand.ErrBadSignature) {
			t.Errorf("round %d: %v, want ErrBadSignature", number, err)
		}
		return
	}
	t.Fatal("no signature among 200 rounds whose x has a second encoding")
}

func TestSameSeedSameChain(t *testing.T) {
	a, b, c := devbeacon.New([]byte("seed")), devbeacon.New([]byte("seed")), devbeacon.New([]byte("seed2"))
	if a.Chain().Hash != b.Chain().Hash || !bytes.Equal(a.Chain().PublicKey, b.Chain().PublicKey) || !bytes.Equal(a.Sign(7), b.Sign(7)) {
		t.Error("one seed, two chains")
	}
	if a.Chain().Hash == c.Chain().Hash || bytes.Equal(a.Chain().PublicKey, c.Chain().PublicKey) || a.Chain().Hash == drand.Quicknet().Hash {
		t.Error("two seeds have the same chain hash or key, want different ones")
	}
	// Deals store the chain hash, so the hash of a seed must never change.
	if want := "628a4e7a368b46e6d92ad9a9119c70d5d31508666b92e462305a0424d8b576d7"; a.Chain().Hash != want {
		t.Errorf("the chain of this seed is %s, want %s", a.Chain().Hash, want)
	}
	if a.Chain().Genesis != drand.Quicknet().Genesis || a.Chain().Period != drand.Quicknet().Period {
		t.Error("genesis or period differ from quicknet's")
	}
}

// By the server's clock, round 1000 is the newest published round.
func TestAnswers(t *testing.T) {
	s := at(3 * 999)
	hash := s.Chain().Hash
	for _, number := range []int64{1, 999, 1000} {
		var got round
		code := get(t, s, fmt.Sprintf("/%s/public/%d", hash, number), &got)
		randomness, err := s.Chain().Verify(number, s.Sign(number))
		if want := (round{number, hex.EncodeToString(randomness[:]), hex.EncodeToString(s.Sign(number))}); err != nil || code != http.StatusOK || got != want {
			t.Errorf("round %d: status %d, %+v, %v; want 200 and %+v", number, code, got, err, want)
		}
	}
	for path, want := range map[string]int{
		hash + "/public/1001":               http.StatusTooEarly,
		hash + "/public/9007199254740991":   http.StatusTooEarly,
		hash + "/public/9007199254740992":   http.StatusNotFound,
		hash + "/public/0":                  http.StatusNotFound,
		hash + "/public/+1":                 http.StatusNotFound,
		hash + "/public/01":                 http.StatusNotFound,
		drand.Quicknet().Hash + "/public/1": http.StatusNotFound,
	} {
		if code := get(t, s, "/"+path, nil); code != want {
			t.Errorf("%s: status %d, want %d", path, code, want)
		}
	}
	if code := get(t, at(-1), "/"+hash+"/public/1", nil); code != http.StatusTooEarly {
		t.Errorf("before the genesis: status %d, want 425", code)
	}
}
