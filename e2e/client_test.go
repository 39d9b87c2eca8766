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
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/canon"
)

// client calls one base URL. It fails the test where an error body has not the
// contract's form.
type client struct {
	t    testing.TB
	base string
	http *http.Client
}

func newClient(t testing.TB, base string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t, base, &http.Client{Transport: transport, Timeout: 60 * time.Second}}
}

type answer struct {
	status int
	header http.Header
	body   []byte
	last   bool // on its connection
}

// code is the upper-case code of an error body.
func (a answer) code() string {
	code, _, _ := strings.Cut(a.errorText(), ":")
	return code
}

func (a answer) errorText() string {
	var e struct{ Error string }
	_ = json.Unmarshal(a.body, &e)
	return e.Error
}

// into decodes the body.
func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%v in %.300s", err, a.body)
	}
}

// SPEC 7.1
var errorForm = regexp.MustCompile(`^[A-Z_]+: .+`)

// request makes a request; body is JSON text, or a value to encode, or nil.
// Header pairs follow it.
func (c *client) request(ctx context.Context, method, path, token string, body any, header ...string) (*http.Request, error) {
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
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, sent)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req, nil
}

// try sends a request. Only a transport failure is an error.
func (c *client) try(ctx context.Context, method, path, token string, body any, header ...string) (answer, error) {
	req, err := c.request(ctx, method, path, token, body, header...)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a := answer{resp.StatusCode, resp.Header, text, resp.Close}
	if err == nil && a.status >= 400 {
		seen.Store(a.code(), true)
	}
	return a, err
}

// do sends a request that must be answered, and holds both to the OpenAPI
// document that the service publishes.
func (c *client) do(method, path, token string, body any, header ...string) answer {
	c.t.Helper()
	a, err := c.try(c.t.Context(), method, path, token, body, header...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status >= 400 && method != http.MethodHead && !errorForm.MatchString(a.errorText()) {
		c.t.Errorf("%s %s: %d with a body that is no error of SPEC 7.1: %.200s", method, path, a.status, a.body)
	}
	sent, err := c.request(c.t.Context(), method, path, token, body, header...)
	if err == nil {
		err = published(c.t, c).describes(sent, a)
	}
	if err != nil {
		c.t.Errorf("%s %s: not as the OpenAPI document says: %.3000s", method, path, err)
	}
	return a
}

// want sends a request and requires its status.
func (c *client) want(status int, method, path, token string, body any, header ...string) answer {
	c.t.Helper()
	a := c.do(method, path, token, body, header...)
	if a.status != status {
		c.t.Fatalf("%s %s: %d, want %d: %.500s", method, path, a.status, status, a.body)
	}
	return a
}

// refused sends a request and requires a status and an error code.
func (c *client) refused(status int, code, method, path, token string, body any, header ...string) answer {
	c.t.Helper()
	a := c.do(method, path, token, body, header...)
	if a.status != status || a.code() != code {
		c.t.Errorf("%s %s: %d %.300s, want %d %s", method, path, a.status, a.body, status, code)
	}
	return a
}

func (c *client) key() string {
	c.t.Helper()
	var k struct {
		APIKey string `json:"api_key"`
	}
	c.want(201, "POST", "/v1/keys", "", nil).into(c.t, &k)
	return k.APIKey
}

// dealt is a created deal and all its credentials.
type dealt struct {
	c       *client
	ID      string
	Key     string
	Tokens  []string
	Warning string
}

type body = map[string]any

// splitBody is a two-party split that can be changed before it is sent.
func splitBody(commitIn, revealIn time.Duration) body {
	now := time.Now()
	return body{
		"algorithm": "split.v1", "party_labels": []string{"ann", "bob"},
		"commit_deadline": now.Add(commitIn).Unix(), "reveal_deadline": now.Add(revealIn).Unix(),
		"algorithm_params": body{"items": []string{"car", "boat"}},
	}
}

func randomBody(parties int, round int64, commitIn, revealIn time.Duration) body {
	b := splitBody(commitIn, revealIn)
	labels := make([]string, parties)
	for i := range labels {
		labels[i] = fmt.Sprintf("party %d", i)
	}
	b["algorithm"], b["party_labels"], b["algorithm_params"] = "random.v1", labels, body{"beacon_round": round}
	return b
}

func shapleyBody(commitIn, revealIn time.Duration) body {
	b := splitBody(commitIn, revealIn)
	b["algorithm"] = "shapley.v1"
	b["algorithm_params"] = body{"coalition_values": body{"ann": 60, "bob": 0, "ann,bob": 120}}
	return b
}

func (c *client) create(b body) *dealt {
	c.t.Helper()
	return c.createWith(c.key(), b)
}

func (c *client) createWith(key string, b body) *dealt {
	c.t.Helper()
	return c.created(key, c.want(201, "POST", "/v1/deals", key, b))
}

// created reads the answer to a creation.
func (c *client) created(key string, a answer) *dealt {
	c.t.Helper()
	var r struct {
		DealID  string `json:"deal_id"`
		Warning string
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	a.into(c.t, &r)
	d := &dealt{c: c, ID: r.DealID, Key: key, Warning: r.Warning}
	for _, i := range r.Invites {
		d.Tokens = append(d.Tokens, i.Token)
	}
	return d
}

// sealed is an input with its salt and commitment.
type sealed struct {
	Input      body
	Salt       string
	Commitment string
}

func seal(t testing.TB, input body) sealed {
	t.Helper()
	text, err := canon.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	salt := hex.EncodeToString(raw)
	return sealed{input, salt, canon.Commitment(text, []byte(salt))}
}

func (d *dealt) path(suffix string) string { return "/v1/deals/" + d.ID + suffix }

func (d *dealt) commit(party int, s sealed) answer {
	d.c.t.Helper()
	return d.c.want(200, "POST", d.path("/commit"), d.Tokens[party], body{"commitment": s.Commitment})
}

func (d *dealt) reveal(party int, s sealed) answer {
	d.c.t.Helper()
	return d.c.want(200, "POST", d.path("/reveal"), d.Tokens[party], body{"input": s.Input, "salt": s.Salt})
}

// play commits and then reveals every input, in party order.
func (d *dealt) play(inputs ...body) []sealed {
	d.c.t.Helper()
	all := make([]sealed, len(inputs))
	for i, in := range inputs {
		all[i] = seal(d.c.t, in)
		d.commit(i, all[i])
	}
	for i := range inputs {
		d.reveal(i, all[i])
	}
	return all
}

// view is the deal view (SPEC 2.4).
type view struct {
	DealID  string `json:"deal_id"`
	State   string
	Parties []struct {
		Index      int
		Label      string
		Committed  bool
		Commitment *string
		Revealed   bool
	}
	CommitsClosedAt *int64 `json:"commits_closed_at"`
	RevealsClosedAt *int64 `json:"reveals_closed_at"`
	ComputedAt      *int64 `json:"computed_at"`
	Result          json.RawMessage
	VoidFlakers     []int   `json:"void_flakers"`
	CertificateID   *string `json:"certificate_id"`
}

func (d *dealt) view() (v view) {
	d.c.t.Helper()
	d.c.want(200, "GET", d.path(""), d.Tokens[0], nil).into(d.c.t, &v)
	return v
}

// certified waits until the certificate is published and gives its text.
func (d *dealt) certified(within time.Duration) []byte {
	d.c.t.Helper()
	var a answer
	eventually(d.c.t, "certificate of "+d.ID, within, func() bool {
		a = d.c.do("GET", d.path("/certificate"), d.Tokens[0], nil)
		return a.status == 200
	})
	return a.body
}

// report is a verification (SPEC 2.9).
type report struct {
	CertID  string `json:"cert_id"`
	Valid   bool
	Outcome string
	Checks  struct {
		Signature bool
		InputRoot bool `json:"input_root_wellformed"`
		Inclusion bool `json:"merkle_inclusion"`
	}
	Note string
}

func (c *client) verify(certID string) (r report) {
	c.t.Helper()
	c.want(200, "GET", "/v1/verify/"+certID, "", nil).into(c.t, &r)
	return r
}
