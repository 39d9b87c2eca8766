package timelock_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	bls "github.com/consensys/gnark-crypto/ecc/bls12-381"

	"github.com/fairpact/fairpact/internal/dev/devbeacon"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

const (
	begin = "-----BEGIN AGE ENCRYPTED FILE-----\n"
	end   = "-----END AGE ENCRYPTED FILE-----\n"
)

// dearmored returns the bytes of a seal that the package made.
func dearmored(t testing.TB, seal string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(seal, begin), end))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// armored returns the canonical armor of any bytes.
func armored(raw []byte) string {
	var b strings.Builder
	b.WriteString(begin)
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 64) {
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteString(end)
	return b.String()
}

// edited replaces text in the bytes inside the armor. The replacement must change them.
func edited(t testing.TB, seal, old, new string) string {
	t.Helper()
	raw := string(dearmored(t, seal))
	changed := strings.Replace(raw, old, new, 1)
	if changed == raw {
		t.Fatalf("%q is not in the seal", old)
	}
	return armored([]byte(changed))
}

// stanza returns the seal with other bytes as the body of its stanza.
func stanza(t testing.TB, seal string, change func(body []byte)) string {
	t.Helper()
	lines := strings.SplitN(string(dearmored(t, seal)), "\n", 6)
	body, err := base64.RawStdEncoding.DecodeString(lines[2] + lines[3] + lines[4])
	if err != nil {
		t.Fatal(err)
	}
	change(body)
	text := base64.RawStdEncoding.EncodeToString(body)
	lines[2], lines[3], lines[4] = text[:64], text[64:128], text[128:]
	return armored([]byte(strings.Join(lines, "\n")))
}

// outsideG2 returns a point of the twist y² = x³ + 4(1+u) that is not in the subgroup.
func outsideG2(t testing.TB) [96]byte {
	t.Helper()
	for i := uint64(1); i < 100; i++ {
		var p bls.G2Affine
		p.X.A0.SetUint64(i)
		b, y2 := p.X, p.X
		b.A0.SetUint64(4)
		b.A1.SetUint64(4)
		y2.Square(&p.X).Mul(&y2, &p.X).Add(&y2, &b)
		if y2.Legendre() == 1 {
			if p.Y.Sqrt(&y2); p.IsOnCurve() && !p.IsInSubGroup() {
				return p.Bytes()
			}
		}
	}
	t.Fatal("no point outside the subgroup among a hundred x coordinates")
	return [96]byte{}
}

// refusedSeals returns texts that Check refuses, most of them changes of a good seal.
func refusedSeals(t testing.TB, good string) (all []sealVector) {
	add := func(what, seal string) { all = append(all, sealVector{what, seal}) }
	hash := quicknet.Hash
	add("an empty text", "")
	add("armor without content", begin+end)
	add("no final line feed", strings.TrimSuffix(good, "\n"))
	add("two final line feeds", good+"\n")
	add("a space before the armor", " "+good)
	add("CRLF line ends", strings.ReplaceAll(good, "\n", "\r\n"))
	add("a blank line in the armor", strings.Replace(good, begin, begin+"\n", 1))
	add("a short line in the armor", good[:len(begin)+10]+"\n"+good[len(begin)+10:])
	add("one long line", begin+strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(good, begin), end), "\n", "")+"\n"+end)
	add("a space in the armor", strings.Replace(good, "YWdl", "YWd ", 1))
	add("the base64 alphabet of URLs", strings.Replace(good, "YWdl", "YW_l", 1))
	add("no armor", string(dearmored(t, good)[:200]))
	add("two files", good+good)
	short := armored(dearmored(t, good)[:len(dearmored(t, good))/3*3-1]) // a multiple of 3 minus 1, so the base64 ends with one =
	add("no padding", strings.Replace(short, "=\n", "\n", 1))
	padded := strings.Index(short, "=\n")
	add("padding bits that are not 0", short[:padded-1]+nextBase64(short[padded-1])+short[padded:])
	add("version 2 of age", edited(t, good, "org/v1", "org/v2"))
	add("another type of stanza", edited(t, good, "-> tlock", "-> X25519"))
	add("a third argument", edited(t, good, hash+"\n", hash+" x\n"))
	add("no chain hash", edited(t, good, " "+hash, ""))
	add("a space after the arguments", edited(t, good, hash+"\n", hash+" \n"))
	add("another chain", edited(t, good, hash, strings.Repeat("0", 64)))
	add("an upper-case chain hash", edited(t, good, hash, strings.ToUpper(hash)))
	add("another round", edited(t, good, "12040883", "12040884"))
	add("a leading zero in the round", edited(t, good, "12040883", "012040883"))
	add("a sign before the round", edited(t, good, "12040883", "+12040883"))
	add("a round beyond 2^64", edited(t, good, "12040883", "1204088300000000000000"))
	add("CRLF in the header", edited(t, good, "\n->", "\r\n->"))
	add("two stanzas", edited(t, good, "\n---", "\n-> grease\n\n---"))
	add("a second stanza before it", edited(t, good, "\n-> tlock", "\n-> grease\n\n-> tlock"))
	lines := strings.SplitN(string(dearmored(t, good)), "\n", 6)
	add("a stanza in one line", edited(t, good, lines[2]+"\n"+lines[3]+"\n"+lines[4], lines[2]+lines[3]+lines[4]))
	add("a short stanza", edited(t, good, lines[4]+"\n", lines[4][:40]+"\n"))
	add("a padded stanza", edited(t, good, lines[4]+"\n", lines[4]+"=\n"))
	add("bits after the stanza that are not 0", edited(t, good, lines[4]+"\n", lines[4][:42]+nextBase64(lines[4][42])+"\n"))
	mac := lines[5][:strings.IndexByte(lines[5], '\n')]
	add("no MAC", edited(t, good, "\n"+mac+"\n", "\n---\n"))
	add("a short MAC", edited(t, good, mac+"\n", mac[:43]+"\n"))
	add("two spaces before the MAC", edited(t, good, "--- ", "---  "))
	add("no payload", armored([]byte(strings.Join(lines[:5], "\n")+"\n"+mac+"\n")))
	add("a payload without a chunk", armored([]byte(strings.Join(lines[:5], "\n")+"\n"+mac+"\n0123456789abcdef")))
	outside, infinity := outsideG2(t), append([]byte{0xc0}, make([]byte, 95)...)
	add("U outside the subgroup", stanza(t, good, func(b []byte) { copy(b, outside[:]) }))
	add("U at infinity", stanza(t, good, func(b []byte) { copy(b, infinity) }))
	add("U off the curve", stanza(t, good, func(b []byte) { copy(b[48:], make([]byte, 48)) }))
	add("U beyond the field", stanza(t, good, func(b []byte) { copy(b, strings.Repeat("\xbf", 96)) }))
	add("U not compressed", stanza(t, good, func(b []byte) { b[0] &= 0x1f }))
	return all
}

// nextBase64 returns the character that encodes the next higher six bits, which changes the lowest
// bit of an even value.
func nextBase64(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	at := strings.IndexByte(alphabet, c)
	return alphabet[at+1 : at+2]
}

// closedSeals returns seals that Check accepts and that do not open.
func closedSeals(t testing.TB, good string) (all []sealVector) {
	add := func(what, seal string) { all = append(all, sealVector{what, seal}) }
	other := devbeacon.New([]byte("other")).Chain()
	foreign, err := drand.ParseChain(quicknet.Hash, hex.EncodeToString(other.PublicKey), other.Period, other.Genesis)
	if err != nil {
		t.Fatal(err)
	}
	add("sealed under the key of another chain", timelock.Seal(foreign, realRound, []byte(plaintext), random("other")))
	add("sealed for the next round, with another round in the stanza",
		edited(t, timelock.Seal(quicknet, realRound+1, []byte(plaintext), random("next")), "12040884", "12040883"))
	add("sealed for the round before, with another round in the stanza",
		edited(t, timelock.Seal(quicknet, realRound-1, []byte(plaintext), random("previous")), "12040882", "12040883"))
	add("another V", stanza(t, good, func(b []byte) { b[96] ^= 1 }))
	add("another W", stanza(t, good, func(b []byte) { b[127] ^= 0x80 }))
	add("-U instead of U", stanza(t, good, func(b []byte) { b[0] ^= 0x20 }))
	add("U, V and W of another seal", stanza(t, good, func(b []byte) {
		lines := strings.SplitN(string(dearmored(t, timelock.Seal(quicknet, realRound, []byte(plaintext), random("wrap")))), "\n", 6)
		body, _ := base64.RawStdEncoding.DecodeString(lines[2] + lines[3] + lines[4])
		copy(b, body)
	}))
	mac := strings.SplitN(string(dearmored(t, good)), "\n--- ", 2)[1][:43]
	add("another MAC", edited(t, good, mac, "A"+mac[1:]))
	raw := dearmored(t, good)
	flip := func(at int) string {
		changed := slices.Clone(raw)
		changed[at] ^= 1
		return armored(changed)
	}
	payload := len(raw) - len(plaintext) - 32
	add("another nonce", flip(payload))
	add("another first byte of the payload", flip(payload+16))
	add("another last byte of the payload", flip(len(raw)-1))
	add("a payload that is cut", armored(raw[:len(raw)-1]))
	add("a payload that is longer", armored(append(slices.Clone(raw), 0)))
	return all
}

// openings returns plaintexts with the verdict on them.
func openings() (all []openingVector) {
	add := func(what, text string, ok bool) {
		all = append(all, openingVector{what, text, dealID, 0, commitment, ok})
	}
	with := func(old, new string) string { return strings.Replace(plaintext, old, new, 1) }
	add("the opening", plaintext, true)
	all = append(all, openingVector{"a salt that is read as hex", `{"deal_id":"d_EXAMPLE","input":{"valuations":{"boat":60,"car":40}},"party":1,"salt":"c9f0f895fb98ab9159f51fd0297e236d"}`,
		dealID, 1, "sha256:e958821dc5f56e36f9292f1093171e4bf88b58042b750802f78c7792f60ef93f", true})
	all = append(all, openingVector{"characters beyond ASCII", `{"deal_id":"d_EXAMPLE","input":{"a":"é"},"party":9999,"salt":"sälz"}`,
		dealID, 9999, "sha256:bc1755ed7742bff66cb0aaaba96d5d91d880b964185e40bbb1a04a19899430d6", true})
	deep := strings.Repeat(`{"a":`, canon.MaxDepth) + "0" + strings.Repeat("}", canon.MaxDepth)
	all = append(all, openingVector{"the deepest input", `{"deal_id":"d_EXAMPLE","input":` + deep + `,"party":0,"salt":""}`, dealID, 0, canon.Commitment([]byte(deep), nil), true})
	deeper := `{"a":` + deep + `}`
	all = append(all, openingVector{"an input that is too deep", `{"deal_id":"d_EXAMPLE","input":` + deeper + `,"party":0,"salt":""}`, dealID, 0, canon.Commitment([]byte(deeper), nil), false})
	long := strings.Repeat("x", canon.MaxSalt+1)
	all = append(all, openingVector{"a salt that is too long", `{"deal_id":"d_EXAMPLE","input":{},"party":0,"salt":"` + long + `"}`, dealID, 0, canon.Commitment([]byte("{}"), []byte(long)), false})
	add("another deal", with("d_EXAMPLE", "d_OTHER"), false)
	add("another party", with(`"party":0`, `"party":1`), false)
	add("another input", with("30", "31"), false)
	add("another salt", with("8f14", "8f15"), false)
	add("white space", with(`{"deal_id"`, `{ "deal_id"`), false)
	add("a line feed at the end", plaintext+"\n", false)
	add("another order of members", `{"input":`+inputText+`,"deal_id":"`+dealID+`","party":0,"salt":"`+salt+`"}`, false)
	add("an escape that is not needed", with("boat", `\u0062oat`), false)
	add("-0 instead of 0", with(`"party":0`, `"party":-0`), false)
	add("a fraction", with(`"party":0`, `"party":0.0`), false)
	add("a party that is text", with(`"party":0`, `"party":"0"`), false)
	add("a salt that is null", with(`"`+salt+`"`, "null"), false)
	add("an input that is an array", `{"deal_id":"d_EXAMPLE","input":[],"party":0,"salt":""}`, false)
	add("no salt", `{"deal_id":"d_EXAMPLE","input":`+inputText+`,"party":0}`, false)
	add("one more member", with(`{"deal_id"`, `{"accept":true,"deal_id"`), false)
	add("the salt twice", with(`,"salt"`, `,"salt":"`+salt+`","salt"`), false)
	add("an array", "["+plaintext+"]", false)
	add("nothing", "", false)
	add("the input alone", inputText, false)
	return all
}

func TestRefusedSeals(t *testing.T) {
	good := timelock.Seal(quicknet, realRound, []byte(plaintext), random("good"))
	if _, err := timelock.Check(quicknet, good, realRound, len(good)); err != nil {
		t.Fatal(err)
	}
	for _, one := range refusedSeals(t, good) {
		t.Run(one.What, func(t *testing.T) {
			if _, err := timelock.Check(quicknet, one.Seal, realRound, 1<<20); !errors.Is(err, timelock.ErrSeal) {
				t.Errorf("Check: %v, want ErrSeal for\n%s", err, one.Seal)
			}
		})
	}
	// The chunk of 64 KiB is full, so the chunk without content after it must not be there.
	full := string(dearmored(t, timelock.Seal(quicknet, realRound, make([]byte, 64<<10), random("full"))))
	if _, err := timelock.Check(quicknet, armored([]byte(full)), realRound, 1<<20); err != nil {
		t.Errorf("a full chunk: %v", err)
	}
	if _, err := timelock.Check(quicknet, armored([]byte(full+strings.Repeat("x", 16))), realRound, 1<<20); !errors.Is(err, timelock.ErrSeal) {
		t.Errorf("an empty last chunk: %v, want ErrSeal", err)
	}
	if _, err := timelock.Check(quicknet, good, realRound, len(good)-1); !errors.Is(err, timelock.ErrSeal) {
		t.Errorf("a seal over the limit: %v, want ErrSeal", err)
	}
}

func TestSealsThatDoNotOpen(t *testing.T) {
	good := timelock.Seal(quicknet, realRound, []byte(plaintext), random("good"))
	for _, one := range closedSeals(t, good) {
		t.Run(one.What, func(t *testing.T) {
			sealed, err := timelock.Check(quicknet, one.Seal, realRound, 4096)
			if err != nil {
				t.Fatal(err)
			}
			if opened, err := sealed.Open(realKey(t)); !errors.Is(err, timelock.ErrNotOpened) || opened != nil {
				t.Errorf("Open: %q, %v; want ErrNotOpened", opened, err)
			}
		})
	}
}

func TestOpenings(t *testing.T) {
	for _, one := range openings() {
		t.Run(one.What, func(t *testing.T) {
			o, err := timelock.ParseOpening([]byte(one.Plaintext))
			if err == nil {
				_, _, err = o.Reveal(one.DealID, one.Party, one.Commitment)
			}
			if (err == nil) != one.OK || err != nil && !errors.Is(err, timelock.ErrOpening) {
				t.Errorf("%v, want success %v", err, one.OK)
			}
			if err != nil && strings.Contains(err.Error(), "boat") {
				t.Errorf("the error quotes the input: %v", err)
			}
		})
	}
}
