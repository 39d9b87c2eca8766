// Package httpclient calls a Fairpact deployment over REST. It retries calls after a
// transient fault. All attempts of a POST send the same Idempotency-Key, so that the call
// has only one effect.
package httpclient

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

	"github.com/fairpact/fairpact/internal/platform/web"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

const (
	maxAnswer      = 64 << 20               // bytes; the view of a deal with 10,000 parties has 2 MiB, its bundle with large inputs 50 MiB
	firstWait      = 200 * time.Millisecond // pause after the first attempt; doubles after each further attempt
	longWait       = 10 * time.Second       // longest pause between two attempts, even if Retry-After is longer
	attempts       = 6                      // maximum number for one call
	attemptTimeout = 60 * time.Second       // timeout of one attempt; longer than the service lets a call wait
)

// StatusError is returned for an answer with a status of 300 or above. Message is the service's
// error text, `CODE: what to do next` (SPEC 7.1). If a proxy sent the answer, Message is the
// proxy's error text, or says that the answer has none.
type StatusError struct {
	Status  int
	Message string
}

func (r *StatusError) Error() string { return fmt.Sprintf("%s (HTTP %d)", r.Message, r.Status) }

// Code returns the code of Message, or "" if the answer is not from the service.
func (r *StatusError) Code() string { return string(problem.CodeOf(r.Message)) }

// ErrUnreachable is returned when no complete HTTP answer arrives.
var ErrUnreachable = errors.New("the service is unreachable")

// Client calls one base URL. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
	wait func(ctx context.Context, d time.Duration) error
}

// New returns a client of a base URL like https://fairpact.example. It returns an error if
// baseURL has another form. The client follows no redirects, so that a credential never
// reaches another host.
func New(baseURL string) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The error does not quote the URL, which may hold a password.
		return nil, errors.New("the base URL is not an http or https URL with a host, or it has a user, query or fragment: write https://HOST or http://HOST:PORT")
	}
	return &Client{
		base: strings.TrimRight(u.String(), "/"),
		http: &http.Client{
			Timeout:       attemptTimeout,
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		wait: Pause,
	}, nil
}

// transport keeps a connection for each of a few concurrent calls.
var transport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16
	return t
}()

// BaseURL returns the base URL without a trailing slash.
func (c *Client) BaseURL() string { return c.base }

// Reconnect makes the next call use a new connection, perhaps to another replica.
func (c *Client) Reconnect() { c.http.CloseIdleConnections() }

// Get returns the answer to a GET of a path like /v1/status. token is the credential, or
// "". If the service refuses, the error is a *StatusError.
func (c *Client) Get(ctx context.Context, path, token string) ([]byte, error) {
	answer, err := c.call(ctx, http.MethodGet, path, token, nil)
	return answer.body, err
}

// GetInto decodes the JSON answer to a GET into v.
func (c *Client) GetInto(ctx context.Context, path, token string, v any) error {
	answer, err := c.Get(ctx, path, token)
	return decoded(http.MethodGet, path, answer, err, v)
}

// PostInto sends body as Post does, and decodes the JSON answer into v.
func (c *Client) PostInto(ctx context.Context, path, token string, body, v any) error {
	answer, err := c.Post(ctx, path, token, body)
	return decoded(http.MethodPost, path, answer, err, v)
}

func decoded(method, path string, answer []byte, err error, v any) error {
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("cannot parse the service's answer to %s %s: %w", method, path, err)
	}
	return nil
}

// Follow returns the view of a deal and the ETag of that view. If `tag` is empty, the service
// answers immediately. Otherwise the service answers when the ETag of the view differs from
// `tag`, or when `wait` is over. The service does not wait while it shuts down.
func (c *Client) Follow(ctx context.Context, path, token, tag string, wait time.Duration) (body []byte, next string, err error) {
	if tag != "" {
		path += "?" + url.Values{"wait": {strconv.Itoa(int(wait / time.Second))}, "since": {tag}}.Encode()
	}
	answer, err := c.call(ctx, http.MethodGet, path, token, nil)
	return answer.body, answer.tag, err
}

// Post sends body as JSON and returns the answer. A nil body is sent as {}. token is the
// credential, or "". If the service refuses, the error is a *StatusError.
func (c *Client) Post(ctx context.Context, path, token string, body any) ([]byte, error) {
	if body == nil {
		body = struct{}{}
	}
	text, err := web.Encode(body)
	if err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, http.MethodPost, path, token, text)
	return answer.body, err
}

type answer struct {
	body       []byte
	tag        string
	retryAfter time.Duration
}

func (c *Client) call(ctx context.Context, method, path, token string, body []byte) (answer, error) {
	key := rand.Text() // 128 random bits, the same for all attempts of this call
	pause := firstWait
	for attempt := 1; ; attempt++ {
		got, err := c.once(ctx, method, path, token, key, body)
		if err == nil || ctx.Err() != nil || attempt == attempts || !isTransient(err) {
			return got, err
		}
		if err := c.wait(ctx, min(max(pause, got.retryAfter), longWait)); err != nil {
			return answer{}, err
		}
		pause *= 2
	}
}

// isTransient reports whether a retry may succeed.
func isTransient(err error) bool {
	refused, answered := errors.AsType[*StatusError](err)
	if !answered {
		return errors.Is(err, ErrUnreachable)
	}
	switch refused.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		return true
	case http.StatusBadGateway:
		return refused.Code() == "" // a 502 without a code is from a proxy; the service's own 502 has the code BEACON_UNAVAILABLE
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
		return got, fmt.Errorf("the answer of %s has more than %d bytes, the most that this client reads", path, maxAnswer)
	}
	if resp.StatusCode < 300 {
		return answer{body: text, tag: resp.Header.Get("ETag")}, nil
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	var said struct{ Error string }
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = fmt.Sprintf("the answer to %s %s has no error text of Fairpact: check the base URL and the proxies in front of the service", method, path)
	}
	return answer{retryAfter: time.Duration(seconds) * time.Second}, &StatusError{resp.StatusCode, said.Error}
}

// unreachable wraps an error of net/http in ErrUnreachable, without the URL, which the caller
// knows. If ctx has ended, it returns the error of ctx.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// Pause waits for a time, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
