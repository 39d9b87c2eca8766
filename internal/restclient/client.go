// Package restclient calls a Fairpact deployment over REST. Every POST has an
// Idempotency-Key and is retried after a transient fault, so that each call has one effect.
package restclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer = 16 << 20 // bytes; a view of 10,000 parties is 2 MiB
	firstWait = 200 * time.Millisecond
	longWait  = 10 * time.Second // longest pause between two attempts, even if Retry-After is longer
	attempts  = 6
	oneCall   = 60 * time.Second
)

// Refused is returned when the service answers with an error (SPEC 7.1). Its text is the
// service's `CODE: what to do next`.
type Refused struct {
	Status  int
	Message string
}

func (r *Refused) Error() string { return fmt.Sprintf("%s (HTTP %d)", r.Message, r.Status) }

// Code returns the upper-case name before the colon.
func (r *Refused) Code() string {
	code, _, _ := strings.Cut(r.Message, ":")
	return code
}

// ErrUnreachable is returned when no answer came from the service itself.
var ErrUnreachable = errors.New("the service is unreachable")

// Client calls one base URL. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
	wait func(ctx context.Context, d time.Duration) error

	observe func(Exchange) // nil: no observer
}

// Exchange is a request that succeeded, and its answer.
type Exchange struct {
	Method, Path, Token string
	Body                []byte // empty for GET
	Status              int
	Answer              []byte
}

// New returns a client of a base URL like https://fairpact.example. It follows no
// redirects: the service has none, and a credential must not reach another host.
func New(baseURL string) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the base URL is not http(s)://HOST without user, query or fragment: write https://HOST or http://HOST:PORT")
	}
	return &Client{
		base: strings.TrimRight(u.String(), "/"),
		http: &http.Client{
			Timeout:       oneCall,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		wait: wait,
	}, nil
}

// BaseURL returns the base URL without a trailing slash.
func (c *Client) BaseURL() string { return c.base }

// Observe calls f with each exchange that succeeds. Call it before the first
// request.
func (c *Client) Observe(f func(Exchange)) { c.observe = f }

// Reconnect makes the next call open a new connection, which a load balancer may route to
// another replica.
func (c *Client) Reconnect() { c.http.CloseIdleConnections() }

// Get reads a path like /v1/status. token may be empty.
func (c *Client) Get(ctx context.Context, path, token string) ([]byte, error) {
	answer, err := c.call(ctx, http.MethodGet, path, token, nil)
	return answer.body, err
}

// Follow reads a path like Get. If tag is the ETag of the current answer, it waits up to
// the given time for another one. It returns the ETag of its answer. A service that is
// stopping, or an older release, answers at once.
func (c *Client) Follow(ctx context.Context, path, token, tag string, wait time.Duration) (body []byte, next string, err error) {
	if tag != "" {
		path += "?" + url.Values{"wait": {strconv.Itoa(int(wait / time.Second))}, "since": {tag}}.Encode()
	}
	answer, err := c.call(ctx, http.MethodGet, path, token, nil)
	return answer.body, answer.tag, err
}

// Post sends body as JSON; nil sends {}.
func (c *Client) Post(ctx context.Context, path, token string, body any) ([]byte, error) {
	if body == nil {
		body = struct{}{}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, http.MethodPost, path, token, text.Bytes())
	return answer.body, err
}

type answer struct {
	body       []byte
	tag        string
	retryAfter time.Duration
}

// call sends a request until it succeeds, fails permanently, or was sent `attempts` times.
// The error is *Refused, ErrUnreachable or that of ctx.
func (c *Client) call(ctx context.Context, method, path, token string, body []byte) (answer, error) {
	key := rand.Text() // 128 random bits, the same for all attempts of this call
	pause := firstWait
	for attempt := 1; ; attempt++ {
		got, err := c.once(ctx, method, path, token, key, body)
		if err == nil || ctx.Err() != nil || attempt == attempts || !passing(err) {
			return got, err
		}
		if err := c.wait(ctx, min(max(pause, got.retryAfter), longWait)); err != nil {
			return answer{}, err
		}
		pause *= 2
	}
}

// passing reports whether the fault is transient, so that a retry may succeed.
func passing(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) {
		return errors.Is(err, ErrUnreachable)
	}
	switch refused.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		return true
	case http.StatusBadGateway:
		return refused.Code() == "" // a proxy's 502 has no code: retry. The service's own is BEACON_UNAVAILABLE
	}
	return refused.Code() == "IDEMPOTENCY_IN_PROGRESS" || refused.Code() == "INTERNAL"
}

func (c *Client) once(ctx context.Context, method, path, token, key string, body []byte) (got answer, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return got, unreachable(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return got, unreachable(ctx, err)
	}
	if len(text) > maxAnswer {
		return got, fmt.Errorf("the answer of %s has more than %d bytes", path, maxAnswer)
	}
	if resp.StatusCode < 300 {
		if c.observe != nil {
			c.observe(Exchange{method, path, token, body, resp.StatusCode, text})
		}
		return answer{body: text, tag: resp.Header.Get("ETag")}, nil
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	var said struct{ Error string }
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = fmt.Sprintf(": %s %s was answered by something that is not Fairpact", method, path)
	}
	return answer{retryAfter: time.Duration(seconds) * time.Second}, &Refused{resp.StatusCode, said.Error}
}

// unreachable drops the URL from an error of net/http: it may be long, and the caller knows
// it.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
