package keys

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxKeys is the maximum number of keys in a set. It bounds the time of a verification.
const MaxKeys = 1000

var errTooMany = fmt.Errorf("the key set has more than %d keys, and verifiers refuse such a set: remove retired keys that signed nothing", MaxKeys)

// Set holds the keys of a deployment. The keys come from configuration, because anyone who can write to a
// database table could add a key there. A Set is immutable.
type Set struct {
	keys   List
	signs  []int // indexes in `keys` of the keys that have a SignsFrom, earliest first; never empty
	margin int64 // in seconds
}

// NewSet checks a list of keys. The clocks of processes and clients may differ by the margin, in seconds.
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

// At returns all keys as published at the unix time now, in the order of the document.
func (s *Set) At(now int64) List {
	list := make(List, len(s.keys))
	for i := range list {
		list[i] = s.at(i, now)
	}
	return list
}

// SignerOf returns the key that signed a message, if it is accepted now. For errors, see List.SignerOf.
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

// Accepted returns the key with this label if signatures by it verify now, or else ErrNotVerified.
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

// These are the rules of key rotation. Each key that signs has a time, signs_from. Of the keys
// whose signs_from has come, the key with the latest signs_from signs. Before the first
// signs_from, the first key signs.
//
// One margin before its signs_from, a key becomes accepted: from then on,
// signatures by the key verify. At the same time the key is published as current, and the
// previous key as retired. A retired key stays accepted. So two processes accept each other's
// signatures if their clocks differ by at most the margin. One exception: if Key.TreeSize of a
// retired key is set, certificates of that key are valid only at leaf indexes below TreeSize.

// Margin is how far the clocks of processes and clients may differ, in seconds.
const Margin = 300

// signer returns the index in s.signs of the key that signs at the unix time t.
func (s *Set) signer(t int64) int {
	position := 0
	for p, i := range s.signs {
		if *s.keys[i].SignsFrom <= t {
			position = p
		}
	}
	return position
}

// at returns s.keys[i] with the state that is published at the unix time t.
func (s *Set) at(i int, t int64) Key {
	key, current := s.keys[i], s.signer(t+s.margin)
	switch position := slices.Index(s.signs, i); {
	case position < 0:
		key.State = Retired
	case position < current:
		key.State, key.RetiredAt = Retired, s.successor(i)
	case position == current:
		key.State = Current
	default:
		key.State = Next
	}
	return key
}

// successor returns the unix time at which the next key after s.keys[i] begins to sign, or nil.
func (s *Set) successor(i int) *int64 {
	position := slices.Index(s.signs, i)
	if position < 0 || position+1 == len(s.signs) {
		return nil
	}
	return s.keys[s.signs[position+1]].SignsFrom
}

// Signs returns the key that signs at the unix time now.
func (s *Set) Signs(now int64) Key { return s.at(s.signs[s.signer(now)], now) }

// Status returns the label of the key that signs at the unix time now, and the labels of the other accepted
// keys: the retired ones, and within one margin before its signs_from the key that signs next, because a
// process whose clock is ahead signs with it.
func (s *Set) Status(now int64) (signs string, others []string) {
	signs, others = s.Signs(now).Label, []string{}
	for _, key := range s.At(now) {
		if key.State != Next && key.Label != signs {
			others = append(others, key.Label)
		}
	}
	return signs, others
}

// Due returns the keys that have begun to sign, earliest first. The last one signs now.
func (s *Set) Due(now int64) List { return s.signing(0, s.signer(now)+1, now) }

// Later returns the key that signs now and the keys that begin later, earliest first.
func (s *Set) Later(now int64) List { return s.signing(s.signer(now), len(s.signs), now) }

func (s *Set) signing(from, to int, now int64) (list List) {
	for _, i := range s.signs[from:to] {
		list = append(list, s.at(i, now))
	}
	return list
}

// CheckClock returns an error if the two unix times differ by more than the margin.
func (s *Set) CheckClock(now, database int64) error {
	ahead := now - database
	if ahead > s.margin || -ahead > s.margin {
		return fmt.Errorf("the clocks of this process and of the database differ by %d s (process minus database), and at most %d s are allowed: synchronize both clocks by NTP", ahead, s.margin)
	}
	return nil
}

// Rotate returns a copy of the set in which the labelled key begins to sign at the unix time signsFrom: it
// adds the key, or replaces the signs_from and URI of a key that is not accepted yet. It also retires the
// keys that no process signs with any more (see settled). signsFrom is at least two margins after now.
func (s *Set) Rotate(label, uri string, signsFrom, now int64) (*Set, error) {
	soonest := now + 2*s.margin
	if signsFrom < soonest {
		return nil, fmt.Errorf("the key would sign in %d s, which leaves too little time to roll the key set out: choose at least %d s from now", signsFrom-now, soonest-now)
	}
	next := s.settled(now)
	for i, key := range next {
		switch {
		case key.Label == label && (key.SignsFrom == nil || *key.SignsFrom <= now):
			return nil, fmt.Errorf("%s is or was the signing key and cannot be rotated in again: make a new key", label)
		case key.SignsFrom == nil || *key.SignsFrom <= now:
		case *key.SignsFrom-s.margin <= now:
			return nil, fmt.Errorf("%s signs in %d s and is already accepted, so its time can no longer change: wait until it signs", key.Label, *key.SignsFrom-now)
		case key.Label != label:
			return nil, fmt.Errorf("%s already waits to sign in %d s, and only one key can wait: wait until it signs, then rotate again", key.Label, *key.SignsFrom-now)
		default:
			next[i].SignsFrom, next[i].URI = &signsFrom, uri
			return NewSet(next, s.margin)
		}
	}
	return NewSet(append(next, Key{Label: label, URI: uri, SignsFrom: &signsFrom}), s.margin)
}

// RotateNow is for a current key that is stolen or lost: the labelled key begins to sign immediately. The
// keys that processes still sign with are retired and closed at treeSize.
func (s *Set) RotateNow(label, uri string, treeSize, now int64) (*Set, error) {
	next := slices.DeleteFunc(s.settled(now), func(key Key) bool {
		return key.Label == label && key.SignsFrom != nil && *key.SignsFrom > now
	})
	for i, key := range next {
		if key.Label == label {
			return nil, fmt.Errorf("%s is or was the signing key and cannot be rotated in again: make a new key", label)
		}
		if key.SignsFrom != nil && *key.SignsFrom <= now {
			next[i].SignsFrom, next[i].URI, next[i].RetiredAt, next[i].TreeSize = nil, "", &now, &treeSize
		}
	}
	return NewSet(append(next, Key{Label: label, URI: uri, SignsFrom: &now}), s.margin)
}

// settled returns a copy of the keys, in which it retires the keys that no process signs with
// any more. It retires a key one margin after the next key begins to sign, because a process
// whose clock is behind still signs with the old key until then.
func (s *Set) settled(now int64) []Key {
	keys := slices.Clone(s.keys)
	for i := range keys {
		if next := s.successor(i); next != nil && *next+s.margin <= now {
			keys[i].SignsFrom, keys[i].URI, keys[i].RetiredAt = nil, "", next
		}
	}
	return keys
}

// Close returns a copy of the set in which the retired key with this label is closed at treeSize. `disown`,
// for a stolen key, sets Key.Disowned.
func (s *Set) Close(label string, treeSize int64, disown bool, now int64) (*Set, error) {
	i := s.keys.find(label)
	if i < 0 {
		return nil, fmt.Errorf("%.80q is not in the set: name a key of the set", label)
	}
	next := s.settled(now)
	switch key := next[i]; {
	case key.SignsFrom != nil && s.successor(i) != nil:
		return nil, fmt.Errorf("%s cannot be closed yet, because a process may sign with it: close it in %d s", label, *s.successor(i)+s.margin-now)
	case key.SignsFrom != nil:
		return nil, fmt.Errorf("%s cannot be closed: it signs now or later; rotate to another key first", label)
	case key.TreeSize != nil && *key.TreeSize != treeSize:
		return nil, fmt.Errorf("%s is already closed at tree size %d: give that size, because another size would change the verdict on certificates that were already verified", label, *key.TreeSize)
	}
	next[i].TreeSize, next[i].Disowned = &treeSize, disown || next[i].Disowned
	return NewSet(next, s.margin)
}
