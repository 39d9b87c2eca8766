package deadline

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fairpact/fairpact/internal/problem"
)

// sayEvery is how often one cause has a line: an outage fails every deal at every
// retry, thousands of times a minute.
const sayEvery = time.Minute

const maxCauses = 64

// failures logs what fails again and again: the first failure of a cause at once,
// then one line a minute, with what has failed since the line before.
type failures struct {
	logger *slog.Logger

	mu     sync.Mutex
	causes map[string]*failing // by message and cause
}

type failing struct {
	said  time.Time
	times int
	deals map[string]struct{}
}

// log logs or counts a failure; deal is empty where it is none of a deal. The
// cause is what the error's text has before its first colon; that part should hold
// no id. Past maxCauses all others are one.
func (f *failures) log(ctx context.Context, message string, err error, deal string) {
	cause, _, _ := strings.Cut(err.Error(), ":")
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.causes[message+cause]; !ok && len(f.causes) >= maxCauses {
		cause = "others"
	}
	known, ok := f.causes[message+cause]
	if !ok {
		known = &failing{deals: make(map[string]struct{})}
		f.causes[message+cause] = known
	}
	known.times++
	if deal != "" {
		known.deals[deal] = struct{}{}
	}
	if time.Since(known.said) < sayEvery {
		return
	}
	if inner := problem.From(err).Unwrap(); inner != nil { // what is behind the words for callers
		err = inner
	}
	said := []any{"cause", cause, "err", err, "failures", known.times}
	if deal != "" {
		said = append(said, "deals", len(known.deals))
	}
	f.logger.WarnContext(ctx, message, said...)
	*known = failing{said: time.Now(), deals: make(map[string]struct{})}
}
