package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

// A call that waits for the database has given back its turn at the CPU.
func TestStatementsGiveBackTheTurn(t *testing.T) {
	f := newFixture(t)
	p, err := budget.NewProcess(10)
	check(t, err)
	free := func() (n int) {
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			ctx, call := p.Begin(ctx, "others")
			err := call.Turn(ctx)
			cancel()
			if err != nil {
				return n
			}
			defer call.End()
			n++
		}
	}
	all := free()
	for name, statement := range map[string]func(context.Context) error{
		"coalesced": func(ctx context.Context) error { _, _, err := f.UseKey(ctx, make([]byte, 32), 1); return err },
		"alone":     func(ctx context.Context) error { _, err := f.Declaration(ctx, "d_none"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, call := p.Begin(t.Context(), "caller")
			defer call.End()
			check(t, call.Turn(ctx))
			if n := free(); n != all-1 {
				t.Fatalf("%d of %d turns are free beside one, want one less", n, all)
			}
			_ = statement(ctx)
			if n := free(); n != all {
				t.Errorf("%d of %d turns are free after the statement, want all", n, all)
			}
		})
	}
}
