package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/rules/canon"
)

// Client calls the service at one base URL. Client.Do fails the test if a request or a response does
// not match the published OpenAPI document. The methods that call Client.Do inherit this check.
type Client struct {
	T    testing.TB
	Base string
	Http *http.Client
}

func NewClient(t testing.TB, base string) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{t, base, &http.Client{Transport: transport, Timeout: 60 * time.Second}}
}

// In returns a copy of c that reports failures to t. A subtest needs its own copy.
func (c *Client) In(t testing.TB) *Client { return &Client{t, c.Base, c.Http} }

// Answer is a response with its whole body.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Last   bool // the server closes the connection after this response
}

// Code returns the code of an error body, and "" for any other body.
func (a Answer) Code() string {
	code, _, _ := strings.Cut(a.ErrorText(), ":")
	return code
}

// ErrorText returns the text of an error body, and "" for any other body.
func (a Answer) ErrorText() string {
	var e struct{ Error string }
	_ = json.Unmarshal(a.Body, &e)
	return e.Error
}

// Into decodes the JSON body into v.
func (a Answer) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("decode the body %.300s: %v", a.Body, err)
	}
}

// errorForm is the form of an error text (SPEC 7.1).
var errorForm = regexp.MustCompile(`^[A-Z_]+: .+`)

// request builds a request. body is JSON text, a value to encode, or nil. header holds pairs of
// name and value. A header named Host also sets req.Host.
func (c *Client) request(ctx context.Context, method, path, token string, body any, header ...string) (*http.Request, error) {
	var sent io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		sent = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, sent)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header.Add(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	return req, nil
}

// Try sends a request and checks nothing. It returns an error if no complete response
// arrives.
func (c *Client) Try(ctx context.Context, method, path, token string, body any, header ...string) (Answer, error) {
	req, err := c.request(ctx, method, path, token, body, header...)
	if err != nil {
		return Answer{}, err
	}
	resp, err := c.Http.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a := Answer{resp.StatusCode, resp.Header, text, resp.Close}
	if err == nil && a.Status >= 400 {
		Seen.Store(a.Code(), true)
	}
	return a, err
}

// Do sends a request and requires a response. It checks the request and the response against the
// published OpenAPI document.
func (c *Client) Do(method, path, token string, body any, header ...string) Answer {
	c.T.Helper()
	a, err := c.Try(c.T.Context(), method, path, token, body, header...)
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, path, err)
	}
	if a.Status >= 400 && method != http.MethodHead && !errorForm.MatchString(a.ErrorText()) {
		c.T.Errorf("%s %s: %d with a body that is not an error of SPEC 7.1: %.200s", method, path, a.Status, a.Body)
	}
	sent, err := c.request(c.T.Context(), method, path, token, body, header...)
	if err == nil {
		err = Published(c.T, c).Describes(sent, a)
	}
	if err != nil {
		c.T.Errorf("%s %s: the request or the response does not match the OpenAPI document: %.3000s", method, path, err)
	}
	return a
}

// Want sends a request and requires the given response status.
func (c *Client) Want(status int, method, path, token string, body any, header ...string) Answer {
	c.T.Helper()
	a := c.Do(method, path, token, body, header...)
	if a.Status != status {
		c.T.Fatalf("%s %s: %d, want %d: %.500s", method, path, a.Status, status, a.Body)
	}
	return a
}

// Refused sends a request and requires the given response status and error code.
func (c *Client) Refused(status int, code, method, path, token string, body any, header ...string) Answer {
	c.T.Helper()
	a := c.Do(method, path, token, body, header...)
	if a.Status != status || a.Code() != code {
		c.T.Errorf("%s %s: %d %.300s, want %d %s", method, path, a.Status, a.Body, status, code)
	}
	return a
}

// Key creates an API key.
func (c *Client) Key() string {
	c.T.Helper()
	var k wire.NewKey
	c.Want(201, "POST", "/v1/keys", "", nil).Into(c.T, &k)
	return k.APIKey
}

// CreatedDeal is a created deal with all its credentials.
type CreatedDeal struct {
	C       *Client
	ID      string
	Key     string
	Tokens  []string
	Warning string
}

// Body is a JSON object.
type Body = map[string]any

// SplitBody, RandomBody and ShapleyBody return request bodies that create a deal. A test may
// change the body. commitIn and revealIn are the times from now to the deadlines.
func SplitBody(commitIn, revealIn time.Duration) Body {
	now := time.Now()
	return Body{
		"algorithm": "split.v1", "party_labels": []string{"ann", "bob"},
		"commit_deadline": now.Add(commitIn).Unix(), "reveal_deadline": now.Add(revealIn).Unix(),
		"algorithm_params": Body{"items": []string{"car", "boat"}},
	}
}

func RandomBody(parties int, round int64, commitIn, revealIn time.Duration) Body {
	b := SplitBody(commitIn, revealIn)
	labels := make([]string, parties)
	for i := range labels {
		labels[i] = fmt.Sprintf("party %d", i)
	}
	b["algorithm"], b["party_labels"], b["algorithm_params"] = "random.v1", labels, Body{"beacon_round": round}
	return b
}

func ShapleyBody(commitIn, revealIn time.Duration) Body {
	b := SplitBody(commitIn, revealIn)
	b["algorithm"] = "shapley.v1"
	b["algorithm_params"] = Body{"coalition_values": Body{"ann": 60, "bob": 0, "ann,bob": 120}}
	return b
}

// Create creates a deal with a new API key. CreateWith uses the given key.
func (c *Client) Create(b Body) *CreatedDeal {
	c.T.Helper()
	return c.CreateWith(c.Key(), b)
}

func (c *Client) CreateWith(key string, b Body) *CreatedDeal {
	c.T.Helper()
	return c.Created(key, c.Want(201, "POST", "/v1/deals", key, b))
}

// Created returns the deal in `a`, the response to a creation with the given API key.
func (c *Client) Created(key string, a Answer) *CreatedDeal {
	c.T.Helper()
	var r wire.Created
	a.Into(c.T, &r)
	d := &CreatedDeal{C: c, ID: r.DealID, Key: key, Warning: r.Warning}
	for _, i := range r.Invites {
		d.Tokens = append(d.Tokens, i.Token)
	}
	return d
}

// Sealed is an input with its salt and commitment.
type Sealed struct {
	Input      Body
	Salt       string
	Commitment string
}

// Seal returns input with a random salt, and the commitment to input and salt.
func Seal(t testing.TB, input Body) Sealed {
	t.Helper()
	s, err := NewSealed(input)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NewSealed is Seal for code outside the goroutine of a test, where t.Fatal is not allowed.
func NewSealed(input Body) (Sealed, error) {
	text, err := canon.Marshal(input)
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	salt := hex.EncodeToString(raw)
	return Sealed{input, salt, canon.Commitment(text, []byte(salt))}, err
}

// Act returns the request body of the action "commit" or "reveal".
func (s Sealed) Act(action string) Body {
	if action == "commit" {
		return Body{"commitment": s.Commitment}
	}
	return Body{"input": s.Input, "salt": s.Salt}
}

// Path returns the REST path of the deal, with the suffix appended.
func (d *CreatedDeal) Path(suffix string) string { return "/v1/deals/" + d.ID + suffix }

// Commit and Reveal act for a party, and require success.
func (d *CreatedDeal) Commit(party int, s Sealed) Answer {
	d.C.T.Helper()
	return d.C.Want(200, "POST", d.Path("/commit"), d.Tokens[party], s.Act("commit"))
}

func (d *CreatedDeal) Reveal(party int, s Sealed) Answer {
	d.C.T.Helper()
	return d.C.Want(200, "POST", d.Path("/reveal"), d.Tokens[party], s.Act("reveal"))
}

// Play commits all inputs and then reveals them, in party order.
func (d *CreatedDeal) Play(inputs ...Body) []Sealed {
	d.C.T.Helper()
	all := make([]Sealed, len(inputs))
	for i, in := range inputs {
		all[i] = Seal(d.C.T, in)
		d.Commit(i, all[i])
	}
	for i := range inputs {
		d.Reveal(i, all[i])
	}
	return all
}

// View is the deal view (SPEC 2.4).
type View = wire.View

// View reads the view as party 0.
func (d *CreatedDeal) View() (v View) {
	d.C.T.Helper()
	d.C.Want(200, "GET", d.Path(""), d.Tokens[0], nil).Into(d.C.T, &v)
	return v
}

// Certified waits until the certificate is published and returns its text.
func (d *CreatedDeal) Certified(within time.Duration) []byte {
	d.C.T.Helper()
	var a Answer
	Eventually(d.C.T, "certificate of "+d.ID, within, func() bool {
		a = d.C.Do("GET", d.Path("/certificate"), d.Tokens[0], nil)
		return a.Status == 200
	})
	return a.Body
}

// Report is a verification report (SPEC 2.9).
type Report = wire.Report

func (c *Client) Verify(certID string) (r Report) {
	c.T.Helper()
	c.Want(200, "GET", "/v1/verify/"+certID, "", nil).Into(c.T, &r)
	return r
}

// Seen is a set. Its keys are the codes of all errors that this process has received.
var Seen sync.Map

type idempotentPost struct {
	C                *Client
	Path, Token, Key string
	Sent             any
}

// NewIdempotentPost prepares a POST with a new Idempotency-Key and does not send it.
func (c *Client) NewIdempotentPost(path, token string, sent any) idempotentPost {
	return idempotentPost{c, path, token, rand.Text(), sent}
}

// Want sends the request and requires the given response status.
func (o idempotentPost) Want(status int) Answer {
	o.C.T.Helper()
	return o.C.Want(status, "POST", o.Path, o.Token, o.Sent, "Idempotency-Key", o.Key)
}

// Replays sends the request again with the same Idempotency-Key, and requires the same response.
func (o idempotentPost) Replays(first Answer) {
	o.C.T.Helper()
	if a := o.Want(first.Status); !bytes.Equal(a.Body, first.Body) {
		o.C.T.Errorf("POST %s: the replay is %s, the first response was %s", o.Path, a.Body, first.Body)
	}
}

// Committed creates a two-party deal and makes both commits, so that the deal is REVEALING.
// Party 0 sends the given commitment. Party 1 sends other.Commitment.
func (c *Client) Committed(b Body, commitment string, other Sealed) *CreatedDeal {
	c.T.Helper()
	d := c.Create(b)
	c.Want(200, "POST", d.Path("/commit"), d.Tokens[0], Body{"commitment": commitment})
	d.Commit(1, other)
	return d
}
