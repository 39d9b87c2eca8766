package store_test

import (
	"testing"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

// A call that waits for a statement of its own has given back its turn at the CPU. For a grouped one, see package batch.
func TestStatementsGiveBackTheTurn(t *testing.T) {
	f := newFixture(t)
	p, err := budget.NewProcess(10)
	check(t, err)
	ctx, call := p.Begin(t.Context(), "caller")
	defer call.End()
	check(t, call.Turn(ctx))
	if !call.HasTurn() {
		t.Fatal("the call has no turn")
	}
	_, _ = f.Declaration(ctx, "d_none")
	if call.HasTurn() {
		t.Error("the call has a turn after the statement, want none")
	}
}
