package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

// sayEvery is how often one cause has a line. An outage fails every deal at every
// retry, and a stranger can be refused as often as it likes: without a bound each
// fills the disk of the logs.
const sayEvery = time.Minute

const (
	maxCauses = 64
	maxDeals  = 1 << 14 // that are told apart between two lines
)

// Repeats logs what happens again and again: the first time of a cause at once,
// then one line a minute, with how often it has happened since the line before. It
// is safe for concurrent use.
type Repeats struct {
	logger *slog.Logger

	mu     sync.Mutex
	causes map[string]*repeated // by message and cause
}

type repeated struct {
	said  time.Time
	times int
	deals map[string]struct{}
}

// NewRepeats returns a Repeats that logs to logger.
func NewRepeats(logger *slog.Logger) *Repeats {
	return &Repeats{logger: logger, causes: make(map[string]*repeated)}
}

// Failure logs or counts a failure; deal is empty where it is none of a deal. The
// cause is what the error's text has before its first colon; that part should hold
// no id. INTERNAL is logged each time: it stands for faults that nobody foresaw.
func (r *Repeats) Failure(ctx context.Context, level slog.Level, message string, err error, deal string, attrs ...any) {
	cause, _, _ := strings.Cut(err.Error(), ":")
	if inner := problem.From(err).Unwrap(); inner != nil { // what is behind the words for callers
		err = inner
	}
	attrs = append(attrs, "err", err)
	if cause == string(problem.Internal) {
		r.logger.Log(ctx, level, message, attrs...)
		return
	}
	r.Log(ctx, level, message, cause, deal, attrs...)
}

// Log logs or counts one time. Past maxCauses all other causes are one.
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
	if time.Since(known.said) < sayEvery {
		return
	}
	said := append([]any{"cause", cause, "times", known.times}, attrs...)
	if deal != "" {
		said = append(said, "deals", len(known.deals))
	}
	r.logger.Log(ctx, level, message, said...)
	*known = repeated{said: time.Now(), deals: make(map[string]struct{})}
}
