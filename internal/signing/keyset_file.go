package signing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairpact/fairpact/internal/canon"
)

// maxKeySet bounds a key set's document; hundreds of keys fit.
const maxKeySet = 1 << 20

// ParseKeySet reads the document of a key set:
//
//	{"keys":[{"pubkey":"es256:…","state":"current"},
//	         {"pubkey":"es256:…","state":"next"},
//	         {"pubkey":"es256:…","state":"retired","retired_at":1795257295,"tree_size":4711}]}
//
// Exactly one key is current; a retired one may name when it retired and the
// size of the log from which on it holds no leaf. ed25519 keys are retired ones.
// It is read strictly, as a word that is misspelt would be a key that is not
// trusted or one that is never closed: an unknown member and a key that is listed
// twice are errors. Order has no meaning and is kept.
func ParseKeySet(document []byte) (*KeySet, error) {
	if len(document) > maxKeySet {
		return nil, fmt.Errorf("the key set has %d bytes, and %d are the most: it is another file", len(document), maxKeySet)
	}
	object, err := canon.ParseObject(document)
	if err != nil {
		return nil, fmt.Errorf(`the key set: %w; it is to be {"keys":[{"pubkey":"es256:…","state":"current"}, …]}`, err)
	}
	list, ok := object["keys"].([]any)
	if !ok || len(list) == 0 {
		return nil, errors.New(`the key set has no list "keys": write {"keys":[{"pubkey":"es256:…","state":"current"}, …]}`)
	}
	if err := only(object, "keys"); err != nil {
		return nil, fmt.Errorf("the key set %w", err)
	}
	k := &KeySet{}
	for i, entry := range list {
		key, err := parseMember(entry)
		switch {
		case err != nil:
			return nil, fmt.Errorf("keys[%d] %w", i, err)
		case k.has(key.PublicKey):
			return nil, fmt.Errorf("keys[%d] lists %s a second time: keep one entry, in the state that it is in now", i, key.PublicKey)
		case key.State == StateCurrent && k.current != "":
			return nil, fmt.Errorf("keys[%d] is a second current key, beside %s: exactly one signs; mark the other as next or retired", i, k.current)
		}
		if err := k.add(key); err != nil {
			return nil, fmt.Errorf("keys[%d].pubkey %.80q: %w", i, key.PublicKey, err)
		}
	}
	if k.current == "" {
		return nil, errors.New(`no key of the set is current: give the key that signs now "state":"current"`)
	}
	return k, nil
}

func parseMember(entry any) (Key, error) {
	object, ok := entry.(map[string]any)
	if !ok {
		return Key{}, errors.New(`is not an object: write {"pubkey":"es256:…","state":"current"}`)
	}
	if err := only(object, "pubkey", "state", "retired_at", "tree_size"); err != nil {
		return Key{}, err
	}
	var key Key
	key.PublicKey, _ = object["pubkey"].(string)
	key.State, _ = object["state"].(string)
	if key.PublicKey == "" {
		return Key{}, errors.New(`has no "pubkey": write the key's label, es256:HEX`)
	}
	switch key.State {
	case StateCurrent, StateNext:
		for _, name := range []string{"retired_at", "tree_size"} {
			if _, given := object[name]; given {
				return Key{}, fmt.Errorf("is %s and has %q: only a retired key has it", key.State, name)
			}
		}
		if strings.HasPrefix(key.PublicKey, schemeEd25519+":") {
			return Key{}, fmt.Errorf("is %s and an ed25519 key: nothing signs with one, it is to be retired", key.State)
		}
	case StateRetired:
	default:
		return Key{}, fmt.Errorf("has the state %.40q: use current, next or retired", key.State)
	}
	for name, to := range map[string]**int64{"retired_at": &key.RetiredAt, "tree_size": &key.TreeSize} {
		value, given := object[name]
		if !given {
			continue
		}
		n, ok := value.(int64)
		if !ok || n < 0 {
			return Key{}, fmt.Errorf("has %q of %.40q: write an integer of 0 or more (retired_at: unix seconds; tree_size: leaves), or leave it out", name, fmt.Sprint(value))
		}
		*to = &n
	}
	return key, nil
}

// only refuses members that have no meaning.
func only(object map[string]any, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("has the unknown member %.40q: its members are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Document is the set as ParseKeySet reads it, in its RFC 8785 form.
func (k *KeySet) Document() []byte {
	list := make([]any, len(k.keys))
	for i, key := range k.keys {
		entry := map[string]any{"pubkey": key.PublicKey, "state": key.State}
		if key.RetiredAt != nil {
			entry["retired_at"] = *key.RetiredAt
		}
		if key.TreeSize != nil {
			entry["tree_size"] = *key.TreeSize
		}
		list[i] = entry
	}
	return canon.Encode(map[string]any{"keys": list})
}
