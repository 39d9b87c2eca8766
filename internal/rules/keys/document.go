package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// maxDocument is the maximum size of a key set document in bytes. MaxKeys keys fit into it.
const maxDocument = 1 << 20

const example = `{"keys":[{"pubkey":"es256:…","uri":"gcpkms://…","signs_from":0}, …]}`

// ParseDocument reads the document of a key set:
//
//	{"keys":[{"pubkey":"es256:…","uri":"gcpkms://…/1","signs_from":0},
//	         {"pubkey":"es256:…","uri":"gcpkms://…/2","signs_from":1795257295},
//	         {"pubkey":"es256:…","retired_at":1700000000,"tree_size":4711}]}
//
// A key with a uri begins to sign at the unix time signs_from. A key without a uri is retired. An unknown
// member is an error: if a misspelt tree_size were ignored, the key would not be closed. NewSet checks the keys.
func ParseDocument(document []byte) (List, error) {
	if len(document) > maxDocument {
		return nil, fmt.Errorf("the key set has %d bytes, more than the allowed %d: check that this is the right file", len(document), maxDocument)
	}
	object, err := canon.ParseObject(document)
	if err == nil {
		err = onlyKeys(object)
	}
	if err != nil {
		return nil, fmt.Errorf(`the key set cannot be parsed: %w; write %s`, err, example)
	}
	if list, ok := object["keys"].([]any); !ok || len(list) == 0 {
		return nil, errors.New(`the key set has no list "keys", or the list is empty: write ` + example)
	}
	return entries(object["keys"], "pubkey", "uri", "signs_from", "retired_at", "tree_size", "disowned")
}

// ParsePublished reads the answer of GET /v1/pubkeys or of GET /v1/status (SPEC 2.8), a JSON tree of
// package canon. Only GET /v1/pubkeys says what each key may sign. Key.Problem checks labels.
func ParsePublished(document any) (List, error) {
	members, ok := document.(map[string]any)
	if !ok {
		return nil, errors.New("the keys are not a JSON object: give the answer of GET /v1/pubkeys or GET /v1/status")
	}
	if _, set := members["keys"]; set {
		return published(members)
	}
	current, ok := members["pubkey"].(string)
	if !ok || current == "" {
		return nil, errors.New(`the keys have neither "keys" (GET /v1/pubkeys) nor "pubkey" (GET /v1/status)`)
	}
	legacy, ok := members["legacy_pubkeys"].([]any)
	if !ok || len(legacy) >= MaxKeys {
		return nil, fmt.Errorf("legacy_pubkeys is not a list of less than %d keys", MaxKeys)
	}
	list := Of(current)
	list[0].Development = members["dev_ephemeral_key"] == true
	for i, row := range legacy {
		label, ok := row.(string)
		if !ok || label == "" {
			return nil, fmt.Errorf("legacy_pubkeys[%d] is not a non-empty string", i)
		}
		list = append(list, Of(label)...)
	}
	return list, nil
}

func published(document map[string]any) (List, error) {
	list, err := entries(document["keys"], "pubkey", "state", "retired_at", "tree_size")
	if err == nil {
		err = onlyKeys(document)
	}
	if err != nil {
		return nil, err
	}
	labels := map[string]bool{}
	for i := range list {
		k := &list[i]
		switch {
		case k.Label == "":
			return nil, fmt.Errorf(`keys[%d] has no "pubkey"`, i)
		case !slices.Contains([]string{Current, Next, Retired}, k.State):
			return nil, fmt.Errorf("keys[%d] has the state %.40q, which is not one of current, next, retired", i, k.State)
		case k.State != Retired && (k.RetiredAt != nil || k.TreeSize != nil):
			return nil, fmt.Errorf(`keys[%d] is %s, but only a retired key may have "retired_at" or "tree_size"`, i, k.State)
		case labels[k.Label]:
			return nil, fmt.Errorf("keys[%d] repeats a key", i)
		}
		labels[k.Label] = true
		k.public, _ = parseLabel(k.Label)
	}
	if n := len(list.In(Current)); n != 1 {
		return nil, fmt.Errorf("there are %d current keys instead of one", n)
	}
	return list, nil
}

func onlyKeys(object map[string]any) error {
	m := canon.MembersOf(object, "")
	m.Only("keys")
	return m.Err()
}

func entries(v any, known ...string) (List, error) {
	rows, ok := v.([]any)
	if !ok {
		return nil, errors.New(`"keys" is not a list`)
	}
	if len(rows) > MaxKeys {
		return nil, errTooMany
	}
	list := make(List, len(rows))
	for i, row := range rows {
		object, ok := row.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("keys[%d] is %s: write the key set as %s", i, canon.Kind(row), example)
		}
		m := canon.MembersOf(object, fmt.Sprintf("keys[%d].", i))
		m.Only(known...)
		list[i] = entry(m, object)
		if err := m.Err(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func entry(m *canon.Members, object map[string]any) (key Key) {
	given := func(name string) bool { // a null is given, and is an error
		_, there := object[name]
		return there
	}
	for name, to := range map[string]*string{"pubkey": &key.Label, "uri": &key.URI, "state": &key.State} {
		if given(name) {
			*to = m.Text(name, "a string")
		}
	}
	for name, to := range map[string]**int64{"signs_from": &key.SignsFrom, "retired_at": &key.RetiredAt, "tree_size": &key.TreeSize} {
		if given(name) {
			n := m.Integer(name, "an integer of 0 or more, or leave the member out")
			if n < 0 {
				m.Fail("%s is %d: give an integer of 0 or more, or leave the member out", name, n)
			}
			*to = &n
		}
	}
	if given("disowned") {
		key.Disowned = m.Flag("disowned", "true or false, without quotes")
	}
	return key
}

// Document returns the set as a document for ParseDocument, in RFC 8785 form.
func (s *Set) Document() []byte { return encode(s.keys) }

// Digest returns 12 hex digits that identify the document.
func (s *Set) Digest() string {
	sum := sha256.Sum256(s.Document())
	return hex.EncodeToString(sum[:6])
}

// Published returns the body that GET /v1/pubkeys answers at the unix time now.
func (s *Set) Published(now int64) []byte {
	list := s.At(now)
	for i := range list {
		list[i].URI, list[i].SignsFrom, list[i].Disowned = "", nil, false
	}
	return encode(list)
}

func encode(list List) []byte {
	text, err := json.Marshal(map[string]List{"keys": list})
	if err != nil {
		panic(err) // not possible: strings, integers and booleans always encode
	}
	document, err := canon.Parse(text)
	if err != nil {
		panic(err)
	}
	return canon.Encode(document)
}
