package translog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

// awaySigner is a key whose provider is out of reach, unless the test answers a call with
// true.
type awaySigner struct {
	Signer
	asked  chan struct{}
	answer chan bool // whether the provider is reachable for the call
}

func (a *awaySigner) Sign(ctx context.Context, digest [32]byte) (string, error) {
	select {
	case a.asked <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case there := <-a.answer:
		if there {
			return a.Signer.Sign(ctx, digest)
		}
		return "", fmt.Errorf("sign: %w: not asked, as it failed again and again", signing.ErrUnavailable)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// The signing key is out of reach. Waiting appends get an error as soon as the signer fails,
// and later ones at once, also while the signer is asked again. Their leaves stay, and the
// first successful round publishes them.
func TestAppendsDoNotWaitForAnUnreachableKey(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	signer := &awaySigner{Signer: d.signer, asked: make(chan struct{}), answer: make(chan bool)}
	l := d.open(t, d.pool, signer)
	asked := func() {
		t.Helper()
		select {
		case <-signer.asked:
		case <-time.After(time.Minute):
			t.Fatal("the signer is not asked")
		}
	}
	round := func(there bool) {
		t.Helper()
		asked()
		signer.answer <- there
	}
	round(true) // the head of size 0
	waitForHead(t, l, 0)

	answered := make(chan error)
	go func() {
		_, err := l.Append(within(t, time.Minute), entryOf(0), d.sign(t, entryOf(0)), Tag{})
		answered <- err
	}()
	round(false)
	if err := <-answered; !errors.Is(err, ErrUnavailable) || !errors.Is(err, signing.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want ErrUnavailable because of the signer, not a timeout", err)
	}

	asked() // the next round: the provider hangs
	client, _, _ := ports(t, l)
	for n := 1; n < 3; n++ {
		if _, err := client.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), Tag{}); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("entry %d: %v, want ErrUnavailable, not a timeout", n, err)
		}
	}
	if size := committedSize(t, d); size != 3 {
		t.Errorf("size %d, want 3: the entries are sequenced without an answer", size)
	}

	signer.answer <- true // this round had read the head with only entry 0
	round(true)
	waitForHead(t, l, 3)
	go func() { // from now on the provider answers
		for range signer.asked {
			signer.answer <- true
		}
	}()
	for n := range 3 {
		if again := d.mustAppend(t, l, n); again.LeafIndex != int64(n) {
			t.Errorf("entry %d has index %d", n, again.LeafIndex)
		}
	}
	l.Close()
	close(signer.asked)
	if size := committedSize(t, d); size != 3 {
		t.Errorf("size %d", size)
	}
	requireNoContradiction(t, l)
}

// If the signer refuses, the append gets the reason, the old head stays, and a leaf that
// this head covers is answered. The new leaf is published later by itself.
func TestLogWithoutASignatureKeepsTheOldHead(t *testing.T) {
	t.Parallel()
	why := errors.New("the key is disabled")
	d := newDeployment(t)
	signer := &failingSigner{Signer: d.signer, err: why}
	l := d.open(t, d.pool, signer)
	d.mustAppend(t, l, 0)
	signer.down.Store(true)
	if _, err := l.Append(within(t, time.Minute), entryOf(1), d.sign(t, entryOf(1)), Tag{}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, why) {
		t.Errorf("%v, want ErrUnavailable because of the signer", err)
	}
	if head, err := l.TreeHead(t.Context()); err != nil || head.TreeSize != 1 || committedSize(t, d) != 2 {
		t.Errorf("head %+v (%v) of %d leaves, want the old head and 2 leaves", head, err, committedSize(t, d))
	}
	if err := prove(t, l, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a leaf that is not published: %v, want ErrNotFound", err)
	}
	if again := d.mustAppend(t, l, 0); again.LeafIndex != 0 || again.TreeSize != 1 {
		t.Errorf("%+v", again)
	}
	signer.down.Store(false)
	waitForHead(t, l, 2)
	requireNoContradiction(t, l)
}
