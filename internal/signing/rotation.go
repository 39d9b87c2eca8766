package signing

import (
	"fmt"
	"slices"
	"time"
)

// The rules of a rotation. Each key that signs names the second from which it
// does; at any time the latest one whose second has come signs, and before the
// first of them the first. From the margin before that second on, the key is
// accepted and published as the current one, and the key before it as a retired
// one, which is accepted for ever. So where two clocks are at most the margin
// apart, what one process signs is accepted by the other and covered by its
// status.

// signer returns the place, among the keys that sign, of the one that signs at t,
// unix seconds.
func (k *KeySet) signer(t int64) int {
	place := 0
	for p, i := range k.signs {
		if *k.keys[i].SignsFrom <= t {
			place = p
		}
	}
	return place
}

// at returns the key at i as it is published at t, unix seconds.
func (k *KeySet) at(i int, t int64) Key {
	key, current := k.keys[i], k.signer(t+k.margin)
	switch place := slices.Index(k.signs, i); {
	case place < 0:
		key.State = StateRetired
	case place < current:
		key.State, key.RetiredAt = StateRetired, k.successor(i)
	case place == current:
		key.State = StateCurrent
	default:
		key.State = StateNext
	}
	return key
}

// successor returns when the key after that at i begins to sign, nil if none does.
func (k *KeySet) successor(i int) *int64 {
	place := slices.Index(k.signs, i)
	if place < 0 || place+1 == len(k.signs) {
		return nil
	}
	return k.keys[k.signs[place+1]].SignsFrom
}

// Signs returns the key that signs at t.
func (k *KeySet) Signs(t time.Time) Key {
	return k.at(k.signs[k.signer(t.Unix())], t.Unix())
}

// At returns all keys as they are published at t, in the order of the document.
// Exactly one is current.
func (k *KeySet) At(t time.Time) []Key {
	keys := make([]Key, len(k.keys))
	for i := range keys {
		keys[i] = k.at(i, t.Unix())
	}
	return keys
}

// Keys returns all keys as they are published now.
func (k *KeySet) Keys() []Key { return k.At(k.now()) }

// Current returns the label of the key that is published as the current one now.
func (k *KeySet) Current() string {
	return k.keys[k.signs[k.signer(k.now().Unix()+k.margin)]].PublicKey
}

// Legacy returns the labels of the keys that are retired now; never nil.
// SPEC 2.8: legacy_pubkeys are retired keys still accepted by verification.
func (k *KeySet) Legacy() []string {
	labels := []string{}
	for _, key := range k.Keys() {
		if key.State == StateRetired {
			labels = append(labels, key.PublicKey)
		}
	}
	return labels
}

// Due returns the labels of the keys whose time to sign has come, the one that
// signs among them.
func (k *KeySet) Due() []string {
	var labels []string
	for _, i := range k.signs[:k.signer(k.now().Unix())+1] {
		labels = append(labels, k.keys[i].PublicKey)
	}
	return labels
}

// Accepts reports whether signatures by the labelled key verify now.
func (k *KeySet) Accepts(label string) bool {
	i := k.find(label)
	return i >= 0 && k.at(i, k.now().Unix()).State != StateNext
}

// CheckClock returns an error where this process's clock is further than the
// margin from the database's, unix seconds.
func (k *KeySet) CheckClock(database int64) error {
	ahead := k.now().Unix() - database
	if ahead > k.margin || -ahead > k.margin {
		return fmt.Errorf("the clock of this process is %d s ahead of the database's, and %d s either way are allowed: set the clock (NTP)", ahead, k.margin)
	}
	return nil
}

// Rotate returns the set in which the key signs from a second on. A key of the
// set that has yet to sign is postponed or brought forward; another is added.
// Keys that are out of use give up their URIs.
func (k *KeySet) Rotate(label, uri string, from, now int64) (*KeySet, error) {
	soonest := now + 2*k.margin
	if from < soonest {
		return nil, fmt.Errorf("the key is to sign from %s on, and that leaves too little time to roll the document out: take %s or later", clock(from), clock(soonest))
	}
	next := k.settled(now)
	for i, key := range next {
		switch {
		case key.PublicKey == label && (key.SignsFrom == nil || *key.SignsFrom <= now):
			return nil, fmt.Errorf("%s has signed already: a key is used once; make a new one", label)
		case key.SignsFrom == nil || *key.SignsFrom <= now:
		case *key.SignsFrom-k.margin <= now:
			return nil, fmt.Errorf("%s signs from %s on and is accepted already: it is too late to change that; wait until it signs", key.PublicKey, clock(*key.SignsFrom))
		case key.PublicKey != label:
			return nil, fmt.Errorf("%s is to sign from %s on: postpone that key, or wait until it signs", key.PublicKey, clock(*key.SignsFrom))
		default:
			next[i].SignsFrom, next[i].URI = &from, uri
			return newKeySet(next...)
		}
	}
	return newKeySet(append(next, Key{PublicKey: label, URI: uri, SignsFrom: &from})...)
}

// RotateNow returns the set in which the key signs at once, for a stolen or lost
// key: all keys that signed until now are closed at the tree size.
func (k *KeySet) RotateNow(label, uri string, treeSize, now int64) (*KeySet, error) {
	next := slices.DeleteFunc(k.settled(now), func(key Key) bool {
		return key.PublicKey == label && key.SignsFrom != nil && *key.SignsFrom > now
	})
	for i, key := range next {
		if key.PublicKey == label {
			return nil, fmt.Errorf("%s has signed already: a key is used once; make a new one", label)
		}
		if key.SignsFrom != nil && *key.SignsFrom <= now {
			next[i].SignsFrom, next[i].URI, next[i].RetiredAt, next[i].TreeSize = nil, "", &now, &treeSize
		}
	}
	return newKeySet(append(next, Key{PublicKey: label, URI: uri, SignsFrom: &now})...)
}

// settled returns the keys in which those that no clock within the margin signs
// with are retired for good.
func (k *KeySet) settled(now int64) []Key {
	keys := slices.Clone(k.keys)
	for i := range keys {
		if next := k.successor(i); next != nil && *next+k.margin <= now {
			keys[i].SignsFrom, keys[i].URI, keys[i].RetiredAt = nil, "", next
		}
	}
	return keys
}

// Close returns the set in which a retired key is closed at the tree size.
func (k *KeySet) Close(label string, treeSize int64, disown bool, now int64) (*KeySet, error) {
	i := k.find(label)
	if i < 0 {
		return nil, fmt.Errorf("%.80q is not in the set: name one of its keys", label)
	}
	next := k.settled(now)
	switch key := next[i]; {
	case key.SignsFrom != nil && k.successor(i) != nil:
		return nil, fmt.Errorf("only a key that signs nowhere any more can be closed: %s stops at %s; close it %d s after that", label, clock(*k.successor(i)), k.margin)
	case key.SignsFrom != nil:
		return nil, fmt.Errorf("only a key that signs nowhere any more can be closed: %s signs now or later; rotate to another key first", label)
	case key.TreeSize != nil && *key.TreeSize != treeSize:
		return nil, fmt.Errorf("%s is closed at tree size %d: another size would change the verdict on certificates that were judged before", label, *key.TreeSize)
	}
	next[i].TreeSize, next[i].Disowned = &treeSize, disown || next[i].Disowned
	return newKeySet(next...)
}
