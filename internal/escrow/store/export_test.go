package store

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
)

// In production, timing decides which calls share one SQL statement (a group). In tests, the
// methods whose names end in Together run their calls in as few groups as possible, whatever the
// timing. Retries and the wait for locked deals work as in production.

func (s *Store) CreateTogether(all ...NewDeal) ([]Created, []error) {
	return together(s.creations, all)
}
func (s *Store) CommitTogether(all ...Act) ([]ActResult, []error) { return together(s.commits, all) }
func (s *Store) RevealTogether(all ...Act) ([]ActResult, []error) { return together(s.reveals, all) }
func (s *Store) PublishTogether(all ...Publication) ([]bool, []error) {
	return together(s.publications, all)
}

func (s *Store) SnapshotTogether(dealIDs []string, selections []Selection) ([]*Snapshot, []error) {
	all := make([]snapshotOf, len(dealIDs))
	for i, id := range dealIDs {
		all[i] = snapshotOf{id, selections[i], SmallRead}
	}
	return together(s.snapshots, all)
}

func (s *Store) Applications(ctx context.Context) ([]string, error) { return Applications(ctx, s.pool) }

func (s *Store) EndTogether(all ...*Ending) ([]bool, []error) {
	answers, errs := together(s.endings, all)
	done := make([]bool, len(answers))
	for i, a := range answers {
		done[i] = a.ended
	}
	return done, errs
}

func together[Q, A any](c *coalescer[Q, A], queries []Q) ([]A, []error) {
	answers, errs := c.calls.Together(context.Background(), queries)
	var group sync.WaitGroup
	for i, q := range queries {
		group.Go(func() { answers[i], errs[i] = c.unlocked(context.Background(), q, answers[i], errs[i]) })
	}
	group.Wait()
	return answers, errs
}

func (s *Store) PanicInScan(ctx context.Context) error {
	return s.locked(ctx, []string{"d_none"}, false, "SELECT 1", nil, func(pgx.CollectableRow) error { panic("a fault") })
}
