package signing

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func newLabels(t *testing.T, n int) (labels, uris []string) {
	t.Helper()
	for range n {
		path := t.TempDir() + "/key.pem"
		labels, uris = append(labels, mustOpen(t, "dev://"+path).PublicKey()), append(uris, "file://"+path)
	}
	return labels, uris
}

func document(entries ...string) []byte {
	return []byte(`{"keys":[` + strings.Join(entries, ",") + `]}`)
}

func TestParseKeySet(t *testing.T) {
	labels, uris := newLabels(t, 4)
	early := newFixture(t).keys.Legacy()[1] // the ed25519 key
	text := document(
		`{"pubkey":"`+labels[1]+`","uri":"`+uris[1]+`","signs_from":9000000000}`,
		`{"pubkey":"`+labels[0]+`","uri":"`+uris[0]+`","signs_from":0}`,
		`{"pubkey":"`+labels[2]+`","retired_at":1795257295,"tree_size":4711,"disowned":true}`,
		`{"pubkey":"`+labels[3]+`"}`,
		`{"pubkey":"`+early+`","retired_at":0}`)
	k, err := ParseKeySet(text)
	if err != nil {
		t.Fatal(err)
	}
	if k.Current() != labels[0] || !slices.Equal(k.Legacy(), []string{labels[2], labels[3], early}) {
		t.Errorf("current %s and legacy %v, want the first key and the retired ones", k.Current(), k.Legacy())
	}
	for i, want := range []map[int64]bool{
		{0: true, 1 << 40: true}, {0: true, 1 << 40: true},
		{0: true, 4710: true, 4711: false, 4712: false},
		{1 << 40: true}, {1 << 40: true},
	} {
		for index, may := range want {
			if k.Keys()[i].MaySignLeaf(index) != may {
				t.Errorf("keys[%d].MaySignLeaf(%d) = %v, want the opposite", i, index, !may)
			}
		}
	}
	digest := sha256.Sum256([]byte("a certificate"))
	for i, uri := range uris {
		signature, err := mustOpen(t, uri).Sign(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		if key, err := k.SignerOf([]byte("a certificate"), signature); i == 1 && !errors.Is(err, ErrNotVerified) || i != 1 && (err != nil || key.PublicKey != labels[i]) {
			t.Errorf("key %d: signed by %s, %v; want that key, or ErrNotVerified for the next key", i, key.PublicKey, err)
		}
	}
	again, err := ParseKeySet(k.Document())
	if err != nil || string(again.Document()) != string(k.Document()) || again.Digest() != k.Digest() {
		t.Errorf("the document parsed again: %v, want the same document:\n%s", err, k.Document())
	}
	var given any
	if err := json.Unmarshal(text, &given); err != nil {
		t.Fatal(err)
	}
	if one, _ := json.Marshal(given); string(one) != string(k.Document()) {
		t.Errorf("the document is\n%s\nwant\n%s", k.Document(), one)
	}
	want := string(document(
		`{"pubkey":"`+labels[1]+`","state":"next"}`,
		`{"pubkey":"`+labels[0]+`","state":"current"}`,
		`{"pubkey":"`+labels[2]+`","retired_at":1795257295,"state":"retired","tree_size":4711}`,
		`{"pubkey":"`+labels[3]+`","state":"retired"}`,
		`{"pubkey":"`+early+`","retired_at":0,"state":"retired"}`))
	if string(k.Published()) != want {
		t.Errorf("published is\n%s\nwant\n%s", k.Published(), want)
	}
	if plain, err := NewKeySet(labels[0], labels[1:]); err != nil || plain.Digest() == k.Digest() || !slices.Equal(plain.Legacy(), labels[1:]) {
		t.Errorf("NewKeySet: %v, document %s; want the legacy keys and another digest", err, plain.Document())
	}
}

func TestBadKeySets(t *testing.T) {
	labels, _ := newLabels(t, 2)
	early := newFixture(t).keys.Legacy()[1]
	signs := `{"pubkey":"` + labels[0] + `","uri":"dev://k","signs_from":0}`
	other := func(rest string) string { return string(document(signs, `{"pubkey":"`+labels[1]+`",`+rest+`}`)) }
	for name, c := range map[string]struct{ document, says string }{
		"empty":                   {``, "not valid JSON"},
		"something after":         {string(document(signs)) + ` x`, "follows the end"},
		"no keys":                 {`{}`, `no list "keys"`},
		"unknown member":          {`{"keys":[` + signs + `],"comment":""}`, `unknown member "comment"`},
		"member twice":            {`{"keys":[` + signs + `],"keys":[]}`, "twice"},
		"no object":               {`{"keys":["` + labels[0] + `"]}`, "keys[0] is not an object"},
		"no pubkey":               {`{"keys":[{"uri":"dev://k","signs_from":0}]}`, `keys[0] has no "pubkey"`},
		"bad pubkey":              {`{"keys":[{"pubkey":"es256:00"}]}`, `keys[0].pubkey "es256:00"`},
		"pubkey is a number":      {`{"keys":[{"pubkey":1}]}`, "not a string"},
		"none signs":              {`{"keys":[{"pubkey":"` + labels[0] + `"}]}`, "no key of the set signs"},
		"two from one second":     {other(`"uri":"dev://l","signs_from":0`), "the same signs_from"},
		"listed twice":            {`{"keys":[` + signs + `,{"pubkey":"` + labels[0] + `"}]}`, "a second time"},
		"a URI and no time":       {other(`"uri":"dev://l"`), `only one of "uri" and "signs_from"`},
		"signs and retired":       {other(`"uri":"dev://l","signs_from":1,"retired_at":1`), "a member of a retired key"},
		"negative tree_size":      {other(`"tree_size":-1`), `"tree_size" with the value "-1"`},
		"tree_size null":          {other(`"tree_size":null`), "or leave the member out"},
		"retired_at with part":    {other(`"retired_at":1.5`), "only integers"},
		"disowned is a word":      {other(`"tree_size":1,"disowned":"yes"`), "not a boolean"},
		"disowned and not closed": {other(`"disowned":true`), `has no "tree_size"`},
		"ed25519 signs":           {string(document(`{"pubkey":"` + early + `","uri":"dev://k","signs_from":0}`)), "ed25519 keys only verify"},
		"a PIN":                   {other(`"uri":"pkcs11:token=t?pin-value=1234","signs_from":1`), "use pin-source"},
		"another file":            {strings.Repeat(" ", maxKeySet) + "x", "the right file"},
	} {
		if _, err := ParseKeySet([]byte(c.document)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want it to say %q", name, err, c.says)
		}
	}
}

func TestSettings(t *testing.T) {
	labels, uris := newLabels(t, 2)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set := func(label, uri string) string {
		return file(string(document(`{"pubkey":"` + label + `","uri":"` + uri + `","signs_from":0}`)))
	}
	good, held := set(labels[0], uris[0]), mustOpen(t, uris[0])
	for name, c := range map[string]struct {
		settings Settings
		says     []string // parts of the error; nil: Open succeeds
	}{
		"key alone":             {Settings{SigningKey: uris[0]}, nil},
		"published key":         {Settings{SigningKey: uris[0], PublicKey: labels[0], LegacyKeys: labels[1:]}, nil},
		"file":                  {Settings{KeySetFile: good}, nil},
		"nothing":               {Settings{}, []string{"neither FAIRPACT_KEY_SET_FILE nor FAIRPACT_SIGNING_KEY is set"}},
		"file and key":          {Settings{SigningKey: uris[0], KeySetFile: good}, []string{"unset the others"}},
		"file and public key":   {Settings{KeySetFile: good, PublicKey: labels[0]}, []string{"unset the others"}},
		"file and legacy keys":  {Settings{KeySetFile: good, LegacyKeys: labels[1:]}, []string{"unset the others"}},
		"no such file":          {Settings{KeySetFile: good + "x"}, []string{"FAIRPACT_KEY_SET_FILE: "}},
		"not a key set":         {Settings{KeySetFile: file("{}")}, []string{"FAIRPACT_KEY_SET_FILE: "}},
		"the URI of another":    {Settings{KeySetFile: set(labels[0], uris[1])}, []string{"holds another key, " + labels[1], held.Custody(), labels[0], "correct "}},
		"no key at the URI":     {Settings{KeySetFile: set(labels[0], uris[0]+"x")}, []string{"the key that signs now"}},
		"another published key": {Settings{SigningKey: uris[0], PublicKey: labels[1]}, []string{"FAIRPACT_SIGNING_KEY is not the key of FAIRPACT_PUBLIC_KEY", held.Custody(), labels[0], labels[1], "correct "}},
		"bad legacy key":        {Settings{SigningKey: uris[0], LegacyKeys: []string{"es256:00"}}, []string{"FAIRPACT_LEGACY_KEYS"}},
		"no such key":           {Settings{SigningKey: uris[0] + "x"}, []string{"FAIRPACT_SIGNING_KEY: "}},
	} {
		t.Run(name, func(t *testing.T) {
			ring, keys, err := c.settings.Open(t.Context(), slog.New(slog.DiscardHandler))
			switch {
			case len(c.says) > 0:
				for _, part := range c.says {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("open: %v, want %q in the error", err, part)
					}
				}
			case err != nil:
				t.Error(err)
			default:
				defer ring.Close()
				signature, err := ring.Sign(t.Context(), sha256.Sum256(nil))
				if err != nil || keys.Verify(nil, signature) != nil || ring.Custody() == "" {
					t.Errorf("signature %q, %v; want one that verifies and a custody", signature, err)
				}
			}
		})
	}
}

func TestMaxKeys(t *testing.T) {
	t.Parallel()
	labels := points(MaxKeys + 1)
	for count, accepted := range map[int]bool{MaxKeys: true, MaxKeys + 1: false} {
		if _, err := NewKeySet(labels[0], labels[1:count]); (err == nil) != accepted {
			t.Errorf("a set of %d keys: %v, want accepted: %t", count, err, accepted)
		}
		rows := []string{fmt.Sprintf(`{"pubkey":%q,"uri":"dev://k","signs_from":0}`, labels[0])}
		for _, label := range labels[1:count] {
			rows = append(rows, fmt.Sprintf(`{"pubkey":%q}`, label))
		}
		if read, err := ParseKeySet(document(rows...)); (err == nil) != accepted || accepted && len(read.Keys()) != count {
			t.Errorf("a document of %d keys: %v, want accepted: %t", count, err, accepted)
		}
	}
}
