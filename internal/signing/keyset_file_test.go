package signing

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newLabels gives the labels of n new keys and their files as signer URIs.
func newLabels(t *testing.T, n int) (labels, uris []string) {
	t.Helper()
	for range n {
		uri := "file://" + writeKey(t, newP256(t))
		labels, uris = append(labels, mustOpen(t, uri).PublicKey()), append(uris, uri)
	}
	return labels, uris
}

func TestParseKeySet(t *testing.T) {
	labels, uris := newLabels(t, 4)
	early := newFixture(t).keys.Legacy()[1] // an ed25519 one
	document := `{"keys":[
		{"pubkey":"` + labels[1] + `","state":"next"},
		{"pubkey":"` + labels[0] + `","state":"current"},
		{"pubkey":"` + labels[2] + `","state":"retired","retired_at":1795257295,"tree_size":4711},
		{"pubkey":"` + labels[3] + `","state":"retired"},
		{"pubkey":"` + early + `","state":"retired","retired_at":0}]}`
	k, err := ParseKeySet([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	if k.Current() != labels[0] || !slices.Equal(k.Legacy(), []string{labels[1], labels[2], labels[3], early}) {
		t.Errorf("current %s, legacy %v", k.Current(), k.Legacy())
	}
	// What is closed is accepted of old and of nothing new.
	if got := k.Accepted(); !slices.Equal(got, []string{labels[1], labels[0], labels[3], early}) {
		t.Errorf("accepted for something new: %v", got)
	}
	for i, want := range []map[int64]bool{
		{0: true, 1 << 40: true}, {0: true, 1 << 40: true},
		{0: true, 4710: true, 4711: false, 4712: false},
		{1 << 40: true}, {1 << 40: true},
	} {
		for index, may := range want {
			if k.Keys()[i].MayHold(index) != may {
				t.Errorf("keys[%d] may hold leaf %d: %v", i, index, !may)
			}
		}
	}
	digest := sha256.Sum256([]byte("a certificate"))
	for i, uri := range uris {
		signature, err := mustOpen(t, uri).Sign(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		if key, err := k.SignedBy(digest, signature); err != nil || key.PublicKey != labels[i] {
			t.Errorf("key %d: signed by %s, %v", i, key.PublicKey, err)
		}
		if key, err := k.SignerOf([]byte("a certificate"), signature); err != nil || key.PublicKey != labels[i] {
			t.Errorf("key %d: the message is signed by %s, %v", i, key.PublicKey, err)
		}
	}
	// The document is its own canonical form, and says the same.
	again, err := ParseKeySet(k.Document())
	if err != nil || string(again.Document()) != string(k.Document()) {
		t.Errorf("read again: %v\n%s", err, k.Document())
	}
	var given, written any
	if json.Unmarshal([]byte(document), &given) != nil || json.Unmarshal(k.Document(), &written) != nil {
		t.Fatal("not JSON")
	}
	if one, _ := json.Marshal(given); string(one) != string(k.Document()) {
		t.Errorf("the document is\n%s\nwant\n%s", k.Document(), one)
	}
	// So is that of the settings without a file.
	plain, err := NewKeySet(labels[0], labels[1:])
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseKeySet(plain.Document()); err != nil || !slices.Equal(again.Legacy(), labels[1:]) {
		t.Errorf("%v, of %s", err, plain.Document())
	}
}

func TestBadKeySets(t *testing.T) {
	labels, _ := newLabels(t, 2)
	early := newFixture(t).keys.Legacy()[1]
	current := `{"pubkey":"` + labels[0] + `","state":"current"}`
	other := func(rest string) string {
		return `{"keys":[` + current + `,{"pubkey":"` + labels[1] + `",` + rest + `}]}`
	}
	for name, c := range map[string]struct{ document, says string }{
		"empty":                 {``, "not valid JSON"},
		"a list":                {`[` + current + `]`, "must be a JSON object"},
		"something after":       {`{"keys":[` + current + `]} x`, "follows the end"},
		"no keys":               {`{}`, `no list "keys"`},
		"no key":                {`{"keys":[]}`, `no list "keys"`},
		"keys is an object":     {`{"keys":{}}`, `no list "keys"`},
		"unknown member":        {`{"keys":[` + current + `],"comment":""}`, `unknown member "comment"`},
		"member twice":          {`{"keys":[` + current + `],"keys":[]}`, "twice"},
		"no object":             {`{"keys":["` + labels[0] + `"]}`, "keys[0] is not an object"},
		"no pubkey":             {`{"keys":[{"state":"current"}]}`, `keys[0] has no "pubkey"`},
		"bad pubkey":            {`{"keys":[{"pubkey":"es256:00","state":"current"}]}`, `keys[0].pubkey "es256:00"`},
		"no state":              {`{"keys":[{"pubkey":"` + labels[0] + `"}]}`, "use current, next or retired"},
		"unknown state":         {other(`"state":"old"`), `keys[1] has the state "old"`},
		"state of another case": {other(`"state":"Retired"`), "use current, next or retired"},
		"misspelt tree_size":    {other(`"state":"retired","treesize":3`), `unknown member "treesize"`},
		"two current":           {other(`"state":"current"`), "keys[1] is a second current key"},
		"none current":          {`{"keys":[{"pubkey":"` + labels[0] + `","state":"next"}]}`, "no key of the set is current"},
		"listed twice":          {`{"keys":[` + current + `,{"pubkey":"` + labels[0] + `","state":"retired"}]}`, "a second time"},
		"next with a date":      {other(`"state":"next","retired_at":1`), "only a retired key"},
		"next that is closed":   {other(`"state":"next","tree_size":1`), "only a retired key"},
		"negative tree_size":    {other(`"state":"retired","tree_size":-1`), `"tree_size" of "-1"`},
		"tree_size as text":     {other(`"state":"retired","tree_size":"1"`), "write an integer"},
		"tree_size null":        {other(`"state":"retired","tree_size":null`), "or leave it out"},
		"retired_at with part":  {other(`"state":"retired","retired_at":1.5`), "only integers"},
		"ed25519 is current":    {`{"keys":[{"pubkey":"` + early + `","state":"current"}]}`, "nothing signs with one"},
		"ed25519 is next":       {`{"keys":[` + current + `,{"pubkey":"` + early + `","state":"next"}]}`, "nothing signs with one"},
		"another file":          {strings.Repeat(" ", maxKeySet) + "x", "another file"},
	} {
		if _, err := ParseKeySet([]byte(c.document)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want it to say %q", name, err, c.says)
		}
	}
}

func TestSettings(t *testing.T) {
	labels, uris := newLabels(t, 3)
	file := func(document string) string {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set := file(`{"keys":[{"pubkey":"` + labels[0] + `","state":"current"},{"pubkey":"` + labels[1] + `","state":"next"}]}`)
	for name, c := range map[string]struct {
		settings Settings
		says     string // empty: it opens
	}{
		"key alone":             {Settings{SigningKey: uris[0]}, ""},
		"published key":         {Settings{SigningKey: uris[0], PublicKey: labels[0], LegacyKeys: labels[1:]}, ""},
		"file":                  {Settings{SigningKey: uris[0], KeySetFile: set}, ""},
		"no key":                {Settings{KeySetFile: set}, "FAIRPACT_SIGNING_KEY is not set"},
		"file and public key":   {Settings{SigningKey: uris[0], KeySetFile: set, PublicKey: labels[0]}, "unset the others"},
		"file and legacy keys":  {Settings{SigningKey: uris[0], KeySetFile: set, LegacyKeys: labels[1:]}, "unset the others"},
		"no such file":          {Settings{SigningKey: uris[0], KeySetFile: set + "x"}, "FAIRPACT_KEY_SET_FILE: "},
		"not a key set":         {Settings{SigningKey: uris[0], KeySetFile: file("{}")}, "FAIRPACT_KEY_SET_FILE: "},
		"a next key":            {Settings{SigningKey: uris[1], KeySetFile: set}, "is published as a next key: make it the current one"},
		"a stranger":            {Settings{SigningKey: uris[2], KeySetFile: set}, "is in no set of published keys"},
		"another published key": {Settings{SigningKey: uris[0], PublicKey: labels[1]}, "FAIRPACT_SIGNING_KEY is not the key of FAIRPACT_PUBLIC_KEY"},
		"bad legacy key":        {Settings{SigningKey: uris[0], LegacyKeys: []string{"es256:00"}}, "FAIRPACT_LEGACY_KEYS"},
		"no such key":           {Settings{SigningKey: uris[0] + "x"}, "FAIRPACT_SIGNING_KEY: "},
	} {
		signer, keys, err := c.settings.Open(t.Context())
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v; want it to say %q", name, err, c.says)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case keys.CheckSigner(signer) != nil:
			t.Errorf("%s: the signer is not the current key", name)
		}
	}
}

// A set that verifiers would not read is not taken, whichever way it is given.
func TestMostKeys(t *testing.T) {
	t.Parallel()
	var labels []string
	for x := 0; len(labels) <= MaxKeys; x++ { // half of all x are on the curve
		if label := fmt.Sprintf("es256:02%064x", x); mayAdd(label) {
			labels = append(labels, label)
		}
	}
	for count, taken := range map[int]bool{MaxKeys: true, MaxKeys + 1: false} {
		set, err := NewKeySet(labels[0], labels[1:count])
		if (err == nil) != taken {
			t.Fatalf("%d keys: %v", count, err)
		}
		rows := make([]string, count)
		for i, label := range labels[:count] {
			rows[i] = fmt.Sprintf(`{"pubkey":%q,"state":"retired"}`, label)
		}
		rows[0] = fmt.Sprintf(`{"pubkey":%q,"state":"current"}`, labels[0])
		read, err := ParseKeySet([]byte(`{"keys":[` + strings.Join(rows, ",") + `]}`))
		if (err == nil) != taken {
			t.Fatalf("a document of %d keys: %v", count, err)
		}
		if taken && (len(set.Keys()) != count || len(read.Keys()) != count) {
			t.Errorf("%d and %d keys of %d", len(set.Keys()), len(read.Keys()), count)
		}
	}
}

func mayAdd(label string) bool {
	_, err := NewVerifyingKey(label)
	return err == nil
}
