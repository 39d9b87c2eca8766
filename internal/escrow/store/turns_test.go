package store_test

import (
	"context"
	"testing"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

// A call that waits for the database has given back its turn at the CPU.
func TestStatementsGiveBackTheTurn(t *testing.T) {
	f := newFixture(t)
	p, err := budget.NewProcess(10)
	check(t, err)
	for name, statement := range map[string]func(context.Context) error{
		"coalesced": func(ctx context.Context) error { _, _, err := f.UseKey(ctx, make([]byte, 32), 1); return err },
		"alone":     func(ctx context.Context) error { _, err := f.Declaration(ctx, "d_none"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, call := p.Begin(t.Context(), "caller")
			defer call.End()
			check(t, call.Turn(ctx))
			if !call.HasTurn() {
				t.Fatal("the call has no turn")
			}
			_ = statement(ctx)
			if call.HasTurn() {
				t.Error("the call has a turn after the statement, want none")
			}
		})
	}
}
