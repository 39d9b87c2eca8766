package limits

import (
	"context"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	answerBytes  = 128 << 20 // bound of all large answers of the process together, in bytes
	networkShare = 4         // a client's network may use answerBytes/networkShare
)

func newAnswers(most int64) *Shares { return NewShares(most, most/networkShare) }

// Answer counts the bytes of an answer against the limits of the process and of the caller's
// network, until the call in ctx ends. It returns a problem.Error if a limit is exceeded.
// Answers of at most 64 KiB (step) are not counted.
//
// A call whose effect cannot be repeated calls Answer with an estimate before the effect,
// because a refusal after the effect would lose the answer. A later call of Answer with the
// true size counts only the bytes above the estimate.
func Answer(ctx context.Context, bytes int) error {
	c := callIn(ctx)
	if c == nil || bytes <= step {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := int64(bytes) - c.answer
	if more <= 0 || c.ended {
		return nil
	}
	switch c.process.answers.Take(c.network, c.answer, more) {
	case ErrShare:
		return problem.New(problem.Overloaded, "your network is still reading other large answers; read them to their end and send the same request again in a few seconds").WithRetryAfter(2)
	case ErrTotal:
		return problem.New(problem.Overloaded, "too many large answers are being sent at the moment; send the same request again in a few seconds").WithRetryAfter(2)
	}
	c.answer += more
	return nil
}
