//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/signing"
)

const (
	streams    = 4                      // deals played at once
	pace       = 150 * time.Millisecond // between two deals of a stream
	retryAfter = time.Second
)

// stream plays deals one after another, as clients with one retry a request do,
// and verifies each certificate.
type stream struct {
	base   string
	http   *http.Client
	keys   *signing.KeySet
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	requests int
	retries  int
	failures []string
	deals    []string
	slowest  time.Duration // from the first attempt of a request to its answer
}

// startStream begins the load; stop ends it.
func startStream(t *testing.T, base string) *stream {
	t.Helper()
	s, ctx := newStream(t, base)
	t.Cleanup(s.cancel)
	for range streams {
		s.done.Go(func() {
			for ctx.Err() == nil {
				// A deal that has begun is played to its end.
				s.failed(s.deal(context.WithoutCancel(ctx)))
				time.Sleep(pace)
			}
		})
	}
	return s
}

// newStream has no load yet; it ends with the context that it gives.
func newStream(t *testing.T, base string) (*stream, context.Context) {
	t.Helper()
	s := &stream{base: base, http: newHTTP()}
	var published json.RawMessage
	if err := s.call(t.Context(), "GET", "/v1/pubkeys", "", nil, 200, &published); err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`es256:[0-9a-f]{66}`).FindAllString(string(published), -1)
	if len(all) == 0 {
		t.Fatalf("no keys in %s", published)
	}
	var err error
	if s.keys, err = signing.NewKeySet(all[0], all[1:]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.cancel = cancel
	return s, ctx
}

// failed keeps what went wrong, if anything did.
func (s *stream) failed(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, time.Now().Format("15:04:05.000 ")+err.Error())
}

// flows waits for so many more requests.
func (s *stream) flows(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.requests
	}
	from := count()
	eventually(t, fmt.Sprint(more, " requests"), time.Minute, func() bool { return count() >= from+more })
}

func newHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}}
}

// stop ends the load, shows its numbers and fails the test where a request
// needed more than its one retry.
func (s *stream) stop(t *testing.T, c *cluster, what string) {
	t.Helper()
	s.cancel()
	s.done.Wait()
	c.shows(t, "%s: %d deals, each certificate verified; %d requests, %d of them retried, %d failed; slowest %s",
		what, len(s.deals), s.requests, s.retries, len(s.failures), s.slowest.Round(time.Millisecond))
	if len(s.failures) > 0 {
		t.Errorf("%s: %d failures:\n%.3000s", what, len(s.failures), strings.Join(s.failures, "\n"))
	}
	if len(s.deals) < 10 {
		t.Errorf("%s: only %d deals", what, len(s.deals))
	}
}

// call makes one request, with one retry where the answer did not come or says
// to come again.
func (s *stream) call(ctx context.Context, method, path, token string, body any, want int, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	key, began := rand.Text(), time.Now()
	status, answer, err := s.attempt(ctx, method, path, token, key, text)
	retried := err != nil || slices.Contains([]int{502, 503, 504}, status)
	first := fmt.Sprint(status, " ", err)
	if retried {
		time.Sleep(retryAfter)
		status, answer, err = s.attempt(ctx, method, path, token, key, text)
	}
	s.mu.Lock()
	s.requests++
	if retried {
		s.retries++
	}
	s.slowest = max(s.slowest, time.Since(began))
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s %s: %w (first: %s)", method, path, err, first)
	}
	if status != want {
		return fmt.Errorf("%s %s: %d %.300s (first: %s)", method, path, status, answer, first)
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = answer
		return nil
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

func (s *stream) attempt(ctx context.Context, method, path, token, key string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", key)
	} else {
		req.Body, req.ContentLength = nil, 0
	}
	req.GetBody = nil // net/http makes no retry of its own
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

type object = map[string]any

// deal plays a split of two parties to its verified certificate.
func (s *stream) deal(ctx context.Context) error {
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := s.call(ctx, "POST", "/v1/keys", "", object{}, 201, &key); err != nil {
		return err
	}
	var made struct {
		DealID  string                   `json:"deal_id"`
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	now := time.Now().Unix()
	if err := s.call(ctx, "POST", "/v1/deals", key.APIKey, object{
		"algorithm": "split.v1", "party_labels": []string{"ann", "bob"}, "algorithm_params": object{"items": []string{"car", "boat"}},
		"commit_deadline": now + 300, "reveal_deadline": now + 600,
	}, 201, &made); err != nil {
		return err
	}
	path, salts := "/v1/deals/"+made.DealID, []string{rand.Text(), rand.Text()}
	inputs := []object{{"valuations": object{"car": 70, "boat": 30}}, {"valuations": object{"car": 20, "boat": 80}}}
	for i, invite := range made.Invites {
		text, err := canon.Marshal(inputs[i])
		if err != nil {
			return err
		}
		if err := s.call(ctx, "POST", path+"/commit", invite.Token, object{"commitment": canon.Commitment(text, []byte(salts[i]))}, 200, nil); err != nil {
			return err
		}
	}
	for i, invite := range made.Invites {
		if err := s.call(ctx, "POST", path+"/reveal", invite.Token, object{"input": inputs[i], "salt": salts[i]}, 200, nil); err != nil {
			return err
		}
	}
	_, err := s.certified(ctx, made.DealID, made.Invites[0].Token)
	return err
}

// certified waits for the certificate, which may be finished by the worker, and
// verifies it here and by the service.
func (s *stream) certified(ctx context.Context, dealID, token string) (text []byte, err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(250 * time.Millisecond) {
		err = s.call(ctx, "GET", "/v1/deals/"+dealID+"/certificate", token, nil, 200, &text)
		if err == nil {
			break
		}
		if !bytes.Contains([]byte(err.Error()), []byte("CERT_NOT_READY")) || time.Now().After(deadline) {
			return nil, err
		}
	}
	certificate, err := canon.ParseObject(text)
	if err != nil {
		return nil, err
	}
	id, _ := certificate["cert_id"].(string)
	signature, _ := certificate["signature"].(string)
	delete(certificate, "signature")
	delete(certificate, "log_proof")
	if err := s.keys.Verify(canon.Encode(certificate), signature); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", id, err)
	}
	var verdict struct{ Valid bool }
	if err := s.call(ctx, "GET", "/v1/verify/"+id, "", nil, 200, &verdict); err != nil {
		return nil, err
	}
	if !verdict.Valid {
		return nil, errors.New("the service calls certificate " + id + " invalid")
	}
	s.mu.Lock()
	s.deals = append(s.deals, dealID)
	s.mu.Unlock()
	return text, nil
}
