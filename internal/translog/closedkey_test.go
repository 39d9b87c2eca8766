package translog

import (
	"errors"
	"testing"
)

// A head that is larger than what its key was closed at is not answered, nor is
// a proof that leads to it, as every verifier refuses it. The log goes on: the
// next head is by the current key, and is answered.
func TestHeadOfAClosedKeyIsNotAnswered(t *testing.T) {
	t.Parallel()
	r := newRing(t, 1, 2, 3)
	l := r.open(t, openPool(t, r.url), nil)
	for n := range 2 {
		r.mustAppend(t, l, n)
	}
	l.Close()
	for key, answered := range map[string]bool{"closed at 1": false, "closed at 2": true, "closed at 3": true, "open": true} {
		head := root{2, refRoot(data(0, 2))}.head("")
		signature, err := r.by[key].Sign(t.Context(), head.Digest())
		check(t, err)
		asOwner(t, r.deployment, "UPDATE translog.tree_heads SET signature = '"+signature+"' WHERE tree_size = 2")
		l := r.open(t, openPool(t, r.url), nil)
		got, err := l.TreeHead(t.Context())
		proved := prove(t, l, 0)
		two := int64(2)
		sized, at := l.Consistency(t.Context(), 1, &two)
		switch {
		case answered && (err != nil || got.Signature != signature || proved != nil || at != nil || l.ProofFailures() != 0):
			t.Errorf("%s: %v, %v, %v, %d contradictions; want its head", key, err, proved, at, l.ProofFailures())
		case !answered && (!errors.Is(err, ErrInconsistent) || !errors.Is(proved, ErrInconsistent) || l.ProofFailures() != 2):
			t.Errorf("%s: %+v, %v, %v, %d contradictions; want ErrInconsistent twice", key, got, err, proved, l.ProofFailures())
		case !answered && !errors.Is(at, errNoHead):
			t.Errorf("%s: a proof to its head by size: %+v, %v", key, sized, at)
		}
		if err := l.Ready(t.Context()); err != nil {
			t.Errorf("%s: not ready for the append that leads to another head: %v", key, err)
		}
		l.Close()
	}
	signature, err := r.by["closed at 1"].Sign(t.Context(), root{2, refRoot(data(0, 2))}.head("").Digest())
	check(t, err)
	asOwner(t, r.deployment, "UPDATE translog.tree_heads SET signature = '"+signature+"' WHERE tree_size = 2")
	l = r.open(t, r.pool, nil)
	r.mustAppend(t, l, 2)
	if head, err := l.TreeHead(t.Context()); err != nil || head.TreeSize != 3 {
		t.Errorf("after one more leaf: %+v, %v", head, err)
	}
	if err := prove(t, l, 0); err != nil {
		t.Errorf("after one more leaf: %v", err)
	}
}
