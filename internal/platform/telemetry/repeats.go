package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

// logInterval keeps retries in an outage, or refused requests of strangers, from filling the disk.
const logInterval = time.Minute

const (
	maxCauses = 64
	maxDeals  = 1 << 14 // maximum number of distinct deals counted between two log lines of a cause
)

// Repeats logs the first event of a cause immediately, and then at most one line a minute for
// it, with the number of events since the previous line. It is safe for concurrent use.
type Repeats struct {
	logger *slog.Logger

	mu     sync.Mutex
	causes map[string]*repeated // the key is the message followed by the cause
}

type repeated struct {
	logged time.Time
	times  int
	deals  map[string]struct{}
}

// NewRepeats returns a Repeats that logs to logger.
func NewRepeats(logger *slog.Logger) *Repeats {
	return &Repeats{logger: logger, causes: make(map[string]*repeated)}
}

// Failure is like Log. The cause is the error's text before the first colon, which should contain
// no id. An INTERNAL error is always logged. `deal` is a deal's id, or empty.
func (r *Repeats) Failure(ctx context.Context, level slog.Level, message string, err error, deal string, attrs ...any) {
	cause, _, _ := strings.Cut(err.Error(), ":")
	if inner := problem.From(err).Unwrap(); inner != nil { // log the wrapped error, which API clients do not see
		err = inner
	}
	attrs = append(attrs, "err", err)
	if cause == string(problem.Internal) {
		r.logger.Log(ctx, level, message, attrs...)
		return
	}
	r.Log(ctx, level, message, cause, deal, attrs...)
}

// Log logs an event, or only counts it if a line with the same message and cause is less than
// a minute old. Causes beyond maxCauses become "others".
func (r *Repeats) Log(ctx context.Context, level slog.Level, message, cause, deal string, attrs ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.causes[message+cause]; !ok && len(r.causes) >= maxCauses {
		cause = "others"
	}
	known, ok := r.causes[message+cause]
	if !ok {
		known = &repeated{deals: make(map[string]struct{})}
		r.causes[message+cause] = known
	}
	known.times++
	if deal != "" && len(known.deals) < maxDeals {
		known.deals[deal] = struct{}{}
	}
	if time.Since(known.logged) < logInterval {
		return
	}
	all := append([]any{"cause", cause, "times", known.times}, attrs...)
	if deal != "" {
		all = append(all, "deals", len(known.deals))
	}
	r.logger.Log(ctx, level, message, all...)
	*known = repeated{logged: time.Now(), deals: make(map[string]struct{})}
}
