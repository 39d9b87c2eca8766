package e2e

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/localstack"
)

// Unrests are what can happen to Redis while the service is used. Each goes on
// until it is stopped.
var Unrests = map[string]func(t *testing.T, stack *localstack.Stack) (stop func()){
	"up": func(*testing.T, *localstack.Stack) func() { return func() {} },
	"down": func(t *testing.T, stack *localstack.Stack) func() {
		if err := stack.Redis().Stop(); err != nil {
			t.Fatal(err)
		}
		return func() {}
	},
	"emptied": func(t *testing.T, stack *localstack.Stack) func() {
		client := Cache(t, stack)
		return again(t, 2*time.Millisecond, func(ctx context.Context) error { return client.FlushAll(ctx).Err() })
	},
	"restarted": func(t *testing.T, stack *localstack.Stack) func() {
		return again(t, 100*time.Millisecond, stack.Redis().Restart)
	},
	// Longer than deal-api waits for it, and awake for as long as deal-api leaves
	// a Redis alone that has failed.
	"hung": func(t *testing.T, stack *localstack.Stack) func() {
		pid := stack.Redis().PID()
		stop := again(t, 1200*time.Millisecond, func(ctx context.Context) error {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return err
			}
			Pause(ctx, 600*time.Millisecond)
			return syscall.Kill(pid, syscall.SIGCONT)
		})
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
		return stop
	},
}

// again does something over and over, the first time at once, until it is
// stopped; what is under way is then finished.
func again(t *testing.T, every time.Duration, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			if err := do(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("Redis: %v", err)
				return
			}
			Pause(ctx, every)
		}
	})
	once := sync.OnceFunc(func() { cancel(); loop.Wait() })
	t.Cleanup(once)
	return once
}

func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
