package limits

import (
	"context"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	answerBytes  = 128 << 20 // bound of all large answers together
	networkShare = 4         // a client's network may use answerBytes/networkShare
)

func newAnswers(most int64) *Shares { return NewShares(most, most/networkShare) }

// Answer counts the bytes of a large answer until the call in ctx ends, or returns a
// problem.Error. A call whose effect cannot be repeated first passes an estimate, because a
// refusal after the effect would lose the answer. Then Answer counts only the bytes above it.
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
