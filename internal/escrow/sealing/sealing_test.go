package sealing

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func secretOf(t testing.TB, fill byte) *Secret {
	t.Helper()
	s, err := New(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func anyInput(t *rapid.T) Input {
	return Input{
		Canonical: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "canonical"),
		Salt:      rapid.String().Draw(t, "salt"),
		SaltBytes: rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "salt bytes"),
	}
}

func same(a, b Input) bool {
	return bytes.Equal(a.Canonical, b.Canonical) && a.Salt == b.Salt && bytes.Equal(a.SaltBytes, b.SaltBytes)
}

func TestInputRoundTrip(t *testing.T) {
	s, again := secretOf(t, 1), secretOf(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		deal, party := rapid.String().Draw(t, "deal"), rapid.IntRange(0, 9999).Draw(t, "party")
		sealed := s.SealInput(deal, party, in)
		got, err := again.OpenInput(deal, party, sealed) // as on another replica with the same secret
		if err != nil || !same(got, in) {
			t.Fatalf("OpenInput = %v, %v; want %v", got, err, in)
		}
		if other := s.SealInput(deal, party, in); bytes.Equal(other[:12], sealed[:12]) {
			t.Fatalf("two inputs are sealed with the nonce %x, want two nonces", sealed[:12])
		}
	})
}

func TestInputOpensOnlyForItsDealAndParty(t *testing.T) {
	s := secretOf(t, 1)
	in := Input{Canonical: []byte(`{"nonce":"00ff"}`), Salt: "salt", SaltBytes: []byte("salt")}
	sealed := s.SealInput("d_1", 1, in)
	for _, row := range []struct {
		what   string
		secret *Secret
		deal   string
		party  int
	}{
		{"another secret", secretOf(t, 2), "d_1", 1},
		{"another deal", s, "d_2", 1},
		{"a deal whose id has one byte more", s, "d_1\x00", 1},
		{"another party", s, "d_1", 0},
		{"party 256", s, "d_1", 256},
	} {
		if got, err := row.secret.OpenInput(row.deal, row.party, sealed); err == nil {
			t.Errorf("%s opens the input of party 1 of deal d_1: got %+v, want an error", row.what, got)
		} else if strings.Contains(err.Error(), "nonce") || strings.Contains(err.Error(), "salt") {
			t.Errorf("%s: the error shows the input: %v", row.what, err)
		}
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := s.OpenInput("d_1", 1, changed); err == nil {
			t.Fatalf("a sealed input with byte %d changed opens, want an error", i)
		}
	}
}

func TestResponseOpensOnlyWithItsHeaderAndCredential(t *testing.T) {
	s := secretOf(t, 1)
	text := []byte(`{"status":201}`)
	sealed, err := s.Encrypt(text, []byte("header"), []byte("bearer"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := secretOf(t, 1).Decrypt(sealed, []byte("header"), []byte("bearer")); err != nil || !bytes.Equal(got, text) {
		t.Errorf("Decrypt with the same secret, header and bearer = %q, %v; want %q", got, err, text)
	}
	for _, row := range []struct {
		what   string
		secret *Secret
		keyed  []string
	}{
		{"another secret", secretOf(t, 2), []string{"header", "bearer"}},
		{"another header", s, []string{"Header", "bearer"}},
		{"another credential", s, []string{"header", "bearer2"}},
		{"the two in the other order", s, []string{"bearer", "header"}},
		{"the boundary moved", s, []string{"headerb", "earer"}},
		{"one part", s, []string{"headerbearer"}},
		{"a further empty part", s, []string{"header", "bearer", ""}},
		{"nothing", s, nil},
	} {
		keyed := make([][]byte, len(row.keyed))
		for i, part := range row.keyed {
			keyed[i] = []byte(part)
		}
		if got, err := row.secret.Decrypt(sealed, keyed...); err == nil {
			t.Errorf("%s opens the response: got %q, want an error", row.what, got)
		}
	}
}

func TestMACIsUnambiguous(t *testing.T) {
	s := secretOf(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2}), 0, 3), 0, 4)
		a, b := lists.Draw(t, "a"), lists.Draw(t, "b")
		equal := len(a) == len(b)
		for i := 0; equal && i < len(a); i++ {
			equal = bytes.Equal(a[i], b[i])
		}
		if got := bytes.Equal(s.MAC(a...), s.MAC(b...)); got != equal {
			t.Fatalf("MACs of %v and %v are equal: %v, want %v", a, b, got, equal)
		}
	})
	if bytes.Equal(s.MAC([]byte("a")), secretOf(t, 2).MAC([]byte("a"))) {
		t.Error("two secrets make the same MAC, want two MACs")
	}
}

func TestCredentials(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		for _, made := range []struct {
			text, prefix string
			bytes        int
		}{{Token("fp_"), "fp_", 32}, {ID("d_"), "d_", 16}} {
			rest, ok := strings.CutPrefix(made.text, made.prefix)
			raw, err := base64.RawURLEncoding.DecodeString(rest)
			if !ok || err != nil || len(raw) != made.bytes || seen[made.text] {
				t.Fatalf("%q: %d bytes, seen before: %v, %v; want %d new bytes after %q", made.text, len(raw), seen[made.text], err, made.bytes, made.prefix)
			}
			seen[made.text] = true
		}
	}
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // SHA-256 of "abc", FIPS 180-4
	if got := hex.EncodeToString(TokenHash("abc")); got != sum {
		t.Errorf("TokenHash(abc) = %s, want %s", got, sum)
	}
}

func TestLoad(t *testing.T) {
	digits := hex.EncodeToString(bytes.Repeat([]byte{1}, 32))
	path := filepath.Join(t.TempDir(), "secret")
	for _, row := range []struct {
		text string
		ok   bool
	}{
		{digits, true}, {digits + "\n", true}, {" " + strings.ToUpper(digits) + "ab\r\n", true},
		{"02" + digits[2:] + "\n\n" + digits + "\n", true}, {digits + "\n" + digits, false}, {digits + "\n" + digits[2:], false},
		{"", false}, {digits[2:], false}, {digits[1:], false}, {digits + "zz", false}, {strings.Repeat("x", 64), false},
	} {
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(path)
		if (err == nil) != row.ok || (s != nil) != row.ok {
			t.Errorf("Load of the file %q: got error %v; want it accepted: %v", row.text, err, row.ok)
		}
		if err != nil && len(row.text) > 8 && strings.Contains(err.Error(), row.text[:8]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	if err := os.WriteFile(path, []byte(digits), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(loaded.Writer().MAC([]byte("x")), secretOf(t, 1).MAC([]byte("x"))) {
		t.Error("a secret loaded from a file makes another MAC than the same secret in memory, want the same MAC")
	}
	if _, err := Load(path + ".missing"); err == nil {
		t.Error("Load of a missing file: got no error, want one")
	}
	if _, err := New(make([]byte, 31)); err == nil {
		t.Error("New with 31 bytes: got no error, want one")
	}
}
