package store

import (
	"context"
	"time"

	"github.com/fairpact/fairpact/internal/platform/budget"
)

// large runs a statement that reads at most `bytes` bytes by itself, once the call in ctx holds a
// ticket for these bytes and has its turn (budget.LargeRead). Large statements do not use those of
// the coalescers, so small ones do not wait for them. It does not end with ctx: pgx would then
// close the connection.
func large[Q, A any](ctx context.Context, s *Store, bytes int, run func(context.Context, []Q, bool) ([]A, error), query Q) (A, error) {
	return alone(ctx, s, budget.LargeRead, bytes, run, query)
}

// largeWrite is `large` for a statement that writes.
func largeWrite[Q, A any](ctx context.Context, s *Store, bytes int, run func(context.Context, []Q, bool) ([]A, error), query Q) (A, error) {
	return alone(ctx, s, budget.LargeWrite, bytes, run, query)
}

func alone[Q, A any](ctx context.Context, s *Store, kind budget.Kind, bytes int, run func(context.Context, []Q, bool) ([]A, error), query Q) (none A, err error) {
	call := budget.From(ctx)
	if err := call.Hold(ctx, int64(bytes)); err != nil {
		return none, err
	}
	done, err := call.One(ctx, kind)
	if err != nil {
		return none, err
	}
	defer done()
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupTimeout)
	defer cancel()
	answers, err := run(reading, []Q{query}, false)
	if err != nil {
		return none, translate(err)
	}
	s.slots.answered.Store(time.Now().UnixMilli())
	if len(answers) == 0 {
		return none, ErrNotFound
	}
	return answers[0], nil
}

// sized runs a read as a large one if it can read more than SmallRead bytes.
func sized[A any](ctx context.Context, s *Store, bytes int, read func(context.Context) (A, error)) (A, error) {
	if bytes <= SmallRead {
		answer, err := read(ctx)
		return answer, translate(err)
	}
	return large(ctx, s, bytes, func(ctx context.Context, _ []int, _ bool) ([]A, error) {
		answer, err := read(ctx)
		return []A{answer}, err
	}, 0)
}
