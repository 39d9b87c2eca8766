package translog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/forkguard"
)

// busyGuard is a guard whose record somebody else writes all the time, while busy.
type busyGuard struct {
	Guard
	busy   atomic.Bool
	stores atomic.Int64
}

func (g *busyGuard) Store(ctx context.Context, loaded, next forkguard.Record) error {
	g.stores.Add(1)
	if g.busy.Load() {
		return forkguard.ErrMoved
	}
	return g.Guard.Store(ctx, loaded, next)
}

// A guard that is moved whenever it is to be moved is a failure, which is told,
// counted and retried at leisure: who waits learns why.
func TestGuardThatIsAlwaysMoved(t *testing.T) {
	d := newDeployment(t)
	var told strings.Builder
	g := &busyGuard{Guard: &memoryGuard{}}
	l, err := Open(t.Context(), openPool(t, d.url), d.signer, d.keys, slog.New(slog.NewTextHandler(&told, nil)), WithGuard(g, nil))
	check(t, err)
	defer l.Close()
	d.mustAppend(t, l, 0)

	g.busy.Store(true)
	failed, before, began := failuresCounted(t), g.stores.Load(), time.Now()
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	answered, signature := make(chan error, 1), d.sign(t, entryOf(1))
	go func() {
		_, err := l.Append(ctx, entryOf(1), signature)
		answered <- err
	}()
	eventually(t, "it fails five times", func() bool { return failuresCounted(t) >= failed+5 })
	took := time.Since(began)
	if tried, most := g.stores.Load()-before, guardAttempts*(lostRaces+2+int64(took/publishBackoff)); tried > most {
		t.Errorf("the guard was to be moved %d times in %s, want no more than %d", tried, took, most)
	}
	leave()
	if err := <-answered; !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "written by somebody else") {
		t.Errorf("the append was answered %v", err)
	}

	g.busy.Store(false)
	if got := d.mustAppend(t, l, 1); got.LeafIndex != 1 || l.ProofFailures() != 0 {
		t.Errorf("%+v, %d contradictions", got, l.ProofFailures())
	}
	l.Close()
	if !strings.Contains(told.String(), "no head was published") || !strings.Contains(told.String(), "written by somebody else") {
		t.Errorf("the log:\n%s", told.String())
	}
}
