package limits

import (
	"context"
	"sync"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	answerBytes  = 128 << 20 // bound of all large answers of the process together, in bytes
	networkShare = 4         // a client's network (caller.Network) may use answerBytes/networkShare
)

type answers struct {
	maxAll, maxNetwork int64

	mu sync.Mutex
	// mu guards the fields below.
	total    int64
	networks map[string]int64
}

func newAnswers(maxAll int64) *answers {
	return &answers{maxAll: maxAll, maxNetwork: maxAll / networkShare, networks: map[string]int64{}}
}

// take counts `more` bytes for an answer of which `has` bytes are already counted. If the bytes
// exceed a bound, take counts nothing and returns a problem.Error. The only counted answer of a
// network may exceed the network's share, because waiting would not help.
func (a *answers) take(network string, has, more int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	others := a.networks[network] - has
	switch {
	case others > 0 && others+has+more > a.maxNetwork:
		return problem.New(problem.Overloaded, "your network is still reading other large answers; read them to their end and send the same request again in a few seconds").WithRetryAfter(2)
	case a.total+more > a.maxAll:
		return problem.New(problem.Overloaded, "too many large answers are being sent at the moment; send the same request again in a few seconds").WithRetryAfter(2)
	}
	a.total += more
	a.networks[network] += more
	return nil
}

func (a *answers) release(network string, bytes int64) {
	if bytes == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total -= bytes
	if a.networks[network] -= bytes; a.networks[network] == 0 {
		delete(a.networks, network)
	}
}

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
	if err := c.process.answers.take(c.network, c.answer, more); err != nil {
		return err
	}
	c.answer += more
	return nil
}
