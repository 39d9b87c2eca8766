package keys

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// parse returns the set in a document.
func parse(document []byte) (*Set, error) {
	list, err := ParseDocument(document)
	if err != nil {
		return nil, err
	}
	return NewSet(list, 5)
}

func document(entries ...string) []byte {
	return []byte(`{"keys":[` + strings.Join(entries, ",") + `]}`)
}

func TestParseKeySet(t *testing.T) {
	t.Parallel()
	labels, early := points(4), newFixture(t).keys[2].Label
	next := []string{newFixture(t).keys[0].Label}
	entries := []string{
		`{"pubkey":"` + next[0] + `","signs_from":9000000000,"uri":"dev://1"}`,
		`{"pubkey":"` + labels[0] + `","signs_from":0,"uri":"dev://0"}`,
		`{"disowned":true,"pubkey":"` + labels[2] + `","retired_at":1795257295,"tree_size":4711}`,
		`{"pubkey":"` + labels[3] + `"}`,
		`{"pubkey":"` + early + `","retired_at":0}`,
	}
	k, err := parse(document(entries...))
	if err != nil {
		t.Fatal(err)
	}
	const now = 1_800_000_000
	list := k.At(now)
	if list.Current() != labels[0] || !slices.Equal(list.In(Retired).Labels(), []string{labels[2], labels[3], early}) {
		t.Errorf("current %s and retired %v, want the second key and the last three", list.Current(), list.In(Retired).Labels())
	}
	if string(k.Document()) != string(document(entries...)) {
		t.Errorf("the document is\n%s\nwant\n%s", k.Document(), document(entries...))
	}
	if again, err := parse(k.Document()); err != nil || string(again.Document()) != string(k.Document()) || again.Digest() != k.Digest() {
		t.Errorf("the document parsed again: %v, want the same document:\n%s", err, k.Document())
	}
	want := string(document(
		`{"pubkey":"`+next[0]+`","state":"next"}`,
		`{"pubkey":"`+labels[0]+`","state":"current"}`,
		`{"pubkey":"`+labels[2]+`","retired_at":1795257295,"state":"retired","tree_size":4711}`,
		`{"pubkey":"`+labels[3]+`","state":"retired"}`,
		`{"pubkey":"`+early+`","retired_at":0,"state":"retired"}`))
	if string(k.Published(now)) != want {
		t.Errorf("published is\n%s\nwant\n%s", k.Published(now), want)
	}
	if plain, err := OneSigner(labels[0], "dev://0", labels[1:], 5); err != nil || plain.Digest() == k.Digest() || !slices.Equal(plain.At(0).In(Retired).Labels(), labels[1:]) {
		t.Errorf("OneSigner: %v, want the retired keys and another digest", err)
	}
}

// A Set accepts signatures by current and retired keys, and not by the next key.
func TestNextKeyIsNotAccepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set, err := parse(document(
		`{"pubkey":"`+points(1)[0]+`","uri":"dev://0","signs_from":0}`,
		`{"pubkey":"`+f.keys[0].Label+`","uri":"dev://1","signs_from":1000}`,
		`{"pubkey":"`+f.keys[1].Label+`"}`, `{"pubkey":"`+f.keys[2].Label+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(f.message)
	for now, accepted := range map[int64]bool{994: false, 995: true} {
		_, byDigest := set.SignedBy(digest, f.es, now)
		_, byMessage := set.SignerOf(f.message, f.es, now)
		for _, err := range []error{byDigest, byMessage} {
			if accepted != (err == nil) || !accepted && !errors.Is(err, ErrNotVerified) {
				t.Errorf("at %d: %v, want accepted: %t", now, err, accepted)
			}
		}
	}
	for i, signature := range map[int]string{1: f.other, 2: f.edward} {
		if key, err := set.SignerOf(f.message, signature, 0); err != nil || key.Label != f.keys[i].Label || key.State != Retired {
			t.Errorf("retired key %d: signed by %s, %v; want that key", i, key.Label, err)
		}
	}
}

// Throughout a rotation, verifiers read what GET /v1/pubkeys publishes with the same states as the
// signer. They agree on which leaves each key may sign, whether or not the rule asks for the state,
// because only a retired key has a TreeSize.
func TestVerifiersReadWhatIsPublished(t *testing.T) {
	t.Parallel()
	labels := points(3)
	set, err := parse(document(
		`{"pubkey":"`+labels[0]+`","uri":"dev://0","signs_from":50}`, `{"pubkey":"`+labels[1]+`","uri":"dev://1","signs_from":100}`,
		`{"pubkey":"`+labels[2]+`","retired_at":5,"tree_size":7}`))
	if err != nil {
		t.Fatal(err)
	}
	for now := int64(0); now < 200; now++ {
		tree, err := canon.Parse(set.Published(now))
		if err != nil {
			t.Fatal(err)
		}
		list, err := ParsePublished(tree)
		if err != nil {
			t.Fatalf("at %d: verifiers refuse %s: %v", now, set.Published(now), err)
		}
		for i, mine := range set.At(now) {
			theirs := list[i]
			if theirs.Label != mine.Label || theirs.State != mine.State {
				t.Errorf("at %d: published as %+v, want %+v", now, theirs, mine)
			}
			for leaf := range int64(10) {
				asksState := theirs.State != Retired || theirs.TreeSize == nil || leaf < *theirs.TreeSize
				if mine.MaySignLeaf(leaf) != theirs.MaySignLeaf(leaf) || theirs.MaySignLeaf(leaf) != asksState || asksState != (i != 2 || leaf < 7) {
					t.Errorf("at %d: the signer and the verifier differ about leaf %d of key %d", now, leaf, i)
				}
			}
		}
	}
	size := int64(7)
	for _, state := range []string{"", Next, Current, Retired} {
		if k := (Key{Label: labels[0], State: state, TreeSize: &size}); !k.MaySignLeaf(6) || k.MaySignLeaf(7) {
			t.Errorf("a key with the state %q: want its tree size to bind", state)
		}
	}
}

func TestBadKeySets(t *testing.T) {
	t.Parallel()
	labels, early := points(2), newFixture(t).keys[2].Label
	signs := `{"pubkey":"` + labels[0] + `","uri":"dev://k","signs_from":0}`
	other := func(rest string) string { return string(document(signs, `{"pubkey":"`+labels[1]+`",`+rest+`}`)) }
	for name, c := range map[string]struct{ document, says string }{
		"empty":                   {``, "not valid JSON"},
		"something after":         {string(document(signs)) + ` x`, "follows the end"},
		"no keys":                 {`{}`, `no list "keys"`},
		"unknown member":          {`{"keys":[` + signs + `],"comment":""}`, `"comment" is an unknown member`},
		"member twice":            {`{"keys":[` + signs + `],"keys":[]}`, "twice"},
		"no object":               {`{"keys":["` + labels[0] + `"]}`, "keys[0] is a string"},
		"no pubkey":               {`{"keys":[{"uri":"dev://k","signs_from":0}]}`, `keys[0] has no "pubkey"`},
		"bad pubkey":              {`{"keys":[{"pubkey":"es256:00"}]}`, `keys[0].pubkey "es256:00"`},
		"pubkey is a number":      {`{"keys":[{"pubkey":1}]}`, "keys[0].pubkey is an integer"},
		"a published list":        {other(`"state":"retired"`), `keys[1]."state" is an unknown member`},
		"none signs":              {`{"keys":[{"pubkey":"` + labels[0] + `"}]}`, "no key of the set signs"},
		"two from one second":     {other(`"uri":"dev://l","signs_from":0`), "the same signs_from"},
		"listed twice":            {`{"keys":[` + signs + `,{"pubkey":"` + labels[0] + `"}]}`, "a second time"},
		"a URI and no time":       {other(`"uri":"dev://l"`), `only one of "uri" and "signs_from"`},
		"signs and retired":       {other(`"uri":"dev://l","signs_from":1,"retired_at":1`), "a member of a retired key"},
		"negative tree_size":      {other(`"tree_size":-1`), "tree_size is -1"},
		"tree_size null":          {other(`"tree_size":null`), "or leave the member out"},
		"retired_at with part":    {other(`"retired_at":1.5`), "only integers"},
		"disowned is a word":      {other(`"tree_size":1,"disowned":"yes"`), "keys[1].disowned is a string"},
		"disowned and not closed": {other(`"disowned":true`), `has no "tree_size"`},
		"ed25519 signs":           {string(document(`{"pubkey":"` + early + `","uri":"dev://k","signs_from":0}`)), "ed25519 keys only verify"},
		"a PIN":                   {other(`"uri":"pkcs11:token=t?pin-value=1234","signs_from":1`), "use pin-source"},
		"another file":            {strings.Repeat(" ", maxDocument) + "x", "the right file"},
	} {
		if _, err := parse([]byte(c.document)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want it to say %q", name, err, c.says)
		}
	}
}

func TestMaxKeys(t *testing.T) {
	t.Parallel()
	labels := points(MaxKeys + 1)
	for count, accepted := range map[int]bool{MaxKeys: true, MaxKeys + 1: false} {
		if _, err := OneSigner(labels[0], "dev://k", labels[1:count], 5); (err == nil) != accepted {
			t.Errorf("a set of %d keys: %v, want accepted: %t", count, err, accepted)
		}
		rows := []string{fmt.Sprintf(`{"pubkey":%q,"uri":"dev://k","signs_from":0}`, labels[0])}
		for _, label := range labels[1:count] {
			rows = append(rows, fmt.Sprintf(`{"pubkey":%q}`, label))
		}
		if read, err := parse(document(rows...)); (err == nil) != accepted || accepted && len(read.keys) != count {
			t.Errorf("a document of %d keys: %v, want accepted: %t", count, err, accepted)
		}
	}
}
