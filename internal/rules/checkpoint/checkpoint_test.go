package checkpoint

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

const origin = "log.example/one"

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type result[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) result[T] { return result[T]{value, err} }

func (r result[T]) ok(t testing.TB) T {
	t.Helper()
	check(t, r.err)
	return r.value
}

type logKeys struct {
	ed    ed25519.PrivateKey
	ec    *ecdsa.PrivateKey
	first Key
	other Key
}

func newLogKeys(t *testing.T, name string) logKeys {
	t.Helper()
	public, ed, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	ec := of(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).ok(t)
	k := logKeys{ed: ed, ec: ec}
	k.first = of(Ed25519Key(name, public)).ok(t)
	k.other = of(ECDSAKey(name, &ec.PublicKey)).ok(t)
	return k
}

func (k logKeys) sign(t *testing.T, c Checkpoint) string {
	t.Helper()
	digest := c.Digest()
	der := of(ecdsa.SignASN1(rand.Reader, k.ec, digest[:])).ok(t)
	return c.Text() + "\n" + k.first.Line(ed25519.Sign(k.ed, []byte(c.Text()))) + k.other.Line(der)
}

// witness cosigns with transparency-dev/formats, because package checkpoint does not sign.
type witness struct {
	*formats.Signer
	key Key
}

func newWitness(t *testing.T, name string) witness {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	check(t, err)
	vkey = of(formats.VKeyToCosignatureV1(vkey)).ok(t)
	signer := of(formats.NewSignerForCosignatureV1(skey)).ok(t)
	key := of(ParseKey(vkey)).ok(t)
	return witness{signer, key}
}

func (w witness) line(t *testing.T, text string) string {
	t.Helper()
	signature := of(w.Sign([]byte(text))).ok(t)
	return w.key.Line(signature)
}

func checkpointOf(size int64) Checkpoint {
	return Checkpoint{Origin: origin, Size: size, Root: sha256.Sum256([]byte{byte(size)})}
}

// The text is the example of c2sp.org/tlog-checkpoint.
func TestParseReadsTheStandardFormOnly(t *testing.T) {
	const text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
	c, err := Parse(text)
	if err != nil || c.Origin != "example.com/behind-the-sofa" || c.Size != 20852163 || c.Text() != text {
		t.Fatalf("parse the example of the standard: %+v, %v; want its origin, size and text", c, err)
	}
	if c.Digest() != sha256.Sum256([]byte(text)) {
		t.Error("the digest is not that of the text")
	}
	for name, wrong := range map[string]string{
		"leading zero":   strings.Replace(text, "2085", "02085", 1),
		"plus":           strings.Replace(text, "2085", "+2085", 1),
		"extension line": text + "more\n",
		"no origin":      text[strings.Index(text, "\n"):],
		"short root":     strings.Replace(text, "CsUYapGG", "", 1),
		"not the end":    strings.TrimSuffix(text, "\n"),
		"size over 2^63": strings.Replace(text, "20852163", "9223372036854775808", 1),
	} {
		if _, err := Parse(wrong); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}

// The key and the note are the example of c2sp.org/signed-note.
func TestKeyOfTheStandardVerifiesItsNote(t *testing.T) {
	const vkey = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
	const text = "This is an example message.\n"
	const line = "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
	key, err := ParseKey(vkey)
	if err != nil || key.String() != vkey || key.Type() != TypeEd25519 || key.ID() != "example.com/foo+530d903a" {
		t.Fatalf("parse the example's key: %v, %v; want the same key", key, err)
	}
	if mine, err := key.Signed(text, line); !mine || err != nil {
		t.Errorf("signature line of the key: named %t, %v; want true and no error", mine, err)
	}
	if mine, err := key.Signed(text+"\n", line); !mine || err == nil {
		t.Errorf("signature line over another text: named %t, %v; want true and an error", mine, err)
	}
	for name, wrong := range map[string]string{
		"another key ID": strings.Replace(vkey, "530d903a", "530d903b", 1),
		"unknown type":   "example.com/foo+530d903a+CekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
		"no type":        "example.com/foo+530d903a+",
		"no key ID":      "example.com/foo",
		"upper case ID":  strings.Replace(vkey, "530d903a", "530D903A", 1),
		"cut short":      vkey[:len(vkey)-4],
		"space in name":  strings.Replace(vkey, "/foo", "/f oo", 1),
	} {
		if _, err := ParseKey(wrong); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}

func TestOpenNeedsAValidLogSignature(t *testing.T) {
	keys, others, c := newLogKeys(t, origin), newLogKeys(t, "log.example/two"), checkpointOf(7)
	signed := keys.sign(t, c)
	lines := strings.SplitAfter(signed, "\n") // lines: origin, size, root, blank, ed25519, ecdsa
	w := newWitness(t, "witness.example/a")

	got, by, err := Open([]byte(signed+w.line(t, c.Text())), []Key{keys.first, keys.other}, []Key{w.key})
	if err != nil || got != c || len(by) != 3 {
		t.Fatalf("opened %+v signed by %v, %v; want the same checkpoint by 3 keys", got, by, err)
	}
	if _, by, err = Open([]byte(signed+w.line(t, c.Text())), []Key{keys.first}, nil); err != nil || len(by) != 1 {
		t.Errorf("unknown lines are not ignored: signed by %v, %v", by, err)
	}
	for name, wrong := range map[string]string{
		"by no known key":              others.sign(t, c),
		"by a witness alone":           strings.Join(lines[:4], "") + w.line(t, c.Text()),
		"an invalid known signature":   strings.Join(lines[:5], "") + keys.other.Line([]byte("no signature")),
		"an invalid cosignature":       signed + w.line(t, checkpointOf(8).Text()),
		"another size":                 strings.Replace(signed, "\n7\n", "\n8\n", 1),
		"of another origin":            others.sign(t, Checkpoint{Origin: "log.example/three", Size: 7}),
		"not a note":                   strings.Join(lines[:3], ""),
		"a note that is no checkpoint": "hello\n\n" + keys.first.Line(ed25519.Sign(keys.ed, []byte("hello\n"))),
		"too long":                     signed + strings.Repeat("— x AAAAAAAA\n", MaxNote/8),
	} {
		if _, _, err := Open([]byte(wrong), []Key{keys.first, keys.other, others.first}, []Key{w.key}); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}

// policyOf returns a policy that demands the fourth witness and two of the first three.
func policyOf(t *testing.T, keys logKeys, ws ...witness) *Policy {
	t.Helper()
	text := fmt.Sprintf("# comment\nlog %s https://log.example/one\n\n", keys.first)
	for i, w := range ws {
		text += fmt.Sprintf("witness\tw%d  %s https://w%d.example\n", i, w.key, i)
	}
	text += "group three 2 w0 w1 w2\n  group everyone all three w3\nquorum everyone\n"
	p := of(ParsePolicy([]byte(text))).ok(t)
	return p
}

func TestPolicyDemandsItsQuorum(t *testing.T) {
	keys, c := newLogKeys(t, origin), checkpointOf(7)
	var ws []witness
	for i := range 4 {
		ws = append(ws, newWitness(t, fmt.Sprintf("witness.example/%d", i)))
	}
	p := policyOf(t, keys, ws...)
	if !p.Demands() || len(p.Witnesses) != 4 || p.Witnesses[1].URL != "https://w1.example" {
		t.Errorf("policy %+v, want 4 witnesses, a quorum and the URL of w1", p)
	}
	for _, set := range []struct {
		by   []int
		good bool
	}{
		{nil, false}, {[]int{0}, false}, {[]int{0, 1}, false}, {[]int{3}, false}, {[]int{0, 3}, false},
		{[]int{0, 1, 2}, false}, {[]int{0, 1, 3}, true}, {[]int{1, 2, 3}, true}, {[]int{0, 1, 2, 3}, true}, {[]int{0, 0, 3}, false},
	} {
		signed := keys.sign(t, c)
		for _, i := range set.by {
			signed += ws[i].line(t, c.Text())
		}
		got, names, err := p.Verify([]byte(signed))
		if (err == nil) != set.good || err != nil && !errors.Is(err, ErrQuorum) || got != c {
			t.Errorf("cosigned by %v: %v, counted %v; want the quorum met: %t", set.by, err, names, set.good)
		}
	}
	if _, _, err := p.Verify([]byte(ws[0].line(t, c.Text()))); err == nil || errors.Is(err, ErrQuorum) {
		t.Errorf("no note: %v", err)
	}
}

func TestParsePolicyRefusesMalformedFiles(t *testing.T) {
	keys := newLogKeys(t, origin)
	a, b := newWitness(t, "w.example/a"), newWitness(t, "w.example/b")
	start := fmt.Sprintf("log %s\nwitness a %s\nwitness b %s\n", keys.first, a.key, b.key)
	for name, rest := range map[string]string{
		"no quorum":              "",
		"two quorums":            "quorum a\nquorum b\n",
		"unknown quorum":         "quorum c\n",
		"quorum before its name": "quorum g\ngroup g any a b\n",
		"unknown member":         "group g any a c\nquorum g\n",
		"member twice":           "group g 2 a a\nquorum g\n",
		"member of two groups":   "group g any a\ngroup h any a b\nquorum h\n",
		"none as a member":       "group g any a none\nquorum g\n",
		"none defined":           "group none any a\nquorum none\n",
		"name taken":             "group a any b\nquorum a\n",
		"threshold 0":            "group g 0 a b\nquorum g\n",
		"threshold 3 of 2":       "group g 3 a b\nquorum g\n",
		"threshold 02":           "group g 02 a b\nquorum g\n",
		"empty group":            "group g any\nquorum g\n",
		"witness key twice":      fmt.Sprintf("witness c %s\nquorum a\n", a.key),
		"log key twice":          fmt.Sprintf("log %s\nquorum a\n", keys.first),
		"witness as log":         fmt.Sprintf("log %s\nquorum a\n", a.key),
		"log as witness":         fmt.Sprintf("witness c %s\nquorum a\n", keys.first),
		"carriage return":        "quorum a\r\n",
		"unknown keyword":        "monitor a\nquorum a\n",
		"comment behind":         "quorum a # and b\n",
	} {
		if _, err := ParsePolicy([]byte(start + rest)); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
	p, err := ParsePolicy([]byte("quorum none"))
	if err != nil || p.Demands() || !p.Met(nil) {
		t.Errorf("policy with quorum none: %v, want one that demands no cosignature", err)
	}
}

func TestMLDSACosignatureCounts(t *testing.T) {
	keys, c := newLogKeys(t, origin), checkpointOf(7)
	skey, vkey, err := formats.GenerateMLDSAKey("witness.example/pq")
	check(t, err)
	signer := of(formats.NewMLDSASigner(skey)).ok(t)
	p := of(ParsePolicy([]byte(fmt.Sprintf("log %s\nwitness pq %s\nquorum pq\n", keys.first, vkey)))).ok(t)
	signature := of(signer.Sign([]byte(c.Text()))).ok(t)
	signed := keys.sign(t, c)
	if _, _, err := p.Verify([]byte(signed)); !errors.Is(err, ErrQuorum) {
		t.Errorf("without the cosignature: %v, want ErrQuorum", err)
	}
	if _, names, err := p.Verify([]byte(signed + p.Witnesses[0].Key.Line(signature))); err != nil || len(names) != 1 {
		t.Errorf("cosigned with quorum none: %v, %v; want 1 witness and no error", names, err)
	}
}

func timed(t *testing.T, name, text string) (Key, func(time uint64) []byte) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	vkey := of(note.NewEd25519VerifierKey(name, public)).ok(t)
	vkey = of(formats.VKeyToCosignatureV1(vkey)).ok(t)
	key := of(ParseKey(vkey)).ok(t)
	return key, func(time uint64) []byte {
		signature := ed25519.Sign(private, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", time, text))
		return append(binary.BigEndian.AppendUint64(nil, time), signature...)
	}
}

func TestSignatureLinesNeedCanonicalBase64(t *testing.T) {
	w, c := newWitness(t, "w.example/a"), checkpointOf(9)
	line := w.line(t, c.Text())
	if !strings.HasSuffix(line, "=\n") || !IsSignatureLine(line) {
		t.Fatalf("%q has no base64 padding, so no spare bits to set", line)
	}
	last := strings.IndexByte(line, '=') - 1
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	spare := string(alphabet[strings.IndexByte(alphabet, line[last])+1])
	for name, loose := range map[string]string{
		"spare bits":      line[:last] + spare + line[last+1:],
		"carriage return": line[:last] + "\r" + line[last:],
		"at the end":      strings.TrimSuffix(line, "\n") + "\r\n",
	} {
		if lines, err := Cosignatures(c.Text(), loose, []Key{w.key}); err != nil || len(lines) != 0 {
			t.Errorf("cosignatures of a line with %s: %v, %v; want none and no error", name, lines, err)
		}
		if IsSignatureLine(loose) {
			t.Errorf("%s: accepted as a signature line, want it refused", name)
		}
	}
}

func TestWitnessNamesFollowSignedNote(t *testing.T) {
	for name, good := range map[string]bool{"https://w.example/": true, "/w": true, "wäh": true, strings.Repeat("w", 300): true, "w w": false, "w\u00a0w": false, "": false, "w\x01": false} {
		public, _, err := ed25519.GenerateKey(rand.Reader)
		check(t, err)
		key := append([]byte{TypeCosignature}, public...)
		id := sha256.Sum256(append([]byte(name+"\n"), key...))
		if _, err := ParseKey(fmt.Sprintf("%s+%x+%s", name, id[:4], encode64(key))); (err == nil) != good {
			t.Errorf("key name %.20q: %v, want accepted: %t", name, err, good)
		}
	}
}

func TestCosignaturesAreOfKnownKeysOnly(t *testing.T) {
	a, b, c := newWitness(t, "w.example/a"), newWitness(t, "w.example/b"), checkpointOf(9)
	lines, err := Cosignatures(c.Text(), a.line(t, c.Text())+b.line(t, c.Text()), []Key{a.key})
	if err != nil || len(lines) != 1 || lines[a.key.ID()] == "" {
		t.Errorf("cosignatures of one line by the key: %v, %v; want that line", lines, err)
	}
	more := "hello\n— w.example/other/ AAAAAAAA\n— " + a.key.Name() + " AAAA\n\n"
	if lines, err = Cosignatures(c.Text(), more+a.line(t, c.Text())+more, []Key{a.key}); err != nil || len(lines) != 1 {
		t.Errorf("cosignatures among other lines: %v, %v; want one line", lines, err)
	}
	zero, cosignedAt := timed(t, "w.example/zero", c.Text())
	if lines, err = Cosignatures(c.Text(), zero.Line(cosignedAt(1)), []Key{zero}); err != nil || len(lines) != 1 {
		t.Errorf("cosignature with the time 1: %v, %v; want one line", lines, err)
	}
	for name, answer := range map[string]string{
		"of another checkpoint": a.line(t, checkpointOf(8).Text()),
		"no line feed":          strings.TrimSuffix(a.line(t, c.Text()), "\n"),
		"empty":                 "",
		"at time 0":             zero.Line(cosignedAt(0)),
	} {
		if _, err := Cosignatures(c.Text(), answer, []Key{a.key, zero}); err == nil {
			t.Errorf("%s: accepted, want an error", name)
		}
	}
}

// These are the texts that the Python verifier refuses too, in test_bundles.py.
func TestNotesHaveBounds(t *testing.T) {
	t.Parallel()
	text := Checkpoint{Origin: "rows.example", Size: 1}.Text()
	line := func(n int) string { return "— o.example " + encode64(make([]byte, n)) + "\n" }
	note := text + "\n" + line(8)
	if _, err := ParseNote(note + strings.Repeat(line(8), 99)); err != nil {
		t.Errorf("a note of 100 lines: %v", err)
	}
	for what, wrong := range map[string]string{
		"101 lines":                     note + strings.Repeat(line(8), 100),
		"too many bytes":                note + line(200000),
		"an origin with a space":        strings.Replace(note, "rows.example", "rows example", 1),
		"an origin with a plus":         strings.Replace(note, "rows.example", "rows+example", 1),
		"an origin with a control":      strings.Replace(note, "rows.example", "rows\u0085example", 1),
		"a last line without line feed": note[:len(note)-1],
		"no signature line":             text + "\n",
		"a signature of no bytes":       text + "\n" + line(4),
	} {
		if c, err := ParseNote(wrong); err == nil {
			t.Errorf("%s: read as %+v, want an error", what, c)
		}
	}
}
