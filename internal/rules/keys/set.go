package keys

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxKeys is the maximum number of keys in a set. Verifiers refuse a longer list, which bounds the
// time of a verification.
const MaxKeys = 1000

var errTooMany = fmt.Errorf("the key set has more than %d keys, and verifiers refuse such a set: remove retired keys that signed nothing", MaxKeys)

// Set holds the keys of a deployment and the time from which each key signs. The keys come
// from configuration and never from a database table, because anyone who can write to a
// table could add a key. A Set is immutable. rotation.go defines which key signs when.
type Set struct {
	keys   List
	signs  []int // indexes in `keys` of the keys that have a SignsFrom, earliest first; never empty
	margin int64 // in seconds
}

// NewSet checks a list of keys and returns it as a set. The clocks of processes and clients may
// differ by the margin, in seconds.
func NewSet(list List, margin int64) (*Set, error) {
	if len(list) > MaxKeys {
		return nil, errTooMany
	}
	s := &Set{keys: slices.Clone(list), margin: margin}
	for i := range s.keys {
		key := &s.keys[i]
		if problem := misconfigured(*key); problem != "" {
			return nil, fmt.Errorf("keys[%d] %s", i, problem)
		}
		if s.keys.find(key.Label) < i {
			return nil, fmt.Errorf("keys[%d] lists %s a second time: keep one entry", i, key.Label)
		}
		var err error
		if key.public, err = key.parsed(); err != nil {
			return nil, fmt.Errorf("keys[%d].pubkey %.80q: %w", i, key.Label, err)
		}
		if key.SignsFrom != nil {
			s.signs = append(s.signs, i)
		}
	}
	if len(s.signs) == 0 {
		return nil, errors.New(`no key of the set signs: add "uri" and "signs_from" to one key`)
	}
	slices.SortFunc(s.signs, func(a, b int) int { return cmp.Compare(*s.keys[a].SignsFrom, *s.keys[b].SignsFrom) })
	for p, i := range s.signs[1:] {
		if before := s.keys[s.signs[p]]; *before.SignsFrom == *s.keys[i].SignsFrom {
			return nil, fmt.Errorf("%s and %s have the same signs_from: give one key another signs_from", before.Label, s.keys[i].Label)
		}
	}
	return s, nil
}

// misconfigured says what is wrong with an entry of a key set document.
func misconfigured(key Key) string {
	switch {
	case key.Label == "":
		return `has no "pubkey": write the key's label, es256:HEX`
	case (key.URI == "") != (key.SignsFrom == nil):
		return `has only one of "uri" and "signs_from": write both for a key that signs, or neither for a retired key`
	case key.URI != "" && (key.RetiredAt != nil || key.TreeSize != nil):
		return `has "uri" and also a member of a retired key: if the key signs, remove "retired_at" and "tree_size"; if the key is retired, remove "uri" and "signs_from"`
	case key.Disowned && key.TreeSize == nil:
		return `is disowned but has no "tree_size": add the tree size that closes the key`
	case key.URI != "" && strings.HasPrefix(key.Label, schemeEd25519+":"):
		return `is an ed25519 key with a URI, but ed25519 keys only verify: remove "uri" and "signs_from"`
	case strings.Contains(key.URI, "pin-value"):
		return "has a PIN in its URI, and every reader of the document would see the PIN: use pin-source instead of pin-value"
	}
	return ""
}

// OneSigner returns a set in which one key signs, and the other keys are retired.
func OneSigner(label, uri string, retired []string, margin int64) (*Set, error) {
	return NewSet(append(List{{Label: label, URI: uri, SignsFrom: new(int64)}}, Of(retired...)...), margin)
}

// At returns all keys as published at the unix time now, in the order of the document. Exactly one
// is current.
func (s *Set) At(now int64) List {
	list := make(List, len(s.keys))
	for i := range list {
		list[i] = s.at(i, now)
	}
	return list
}

// SignerOf returns the key that signed a message and that is accepted now. The error wraps
// ErrMalformed or ErrNotVerified.
func (s *Set) SignerOf(message []byte, signature string, now int64) (Key, error) {
	key, err := s.keys.SignerOf(message, signature)
	if err != nil {
		return Key{}, err
	}
	return s.Accepted(key.Label, now)
}

// SignedBy returns the key that signed a digest (see List.SignedBy) and that is accepted now.
func (s *Set) SignedBy(digest [32]byte, signature string, now int64) (Key, error) {
	key, err := s.keys.SignedBy(digest, signature)
	if err != nil {
		return Key{}, err
	}
	return s.Accepted(key.Label, now)
}

// Accepted returns the key with this label if signatures by it verify now. Otherwise the error
// wraps ErrNotVerified.
func (s *Set) Accepted(label string, now int64) (Key, error) {
	i := s.keys.find(label)
	if i < 0 {
		return Key{}, ErrNotVerified
	}
	key := s.at(i, now)
	if key.State == Next {
		return Key{}, fmt.Errorf("%w: the signature is by %s, but this key signs only from the unix time %d on (now %d)", ErrNotVerified, label, *key.SignsFrom, now)
	}
	return key, nil
}
