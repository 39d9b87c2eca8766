package signing

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairpact/fairpact/internal/platform/crash"
)

// These are the rules of key rotation. Each key that signs has a time, signs_from. Of the keys
// whose signs_from has come, the key with the latest signs_from signs. Before the first
// signs_from, the first key signs.
//
// One margin (see Margin) before its signs_from, a key becomes accepted: from then on,
// signatures by the key verify. At the same time the key is published as current, and the
// previous key as retired. A retired key stays accepted. So two processes accept each other's
// signatures if their clocks differ by at most the margin. One exception: if Key.TreeSize of a
// retired key is set, certificates of that key are valid only at leaf indexes below TreeSize.

// Margin returns how far the clocks of processes and clients may differ: 5 minutes, or less
// in tests of key rotation.
func Margin() time.Duration {
	if d, err := time.ParseDuration(crash.Setting("FAIRPACT_TEST_KEY_MARGIN")); err == nil {
		return d
	}
	return 5 * time.Minute
}

// signer returns the index in k.signs of the key that signs at the unix time t.
func (k *KeySet) signer(t int64) int {
	position := 0
	for p, i := range k.signs {
		if *k.keys[i].SignsFrom <= t {
			position = p
		}
	}
	return position
}

// at returns k.keys[i] with the state that is published at the unix time t.
func (k *KeySet) at(i int, t int64) Key {
	key, current := k.keys[i], k.signer(t+k.margin)
	switch position := slices.Index(k.signs, i); {
	case position < 0:
		key.State = StateRetired
	case position < current:
		key.State, key.RetiredAt = StateRetired, k.successor(i)
	case position == current:
		key.State = StateCurrent
	default:
		key.State = StateNext
	}
	return key
}

// successor returns the unix time at which the next key after k.keys[i] begins to sign. It
// returns nil if no key follows, or if the document lists k.keys[i] as retired.
func (k *KeySet) successor(i int) *int64 {
	position := slices.Index(k.signs, i)
	if position < 0 || position+1 == len(k.signs) {
		return nil
	}
	return k.keys[k.signs[position+1]].SignsFrom
}

// Signs returns the key that signs at t.
func (k *KeySet) Signs(t time.Time) Key {
	return k.at(k.signs[k.signer(t.Unix())], t.Unix())
}

// Keys returns all keys as published now, in the order of the document. Exactly one is
// current.
func (k *KeySet) Keys() []Key {
	keys, now := make([]Key, len(k.keys)), k.now().Unix()
	for i := range keys {
		keys[i] = k.at(i, now)
	}
	return keys
}

// Current returns the label of the key that is published as current now.
func (k *KeySet) Current() string {
	return k.keys[k.signs[k.signer(k.now().Unix()+k.margin)]].PublicKey
}

// Legacy returns the labels of the keys that are retired now (SPEC 2.8,
// legacy_pubkeys). The slice is never nil.
func (k *KeySet) Legacy() []string {
	labels := []string{}
	for _, key := range k.Keys() {
		if key.State == StateRetired {
			labels = append(labels, key.PublicKey)
		}
	}
	return labels
}

// Due returns the labels of the keys that have begun to sign, earliest first. The last one
// signs now.
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

// CheckClock compares this process's clock with the unix time that the database's clock
// shows. It returns an error if they differ by more than the margin.
func (k *KeySet) CheckClock(database int64) error {
	ahead := k.now().Unix() - database
	if ahead > k.margin || -ahead > k.margin {
		return fmt.Errorf("the clocks of this process and of the database differ by %d s (process minus database), and at most %d s are allowed: synchronize both clocks by NTP", ahead, k.margin)
	}
	return nil
}

// Rotate returns a copy of the set in which the labelled key begins to sign at the unix time
// signsFrom. Rotate adds the key, or replaces the signs_from and URI of a key whose signs_from is
// in the future. It also retires the keys that no process signs with any more (see settled).
//
// Rotate returns an error if signsFrom is less than two margins (see Margin) after now, if the key
// signs or has signed before, or if signatures by the key already verify. It also returns an
// error if another key's signs_from is in the future.
func (k *KeySet) Rotate(label, uri string, signsFrom, now int64) (*KeySet, error) {
	soonest := now + 2*k.margin
	if signsFrom < soonest {
		return nil, fmt.Errorf("signs_from %s leaves too little time to roll the key set out: choose %s or later", formatTime(signsFrom), formatTime(soonest))
	}
	next := k.settled(now)
	for i, key := range next {
		switch {
		case key.PublicKey == label && (key.SignsFrom == nil || *key.SignsFrom <= now):
			return nil, fmt.Errorf("%s is or was the signing key and cannot be rotated in again: make a new key", label)
		case key.SignsFrom == nil || *key.SignsFrom <= now:
		case *key.SignsFrom-k.margin <= now:
			return nil, fmt.Errorf("%s signs from %s on and is already accepted, so its time can no longer change: wait until it signs", key.PublicKey, formatTime(*key.SignsFrom))
		case key.PublicKey != label:
			return nil, fmt.Errorf("%s already waits to sign from %s on, and only one key can wait: wait until it signs, then rotate again", key.PublicKey, formatTime(*key.SignsFrom))
		default:
			next[i].SignsFrom, next[i].URI = &signsFrom, uri
			return newKeySet(next...)
		}
	}
	return newKeySet(append(next, Key{PublicKey: label, URI: uri, SignsFrom: &signsFrom})...)
}

// RotateNow is for a current key that is stolen or lost. It returns a copy of the set in
// which the labelled key begins to sign immediately. The keys that processes still sign with are
// retired and closed at treeSize (see Key.TreeSize).
func (k *KeySet) RotateNow(label, uri string, treeSize, now int64) (*KeySet, error) {
	next := slices.DeleteFunc(k.settled(now), func(key Key) bool {
		return key.PublicKey == label && key.SignsFrom != nil && *key.SignsFrom > now
	})
	for i, key := range next {
		if key.PublicKey == label {
			return nil, fmt.Errorf("%s is or was the signing key and cannot be rotated in again: make a new key", label)
		}
		if key.SignsFrom != nil && *key.SignsFrom <= now {
			next[i].SignsFrom, next[i].URI, next[i].RetiredAt, next[i].TreeSize = nil, "", &now, &treeSize
		}
	}
	return newKeySet(append(next, Key{PublicKey: label, URI: uri, SignsFrom: &now})...)
}

// settled returns a copy of the keys, in which it retires the keys that no process signs with
// any more. It retires a key one margin after the next key begins to sign, because a process
// whose clock is behind still signs with the old key until then.
func (k *KeySet) settled(now int64) []Key {
	keys := slices.Clone(k.keys)
	for i := range keys {
		if next := k.successor(i); next != nil && *next+k.margin <= now {
			keys[i].SignsFrom, keys[i].URI, keys[i].RetiredAt = nil, "", next
		}
	}
	return keys
}

// Close returns a copy of the set in which the retired key with this label is closed at treeSize
// (see Key.TreeSize). `disown`, for a stolen key, sets Key.Disowned: certificates that the key
// signed may then have leaf indexes of treeSize or more, and verifiers reject them.
func (k *KeySet) Close(label string, treeSize int64, disown bool, now int64) (*KeySet, error) {
	i := k.find(label)
	if i < 0 {
		return nil, fmt.Errorf("%.80q is not in the set: name a key of the set", label)
	}
	next := k.settled(now)
	switch key := next[i]; {
	case key.SignsFrom != nil && k.successor(i) != nil:
		return nil, fmt.Errorf("%s cannot be closed: it signs until %s; close it %d s after that", label, formatTime(*k.successor(i)), k.margin)
	case key.SignsFrom != nil:
		return nil, fmt.Errorf("%s cannot be closed: it signs now or later; rotate to another key first", label)
	case key.TreeSize != nil && *key.TreeSize != treeSize:
		return nil, fmt.Errorf("%s is already closed at tree size %d: give that size, because another size would change the verdict on certificates that were already verified", label, *key.TreeSize)
	}
	next[i].TreeSize, next[i].Disowned = &treeSize, disown || next[i].Disowned
	return newKeySet(next...)
}
