package e2e

import (
	"context"
	"fmt"
	"time"
)

// Passes waits until so many more requests were sent.
func (s *Stubborn) Passes(ctx context.Context, requests int64) error {
	for until := s.Attempts.Load() + requests; s.Attempts.Load() < until; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the requests cease: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
