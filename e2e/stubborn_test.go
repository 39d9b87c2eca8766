package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// stubborn is a client that sends a request again, to whichever deal-api comes
// next and under the same Idempotency-Key, until it is answered with something
// else than a 5xx.
type stubborn struct {
	doors    []*client
	attempts atomic.Int64 // sent by all, answered or not
	worst    atomic.Int64 // the most failures of one request
}

// promise is a request that was answered with success, and what it was told.
type promise struct {
	method, path, token, key string
	sent                     any
	answer                   answer
}

func (s *stubborn) send(ctx context.Context, method, path, token string, sent any) (promise, error) {
	p := promise{method: method, path: path, token: token, key: rand.Text(), sent: sent}
	a, err := s.again(ctx, p)
	if err == nil && a.status >= 300 {
		err = &refusedError{p, a}
	}
	p.answer = a
	return p, err
}

// again sends a request once more, or for the first time. Each attempt goes to
// another deal-api than the one before it.
func (s *stubborn) again(ctx context.Context, p promise) (answer, error) {
	var failures int64
	for door := int(s.attempts.Add(1)); ; door++ {
		a, err := s.doors[door%len(s.doors)].try(ctx, p.method, p.path, p.token, p.sent, "Idempotency-Key", p.key)
		if err == nil && a.status < 500 && a.code() != "IDEMPOTENCY_IN_PROGRESS" {
			return a, nil
		}
		if err != nil || a.status >= 500 {
			failures++
			raise(&s.worst, failures)
		}
		select {
		case <-ctx.Done():
			return answer{}, fmt.Errorf("%s %s was never answered: %w (%v, %d %s)", p.method, p.path, ctx.Err(), err, a.status, a.body)
		case <-time.After(20 * time.Millisecond):
			s.attempts.Add(1)
		}
	}
}

// raise sets a number that only grows.
func raise(n *atomic.Int64, to int64) {
	for have := n.Load(); to > have && !n.CompareAndSwap(have, to); have = n.Load() {
	}
}

// refusedError is a 4xx.
type refusedError struct {
	p promise
	a answer
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.p.method, e.p.path, e.a.status, e.a.body)
}

// stays holds a promise against what the service says now.
func (p promise) stays(ctx context.Context, s *stubborn) error {
	a, err := s.again(ctx, p)
	if err != nil {
		return err
	}
	was, is := p.answer.body, a.body
	if p.method == http.MethodGet {
		if was, err = withoutProof(was); err == nil {
			is, err = withoutProof(is)
		}
		if err != nil {
			return err
		}
	}
	if a.status != p.answer.status || !bytes.Equal(was, is) {
		return fmt.Errorf("%s %s was answered\n%d %s\nand then\n%d %s", p.method, p.path, p.answer.status, was, a.status, is)
	}
	return nil
}

// withoutProof drops a certificate's log_proof, the one member that is made at
// each read.
func withoutProof(certificate []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(certificate, &members); err != nil {
		return nil, err
	}
	delete(members, "log_proof")
	return json.Marshal(members)
}
