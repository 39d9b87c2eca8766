package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

// logInterval is the shortest time between two lines of one cause. Without this bound, the
// retries in an outage or the refusals of strangers would fill the disk.
const logInterval = time.Minute

const (
	maxCauses = 64
	maxDeals  = 1 << 14 // maximum number of distinct deals counted between two lines
)

// Repeats logs recurring events: the first event of a cause at once, then at most one line
// a minute with the number of events since the previous line. It is safe for concurrent
// use.
type Repeats struct {
	logger *slog.Logger

	mu     sync.Mutex
	causes map[string]*repeated // by message and cause
}

// repeated counts the events of one cause since its last line.
type repeated struct {
	logged time.Time
	times  int
	deals  map[string]struct{}
}

// NewRepeats returns a Repeats that logs to logger.
func NewRepeats(logger *slog.Logger) *Repeats {
	return &Repeats{logger: logger, causes: make(map[string]*repeated)}
}

// Failure logs or counts a failure. deal may be empty. The cause is the error's text before
// the first colon, so this part should hold no id. An INTERNAL error is always logged,
// because it is unforeseen.
func (r *Repeats) Failure(ctx context.Context, level slog.Level, message string, err error, deal string, attrs ...any) {
	cause, _, _ := strings.Cut(err.Error(), ":")
	if inner := problem.From(err).Unwrap(); inner != nil { // log the inner cause, which callers do not see
		err = inner
	}
	attrs = append(attrs, "err", err)
	if cause == string(problem.Internal) {
		r.logger.Log(ctx, level, message, attrs...)
		return
	}
	r.Log(ctx, level, message, cause, deal, attrs...)
}

// Log logs or counts one event. After 64 pairs of message and cause, all new causes of a
// message count as one, named "others".
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
