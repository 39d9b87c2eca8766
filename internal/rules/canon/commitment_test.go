package canon

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

const split = `{"valuations":{"boat":40,"car":60}}`

// The digests come from sha256sum, for example
//
//	printf '%s' '{"valuations":{"boat":40,"car":60}}pepper' | sha256sum
//	{ printf '%s' '{"valuations":{"boat":40,"car":60}}'; printf '\x00\xff\x10\xab'; } | sha256sum
var knownCommitments = []struct{ input, salt, digest string }{
	{split, "", "793f95816daca01fac35783d3c22802079c55c47b8dadd27f87c148d46f77b4e"},
	{split, "pepper", "fba60f43fc903dca305164ada796bc2152ff2066b231a91366aa48c5268183fc"},
	{split, "00ff10ab", "8bda2c539fba7f1a36c6771c39edd0ee5e25d8b08878fee05e268e1d1204f753"},
	{split, "\x00\xff\x10\xab", "046f4b4b31eb9ef8af151354bb5d5e5564b65ecda226a29ac37e0923801071e3"},
	{`{"nonce":"ff"}`, "sälz", "3c5f8d300b00f92d979c35ba44dc4ff46d3862d4b1194cf8e86cb9563e0dea60"},
	{`{}`, "", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
}

func TestCommitment(t *testing.T) {
	t.Parallel()
	for _, k := range knownCommitments {
		want := "sha256:" + k.digest
		if got := Commitment([]byte(k.input), []byte(k.salt)); got != want {
			t.Errorf("Commitment(%s, %q) = %s, want %s", k.input, k.salt, got, want)
		}
		if digest, err := ParseCommitment(want); err != nil || hex.EncodeToString(digest[:]) != k.digest {
			t.Errorf("ParseCommitment(%s) = %x, %v; want %s", want, digest, err, k.digest)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	of := func(salt string) string { return Commitment([]byte(split), []byte(salt)) }
	for _, tc := range []struct {
		name, commitment, salt string
		want                   string
		ok                     bool
	}{
		{"no salt", of(""), "", "", true},
		{"text", of("pepper"), "pepper", "pepper", true},
		{"hex as text", of("00ff10ab"), "00ff10ab", "00ff10ab", true},
		{"hex as bytes", of("\x00\xff\x10\xab"), "00ff10ab", "\x00\xff\x10\xab", true},
		{"upper-case hex as bytes", of("\x00\xff\x10\xab"), "00FF10Ab", "\x00\xff\x10\xab", true},
		{"U+0000", of("\x00"), "\x00", "\x00", true},
		{"odd hex has one reading", of("\x0f\xf1"), "ff1", "", false},
		{"not hex", of("\x00"), "0g", "", false},
		{"other salt", of("pepper"), "salt", "", false},
		{"salt left out", of("pepper"), "", "", false},
		{"salt added", of(""), "pepper", "", false},
		{"upper-case commitment", strings.ToUpper(of("")), "", "", false},
	} {
		salt, ok := Open(tc.commitment, []byte(split), tc.salt)
		if ok != tc.ok || string(salt) != tc.want {
			t.Errorf("%s: got %q, %v; want %q, %v", tc.name, salt, ok, tc.want, tc.ok)
		}
	}
	if _, ok := Open(of("pepper"), []byte(`{"valuations":{"boat":41,"car":60}}`), "pepper"); ok {
		t.Error("another input opens the commitment")
	}
}

func TestParseCommitmentRefuses(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0a", 31) + "7f"
	for _, s := range []string{"", "sha256:", digits, "sha256:" + digits[1:], "sha256:" + digits + "00", "SHA256:" + digits,
		"sha256:" + strings.ToUpper(digits), "sha256:" + strings.Repeat("0g", 32), "sha512:" + digits, "sha256:" + digits + "\n"} {
		if _, err := ParseCommitment(s); !errors.Is(err, ErrCommitment) {
			t.Errorf("ParseCommitment(%q): got error %v, want %v", s, err, ErrCommitment)
		}
	}
}
