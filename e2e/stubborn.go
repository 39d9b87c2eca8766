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

// Stubborn is a client that sends a request again, to whichever deal-api comes
// next and under the same Idempotency-Key, until it is answered with something
// else than a 5xx.
type Stubborn struct {
	Doors    []*Client
	Attempts atomic.Int64 // sent by all, answered or not
	Worst    atomic.Int64 // the most failures of one request
}

// Promise is a request that was answered with success, and what it was told.
type Promise struct {
	Method, Path, token, key string
	sent                     any
	Answer                   Answer
}

func (s *Stubborn) send(ctx context.Context, method, path, token string, sent any) (Promise, error) {
	p := Promise{Method: method, Path: path, token: token, key: rand.Text(), sent: sent}
	a, err := s.Again(ctx, p)
	if err == nil && a.Status >= 300 {
		err = &refusedError{p, a}
	}
	p.Answer = a
	return p, err
}

// Again sends a request once more, or for the first time. Each attempt goes to
// another deal-api than the one before it.
func (s *Stubborn) Again(ctx context.Context, p Promise) (Answer, error) {
	var failures int64
	for door := int(s.Attempts.Add(1)); ; door++ {
		a, err := s.Doors[door%len(s.Doors)].Try(ctx, p.Method, p.Path, p.token, p.sent, "Idempotency-Key", p.key)
		if err == nil && a.Status < 500 && a.Code() != "IDEMPOTENCY_IN_PROGRESS" {
			return a, nil
		}
		if err != nil || a.Status >= 500 {
			failures++
			Raise(&s.Worst, failures)
		}
		select {
		case <-ctx.Done():
			return Answer{}, fmt.Errorf("%s %s was never answered: %w (%v, %d %s)", p.Method, p.Path, ctx.Err(), err, a.Status, a.Body)
		case <-time.After(20 * time.Millisecond):
			s.Attempts.Add(1)
		}
	}
}

// Raise sets a number that only grows.
func Raise(n *atomic.Int64, to int64) {
	for have := n.Load(); to > have && !n.CompareAndSwap(have, to); have = n.Load() {
	}
}

// refusedError is a 4xx.
type refusedError struct {
	p Promise
	a Answer
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.p.Method, e.p.Path, e.a.Status, e.a.Body)
}

// stays holds a promise against what the service says now.
func (p Promise) stays(ctx context.Context, s *Stubborn) error {
	a, err := s.Again(ctx, p)
	if err != nil {
		return err
	}
	was, is := p.Answer.Body, a.Body
	if p.Method == http.MethodGet {
		if was, err = WithoutProof(was); err == nil {
			is, err = WithoutProof(is)
		}
		if err != nil {
			return err
		}
	}
	if a.Status != p.Answer.Status || !bytes.Equal(was, is) {
		return fmt.Errorf("%s %s was answered\n%d %s\nand then\n%d %s", p.Method, p.Path, p.Answer.Status, was, a.Status, is)
	}
	return nil
}

// WithoutProof drops a certificate's log_proof, the one member that is made at
// each read.
func WithoutProof(certificate []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(certificate, &members); err != nil {
		return nil, err
	}
	delete(members, "log_proof")
	return json.Marshal(members)
}
