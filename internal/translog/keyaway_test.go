package translog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/signing"
)

// awaySigner is a key whose provider is out of reach until its gate passes a
// call: the calls are told apart from one another by the test.
type awaySigner struct {
	Signer
	asked  chan struct{}
	answer chan bool // true: the provider is there
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

// The key of the heads is out of reach: who waits for a head is told when the
// signer says so, and who comes later at once, also while the signer is being
// asked again. What they brought stays, and the first round that succeeds
// publishes it without being asked.
func TestAppendsDoNotWaitForAKeyThatIsAway(t *testing.T) {
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

	told := make(chan error)
	go func() {
		_, err := l.Append(within(t, time.Minute), entryOf(0), d.sign(t, entryOf(0)), Tag{})
		told <- err
	}()
	round(false)
	if err := <-told; !errors.Is(err, ErrUnavailable) || !errors.Is(err, signing.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want ErrUnavailable because of the signer and not of time", err)
	}

	asked() // the next round: the provider hangs
	client, _, _ := ports(t, l)
	for n := 1; n < 3; n++ {
		if _, err := client.Append(within(t, time.Minute), entryOf(n), d.sign(t, entryOf(n)), Tag{}); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("entry %d: %v, want ErrUnavailable, and not for want of time", n, err)
		}
	}
	if size := committedSize(t, d); size != 3 {
		t.Errorf("size %d, want 3: what is refused an answer is sequenced all the same", size)
	}

	signer.answer <- true // for the head that was read when only entry 0 was there
	round(true)
	waitForHead(t, l, 3)
	go func() { // whatever is asked from now on is answered
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
	sound(t, l)
}

// Whatever the reason that the signer gives no signature, an append is told so,
// the old head stands, and a leaf that it covers is answered. Nothing is lost: it
// is published without being asked again.
func TestSignerDown(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{"out of reach": signing.ErrUnavailable, "disabled": errors.New("the key is disabled")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			signer := &failingSigner{Signer: d.signer, err: why}
			l := d.open(t, d.pool, signer)
			d.mustAppend(t, l, 0)
			signer.down.Store(true)
			if _, err := l.Append(within(t, time.Minute), entryOf(1), d.sign(t, entryOf(1)), Tag{}); !errors.Is(err, ErrUnavailable) || !errors.Is(err, why) {
				t.Errorf("%v, want ErrUnavailable because of the signer", err)
			}
			if head, err := l.TreeHead(t.Context()); err != nil || head.TreeSize != 1 || committedSize(t, d) != 2 {
				t.Errorf("head %+v (%v) of %d leaves: the old one stands, the entry is sequenced", head, err, committedSize(t, d))
			}
			if err := prove(t, l, 1); !errors.Is(err, ErrNotFound) {
				t.Errorf("a leaf that is not published: %v, want ErrNotFound", err)
			}
			if again := d.mustAppend(t, l, 0); again.LeafIndex != 0 || again.TreeSize != 1 {
				t.Errorf("%+v", again)
			}
			signer.down.Store(false)
			waitForHead(t, l, 2)
			sound(t, l)
		})
	}
}
