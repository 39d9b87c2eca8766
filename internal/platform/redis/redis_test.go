package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/platform/budget"
)

func TestOnlyTheOwnerUnlocks(t *testing.T) {
	url := servertest.Redis(t)
	slow, next := openPatient(t, url), openPatient(t, url)
	ctx := bounded(t)
	lateUnlock, free := slow.Lock(ctx, "deal", time.Millisecond)
	if !free {
		t.Fatal("the first lock is not free")
	}
	var unlock func()
	eventually(t, "the lock ends by its time", func() (taken bool) {
		unlock, taken = next.Lock(ctx, "deal", time.Hour)
		return taken
	})
	lateUnlock()
	if !held(ctx, slow, "deal") {
		t.Fatal("the first owner ended the second one's lock")
	}
	unlock()
	if held(ctx, slow, "deal") {
		t.Fatal("the owner does not end its lock")
	}
}

func TestAllowCounts(t *testing.T) {
	url := servertest.Redis(t)
	replicas := []*Redis{openPatient(t, url), openPatient(t, url)}
	ctx := bounded(t)
	if _, ok := replicas[0].Allow(ctx, "keys:192.0.2.1", 1, time.Minute, 1); !ok {
		t.Fatal("the first of one a minute is refused")
	}
	wait, ok := replicas[1].Allow(ctx, "keys:192.0.2.1", 1, time.Minute, 1)
	if ok || wait < 1 || wait > 61 {
		t.Errorf("the second use of one a minute: allowed %v, wait %d s; want a refusal with a wait of a minute", ok, wait)
	}
	if _, ok := replicas[1].Allow(ctx, "keys:192.0.2.2", 1, time.Minute, 1); !ok {
		t.Error("the first use by another address is refused, want it allowed")
	}
	for i := range 100 {
		if _, ok := replicas[i%2].Allow(ctx, "keys:192.0.2.3", 100, time.Minute, 1); !ok {
			t.Fatalf("use %d of 100 a minute is refused, want it allowed", i+1)
		}
	}
	if _, ok := replicas[0].Allow(ctx, "deals:1", 100, time.Minute, 99); !ok {
		t.Error("99 uses of 100 at once are refused")
	}
	if _, ok := replicas[1].Allow(ctx, "deals:1", 100, time.Minute, 50); ok {
		t.Error("50 more uses than the limit are allowed, want them refused")
	}
	if _, ok := replicas[1].Allow(ctx, "deals:2", 100, time.Minute, 500); !ok {
		t.Error("n above a minute's limit is never allowed, want it to count as the limit")
	}
}

func TestCancelledCallIsNoOutage(t *testing.T) {
	r := openPatient(t, servertest.Redis(t))
	ctx := bounded(t)
	unlock, free := r.Lock(ctx, "deal", time.Hour)
	if !free {
		t.Fatal("the first lock is not free")
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, free := r.Lock(gone, "other", time.Hour); !free {
		t.Error("a cancelled Lock reports that another caller has the lock, want free")
	}
	if !held(ctx, r, "deal") {
		t.Error("Redis is not asked any more after a cancelled call, want it asked")
	}
	caller, hangUp := context.WithCancel(ctx)
	unlock()
	unlock, free = r.Lock(caller, "deal", time.Hour)
	if !free {
		t.Fatal("an unlocked lock is held")
	}
	hangUp()
	unlock()
	if held(ctx, r, "deal") {
		t.Error("the lock of a caller that left is still held, want it released")
	}
}

func TestOpenHidesTheURL(t *testing.T) {
	for _, url := range []string{"", "http://:hunter2@127.0.0.1/0", "redis://:hunter2@127.0.0.1:1/not-a-number", "redis://:hunter2@%%"} {
		r, err := Open(url)
		if err == nil {
			_ = r.Close()
			t.Errorf("Open(%q) succeeds, want an error", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password, want it hidden: %v", err)
		}
	}
}

// A call that waits for Redis has given back its turn at the CPU.
func TestCommandsGiveBackTheTurn(t *testing.T) {
	p, err := budget.NewProcess(10)
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]func(context.Context, *Redis){
		"lock":  func(ctx context.Context, r *Redis) { r.Lock(ctx, "turn", time.Second) },
		"limit": func(ctx context.Context, r *Redis) { r.Allow(ctx, "turn", 1, time.Second, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, servertest.Redis(t))
			ctx, call := p.Begin(bounded(t), "caller")
			defer call.End()
			if err := call.Turn(ctx); err != nil || !call.HasTurn() {
				t.Fatal("the call has no turn: ", err)
			}
			command(ctx, r)
			if call.HasTurn() {
				t.Error("the call has a turn after the command, want none")
			}
		})
	}
}
