package limits

import (
	"context"
	"sync"

	"github.com/fairpact/fairpact/internal/problem"
)

const (
	answerBytes  = 128 << 20 // of all large answers until they are sent: a client may read slowly
	networkShare = 4         // one client network may hold one part in that many of them, and always one answer
)

// answers counts the bytes of the large answers that are being sent.
type answers struct {
	most, each int64 // bytes: of all, and of one network

	mu sync.Mutex
	// Both are guarded by mu.
	sent     int64
	networks map[string]int64
}

func newAnswers(most int64) *answers {
	return &answers{most: most, each: most / networkShare, networks: map[string]int64{}}
}

// take adds more bytes to an answer that has some already.
func (a *answers) take(network string, has, more int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	others := a.networks[network] - has // of the network, in other answers
	switch {
	case others > 0 && others+has+more > a.each:
		return problem.New(problem.Overloaded, "your network is still reading other large answers; read them to their end and send the same request again in a few seconds").After(2)
	case a.sent+more > a.most:
		return problem.New(problem.Overloaded, "too many large answers are being read at the moment, some of them slowly; send the same request again in a few seconds").After(2)
	}
	a.sent += more
	a.networks[network] += more
	return nil
}

func (a *answers) release(network string, bytes int64) {
	if bytes == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent -= bytes
	if a.networks[network] -= bytes; a.networks[network] == 0 {
		delete(a.networks, network)
	}
}

// Answer accounts for an answer of that many bytes until the end of the call; a
// small one is not counted. Where its bytes are lost if they are refused, call it
// before the effect with an estimate.
func Answer(ctx context.Context, bytes int) error {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok || bytes <= step {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := int64(bytes) - c.answer
	if more <= 0 || c.ended {
		return nil
	}
	if err := c.of.answers.take(c.network, c.answer, more); err != nil {
		return err
	}
	c.answer += more
	return nil
}
