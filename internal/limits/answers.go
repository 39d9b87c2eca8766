package limits

import (
	"context"
	"sync"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	answerBytes  = 128 << 20 // most bytes of all large answers that are being sent; clients may read slowly
	networkShare = 4         // one client network may hold 1/networkShare of answerBytes, and always one answer
)

type answers struct {
	maxAll, maxNetwork int64 // bytes

	mu sync.Mutex
	// mu guards the fields below.
	total    int64
	networks map[string]int64
}

func newAnswers(maxAll int64) *answers {
	return &answers{maxAll: maxAll, maxNetwork: maxAll / networkShare, networks: map[string]int64{}}
}

// take counts `more` bytes for an answer that already counts for `has` bytes. It returns a
// problem.Error and counts nothing if a bound would be exceeded.
func (a *answers) take(network string, has, more int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	others := a.networks[network] - has // bytes of the network's other answers
	switch {
	case others > 0 && others+has+more > a.maxNetwork:
		return problem.New(problem.Overloaded, "your network is still reading other large answers; read them to their end and send the same request again in a few seconds").After(2)
	case a.total+more > a.maxAll:
		return problem.New(problem.Overloaded, "too many large answers are being read at the moment, some of them slowly; send the same request again in a few seconds").After(2)
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

// Answer counts an answer of the given bytes until the call in ctx ends. It returns a
// problem.Error if too many large answers are being sent. Small answers are not counted.
//
// If the call has an effect and could not send its answer a second time, call Answer with
// an estimate before the effect. Answer with the true size then adds only the difference.
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
