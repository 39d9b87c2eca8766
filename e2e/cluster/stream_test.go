//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

const (
	streams    = 4                      // number of deals that startStream runs concurrently
	pace       = 150 * time.Millisecond // pause between two deals of one goroutine
	retryAfter = time.Second
)

// stream runs deals and verifies each certificate. It retries a failed request once.
type stream struct {
	client *e2e.Client
	keys   keys.List
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	requests int
	retries  int
	failures []string
	deals    []string
	slowest  time.Duration // longest time from the first attempt of a request to its answer
}

func startStream(t *testing.T, base string) *stream {
	t.Helper()
	s, ctx := newStream(t, base)
	t.Cleanup(s.cancel)
	for range streams {
		s.done.Go(func() {
			for ctx.Err() == nil {
				// stop cancels ctx. A running deal still finishes, because its own context is not cancelled.
				s.failed(s.deal(context.WithoutCancel(ctx)))
				time.Sleep(pace)
			}
		})
	}
	return s
}

// plays runs deals until at least 100 requests are made. It fails the test if a deal failed, or if
// fewer than ten deals were certified.
func (c *cluster) plays(t *testing.T, when string) {
	t.Helper()
	s := startStream(t, c.base)
	s.flows(t, 100)
	s.stop(t, c, when)
}

// newStream returns a stream that runs no deals yet, and a context that `stop` cancels.
func newStream(t *testing.T, base string) (*stream, context.Context) {
	t.Helper()
	s := &stream{client: newClient(t, base)}
	var published json.RawMessage
	e2e.Must(t, s.call(t.Context(), "GET", "/v1/pubkeys", "", nil, 200, &published))
	all := regexp.MustCompile(`es256:[0-9a-f]{66}`).FindAllString(string(published), -1)
	if len(all) == 0 {
		t.Fatalf("/v1/pubkeys has no es256 key: %s", published)
	}
	s.keys = keys.Of(all...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.cancel = cancel
	return s, ctx
}

func (s *stream) failed(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, time.Now().Format("15:04:05.000 ")+err.Error())
}

func (s *stream) flows(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.requests
	}
	from := count()
	e2e.Eventually(t, fmt.Sprint(more, " more requests are made"), time.Minute, func() bool { return count() >= from+more })
}

func newClient(t *testing.T, base string) *e2e.Client {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	return &e2e.Client{T: t, Base: base, Http: &http.Client{Timeout: 30 * time.Second, Transport: transport}}
}

// stop makes the stream start no further deals, waits for the running deals, and logs the stream's
// measurements. It fails the test if a deal failed, or if fewer than ten deals were certified.
func (s *stream) stop(t *testing.T, c *cluster, what string) {
	t.Helper()
	s.cancel()
	s.done.Wait()
	c.shows(t, "%s: %d deals, each certificate verified; %d requests, %d of them retried, %d failed; slowest %s",
		what, len(s.deals), s.requests, s.retries, len(s.failures), s.slowest.Round(time.Millisecond))
	if len(s.failures) > 0 {
		c.shows(t, "%s: %d failures:\n%.3000s", what, len(s.failures), strings.Join(s.failures, "\n"))
		t.Fail()
	}
	if len(s.deals) < 10 {
		t.Errorf("%s: %d deals, want at least 10", what, len(s.deals))
	}
}

func (s *stream) call(ctx context.Context, method, path, token string, body any, want int, into any) error {
	key, began := rand.Text(), time.Now()
	a, err := s.client.Try(ctx, method, path, token, body, "Idempotency-Key", key)
	retried := err != nil || slices.Contains([]int{502, 503, 504}, a.Status)
	first := fmt.Sprint(a.Status, " ", err)
	if retried {
		time.Sleep(retryAfter)
		a, err = s.client.Try(ctx, method, path, token, body, "Idempotency-Key", key)
	}
	s.mu.Lock()
	s.requests++
	if retried {
		s.retries++
	}
	s.slowest = max(s.slowest, time.Since(began))
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s %s: %w (first attempt: %s)", method, path, err, first)
	}
	if a.Status != want {
		return fmt.Errorf("%s %s: %d %.300s, want %d (first attempt: %s)", method, path, a.Status, a.Body, want, first)
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = a.Body
		return nil
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(a.Body, into)
}

// play creates a deal and makes all commits, then all reveals. `missing` maps an action, "commit" or
// "reveal", to the party that omits the action. If a party omits its commit, play makes no reveals.
func (s *stream) play(ctx context.Context, b e2e.Body, missing map[string]int) (dealID, token string, err error) {
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := s.call(ctx, "POST", "/v1/keys", "", e2e.Body{}, 201, &key); err != nil {
		return "", "", err
	}
	var made struct {
		DealID  string                   `json:"deal_id"`
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	if err := s.call(ctx, "POST", "/v1/deals", key.APIKey, b, 201, &made); err != nil {
		return "", "", err
	}
	dealID, token = made.DealID, made.Invites[0].Token
	input, err := e2e.NewSealed(e2e.AnnsValues)
	if err != nil {
		return dealID, token, err
	}
	for _, action := range []string{"commit", "reveal"} {
		absent, misses := missing[action]
		for i, invite := range made.Invites {
			if misses && i == absent {
				continue
			}
			if err := s.call(ctx, "POST", "/v1/deals/"+dealID+"/"+action, invite.Token, input.Act(action), 200, nil); err != nil {
				return dealID, token, err
			}
		}
		if misses {
			break
		}
	}
	return dealID, token, nil
}

func (s *stream) deal(ctx context.Context) error {
	id, token, err := s.play(ctx, e2e.SplitBody(5*time.Minute, 10*time.Minute), nil)
	if err == nil {
		_, err = s.certified(ctx, id, token)
	}
	return err
}

func (s *stream) certified(ctx context.Context, dealID, token string) (text []byte, err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(250 * time.Millisecond) {
		err = s.call(ctx, "GET", "/v1/deals/"+dealID+"/certificate", token, nil, 200, &text)
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "CERT_NOT_READY") || time.Now().After(deadline) {
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
	if _, err := s.keys.SignerOf(canon.Encode(certificate), signature); err != nil {
		return nil, fmt.Errorf("signature of certificate %s: %w", id, err)
	}
	var verdict struct{ Valid bool }
	if err := s.call(ctx, "GET", "/v1/verify/"+id, "", nil, 200, &verdict); err != nil {
		return nil, err
	}
	if !verdict.Valid {
		return nil, fmt.Errorf("GET /v1/verify/%s: valid is false, want true", id)
	}
	s.mu.Lock()
	s.deals = append(s.deals, dealID)
	s.mu.Unlock()
	return text, nil
}

type missed struct {
	id, token string
	deadline  int64 // unix seconds: the deal is VOID from then on
	flaker    int
}

// miss runs a three-party deal in which one party does not commit or, if `commits` is true, does
// not reveal.
func (s *stream) miss(ctx context.Context, commits bool, deadline int64) (m missed, err error) {
	m = missed{deadline: deadline, flaker: 1}
	b, missing := e2e.Timed(e2e.SplitBody(0, 0), deadline, deadline+3600), map[string]int{"commit": 1}
	if commits {
		m.flaker = 2
		b, missing = e2e.Timed(b, deadline-1, deadline), map[string]int{"reveal": 2}
	}
	b["party_labels"] = []string{"ann", "bob", "cy"}
	m.id, m.token, err = s.play(ctx, b, missing)
	return m, err
}

// judged requires that GET /v1/deals/{id} and the certificate of an overdue deal say VOID. Their
// void_flakers must have exactly the party that missed the deadline. The certificate must verify.
func (s *stream) judged(ctx context.Context, m missed) error {
	var view struct {
		State       string
		VoidFlakers []int `json:"void_flakers"`
	}
	if err := s.call(ctx, "GET", "/v1/deals/"+m.id, m.token, nil, 200, &view); err != nil {
		return err
	}
	text, err := s.certified(ctx, m.id, m.token)
	if err != nil {
		return err
	}
	var certificate struct {
		Outcome     string
		VoidFlakers []int `json:"void_flakers"`
	}
	if err := json.Unmarshal(text, &certificate); err != nil {
		return err
	}
	flakers := []int{m.flaker}
	if view.State != "VOID" || certificate.Outcome != "VOID" || !slices.Equal(view.VoidFlakers, flakers) || !slices.Equal(certificate.VoidFlakers, flakers) {
		return fmt.Errorf("deal %s: view %+v, certificate %+v, want VOID with flakers %v", m.id, view, certificate, flakers)
	}
	return nil
}

const (
	missEvery = 700 * time.Millisecond
	missAfter = 30 // seconds from the creation to the deadline, enough for slow and retried requests
)

// startOverdue starts a stream of deals that miss a deadline. The stream runs until stopOverdue.
func startOverdue(t *testing.T, c *cluster) {
	t.Helper()
	s, ctx := newStream(t, c.base)
	c.overdue = s
	s.done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			s.done.Go(func() {
				ctx := context.WithoutCancel(ctx)
				m, err := s.miss(ctx, n%2 == 0, time.Now().Unix()+missAfter)
				if err == nil {
					// Half of the deals are read at their deadline, and the read makes them VOID. The
					// others are read 3 s later. By then, deadline-worker has usually made them VOID.
					time.Sleep(time.Until(time.Unix(m.deadline, 0)) + time.Duration(n/2%2)*3*time.Second)
					err = s.judged(ctx, m)
				}
				s.failed(err)
			})
			time.Sleep(missEvery)
		}
	})
}

func stopOverdue(t *testing.T, c *cluster) {
	c.overdue.stop(t, c, "deals in which one party missed a deadline, during all these phases")
}
