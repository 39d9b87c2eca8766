package translog

import (
	"context"
	"errors"
	"testing"
	"time"
)

// If the signer fails, appends that wait for a signed head fail at once. Later appends fail at
// once even while the signer hangs. An append of an entry that a published head covers succeeds.
// Once the signer works again, the new leaves are published.
func TestAppendsDoNotWaitForAnUnreachableKey(t *testing.T) {
	t.Parallel()
	why := errors.New("the key is disabled")
	d := newDeployment(t)
	gate := newGate(d)
	signer := &failingSigner{Signer: gate, err: why}
	l := d.open(t, d.pool, signer)
	gate.pass <- struct{}{} // lets the signer sign the head of size 0
	<-gate.entered
	go func() { gate.pass <- struct{}{} }()
	d.mustAppend(t, l, 0)
	<-gate.entered

	refused := func(n int, err error) {
		t.Helper()
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("entry %d: %v, want ErrUnavailable, not a timeout", n, err)
		}
	}
	signer.down.Store(true)
	_, err := l.Append(within(t, time.Minute), entryOf(1), d.sign(t, entryOf(1)), Tag(entryOf(1)))
	if refused(1, err); !errors.Is(err, why) {
		t.Errorf("the refused append: %v, want the signer's reason", err)
	}
	if again := d.mustAppend(t, l, 0); again.LeafIndex != 0 || again.TreeSize != 1 {
		t.Errorf("a leaf that the old head covers: %+v, want leaf 0 under size 1", again)
	}
	signer.down.Store(false)
	<-gate.entered // the next attempt to publish a head has begun, and the signer hangs
	client, _, _ := ports(t, l)
	_, err = client.Append(within(t, time.Minute), entryOf(2), d.sign(t, entryOf(2)), Tag(entryOf(2)))
	refused(2, err)
	if head, err := l.TreeHead(t.Context()); err != nil || head.TreeSize != 1 || committedSize(t, d) != 3 {
		t.Errorf("head %+v (%v) of %d leaves, want the old head and 3 leaves", head, err, committedSize(t, d))
	}
	if err := prove(t, l, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a leaf that is not published: %v, want ErrNotFound", err)
	}
	close(gate.pass)
	waitForHead(t, l, 3)
	for n := range 3 {
		if again := d.mustAppend(t, l, n); again.LeafIndex != int64(n) {
			t.Errorf("entry %d has index %d, want its number", n, again.LeafIndex)
		}
	}
	requireNoContradiction(t, l)
}
