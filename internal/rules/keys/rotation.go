package keys

import (
	"fmt"
	"slices"
)

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

// successor returns the unix time at which the next key after s.keys[i] begins to sign. It
// returns nil if no key follows, or if the document lists s.keys[i] as retired.
func (s *Set) successor(i int) *int64 {
	position := slices.Index(s.signs, i)
	if position < 0 || position+1 == len(s.signs) {
		return nil
	}
	return s.keys[s.signs[position+1]].SignsFrom
}

// Signs returns the key that signs at the unix time now.
func (s *Set) Signs(now int64) Key { return s.at(s.signs[s.signer(now)], now) }

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

// CheckClock compares the caller's unix time with the one that the database's clock shows. It
// returns an error if they differ by more than the margin.
func (s *Set) CheckClock(now, database int64) error {
	ahead := now - database
	if ahead > s.margin || -ahead > s.margin {
		return fmt.Errorf("the clocks of this process and of the database differ by %d s (process minus database), and at most %d s are allowed: synchronize both clocks by NTP", ahead, s.margin)
	}
	return nil
}

// Rotate returns a copy of the set in which the labelled key begins to sign at the unix time
// signsFrom. Rotate adds the key, or replaces the signs_from and URI of a key whose signs_from is
// in the future. It also retires the keys that no process signs with any more (see settled).
//
// Rotate returns an error if signsFrom is less than two margins after now, if the key
// signs or has signed before, or if signatures by the key already verify. It also returns an
// error if another key's signs_from is in the future.
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

// RotateNow is for a current key that is stolen or lost. It returns a copy of the set in
// which the labelled key begins to sign immediately. The keys that processes still sign with are
// retired and closed at treeSize (see Key.TreeSize).
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

// Close returns a copy of the set in which the retired key with this label is closed at treeSize
// (see Key.TreeSize). `disown`, for a stolen key, sets Key.Disowned: certificates that the key
// signed may then have leaf indexes of treeSize or more, and verifiers reject them.
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
