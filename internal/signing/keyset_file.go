package signing

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// maxKeySet is the maximum size of a key set document in bytes. MaxKeys keys fit into it.
const maxKeySet = 1 << 20

const keySetExample = `{"keys":[{"pubkey":"es256:…","uri":"gcpkms://…","signs_from":0}, …]}`

// ParseKeySet reads the document of a key set:
//
//	{"keys":[{"pubkey":"es256:…","uri":"gcpkms://…/1","signs_from":0},
//	         {"pubkey":"es256:…","uri":"gcpkms://…/2","signs_from":1795257295},
//	         {"pubkey":"es256:…","retired_at":1700000000,"tree_size":4711}]}
//
// A key with a uri begins to sign at the unix time signs_from. A key without a uri is
// retired. [Key] describes the members. An unknown member is an error: if a misspelt
// tree_size were ignored, the key would not be closed. The KeySet keeps the order of the
// keys, which has no meaning.
func ParseKeySet(document []byte) (*KeySet, error) {
	if len(document) > maxKeySet {
		return nil, fmt.Errorf("the key set has %d bytes, more than the allowed %d: check that this is the right file", len(document), maxKeySet)
	}
	object, err := canon.ParseObject(document)
	if err != nil {
		return nil, fmt.Errorf(`the key set cannot be parsed: %w; write %s`, err, keySetExample)
	}
	list, ok := object["keys"].([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New(`the key set has no list "keys", or the list is empty: write ` + keySetExample)
	}
	if err := only(object, "keys"); err != nil {
		return nil, fmt.Errorf("the key set %w", err)
	}
	k, _ := newKeySet()
	for i, entry := range list {
		key, err := parseMember(entry)
		if err != nil {
			return nil, fmt.Errorf("keys[%d] %w", i, err)
		}
		if k.find(key.PublicKey) >= 0 {
			return nil, fmt.Errorf("keys[%d] lists %s a second time: keep one entry", i, key.PublicKey)
		}
		if err := k.add(key); err != nil {
			return nil, fmt.Errorf("keys[%d].pubkey %.80q: %w", i, key.PublicKey, err)
		}
	}
	if len(k.signs) == 0 {
		return nil, errors.New(`no key of the set signs: add "uri" and "signs_from" to one key`)
	}
	for p, i := range k.signs[1:] {
		if *k.keys[k.signs[p]].SignsFrom == *k.keys[i].SignsFrom {
			return nil, fmt.Errorf("%s and %s have the same signs_from: give one key another signs_from", k.keys[k.signs[p]].PublicKey, k.keys[i].PublicKey)
		}
	}
	return k, nil
}

func parseMember(entry any) (key Key, err error) {
	object, ok := entry.(map[string]any)
	if !ok {
		return key, errors.New("is not an object: write the key set as " + keySetExample)
	}
	if err := only(object, "pubkey", "uri", "signs_from", "retired_at", "tree_size", "disowned"); err != nil {
		return key, err
	}
	for name, to := range map[string]*string{"pubkey": &key.PublicKey, "uri": &key.URI} {
		if value, given := object[name]; given {
			if *to, ok = value.(string); !ok {
				return key, fmt.Errorf("has a %q that is not a string: write a string", name)
			}
		}
	}
	for name, to := range map[string]**int64{"signs_from": &key.SignsFrom, "retired_at": &key.RetiredAt, "tree_size": &key.TreeSize} {
		value, given := object[name]
		if !given {
			continue
		}
		n, ok := value.(int64)
		if !ok || n < 0 {
			return key, fmt.Errorf("has %q with the value %.40q: write an integer of 0 or more (for signs_from and retired_at: unix seconds; for tree_size: a number of leaves), or leave the member out", name, fmt.Sprint(value))
		}
		*to = &n
	}
	disowned, given := object["disowned"]
	if key.Disowned, ok = disowned.(bool); given && !ok {
		return key, errors.New(`has a "disowned" that is not a boolean: write true or false, without quotes`)
	}
	switch {
	case key.PublicKey == "":
		return key, errors.New(`has no "pubkey": write the key's label, es256:HEX`)
	case (key.URI == "") != (key.SignsFrom == nil):
		return key, errors.New(`has only one of "uri" and "signs_from": write both for a key that signs, or neither for a retired key`)
	case key.URI != "" && (key.RetiredAt != nil || key.TreeSize != nil):
		return key, errors.New(`has "uri" and also a member of a retired key: if the key signs, remove "retired_at" and "tree_size"; if the key is retired, remove "uri" and "signs_from"`)
	case key.Disowned && key.TreeSize == nil:
		return key, errors.New(`is disowned but has no "tree_size": add the tree size that closes the key`)
	case key.URI != "" && strings.HasPrefix(key.PublicKey, schemeEd25519+":"):
		return key, errors.New(`is an ed25519 key with a URI, but ed25519 keys only verify: remove "uri" and "signs_from"`)
	case strings.Contains(key.URI, "pin-value"):
		return key, errors.New("has a PIN in its URI, and every reader of the document would see the PIN: use pin-source instead of pin-value")
	}
	return key, nil
}

func only(object map[string]any, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("has the unknown member %.40q (known members: %s): correct the name, or remove the member", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Document returns the key set as a document for ParseKeySet, in RFC 8785 form.
func (k *KeySet) Document() []byte { return encodeKeys(k.keys) }

// Digest returns 12 hex digits that identify the document.
func (k *KeySet) Digest() string {
	sum := sha256.Sum256(k.Document())
	return hex.EncodeToString(sum[:6])
}

// Published returns the body that GET /v1/pubkeys answers now: each key with State, but
// without URI, SignsFrom and Disowned.
func (k *KeySet) Published() []byte {
	keys := k.Keys()
	for i := range keys {
		keys[i].URI, keys[i].SignsFrom, keys[i].Disowned = "", nil, false
	}
	return encodeKeys(keys)
}

func encodeKeys(keys []Key) []byte {
	text, err := json.Marshal(map[string][]Key{"keys": keys})
	if err != nil {
		panic(err) // not possible: strings, integers and booleans always encode
	}
	document, err := canon.Parse(text)
	if err != nil {
		panic(err)
	}
	return canon.Encode(document)
}
