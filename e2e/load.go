package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

// RetryingClient is a client that repeats each request until the service answers it. A failed call, a
// status of 500 or more, and the code IDEMPOTENCY_IN_PROGRESS do not count as answers. Each attempt
// of a request goes to the next client in Clients, with the same Idempotency-Key.
type RetryingClient struct {
	Clients     []*Client    // one for each process to call, such as a deal-api
	Attempts    atomic.Int64 // number of attempts of all requests so far
	MaxFailures atomic.Int64 // the largest number of failed attempts of one request
}

// RecordedCall is a request and its successful response. A repetition must get the same response.
type RecordedCall struct {
	Method, Path, token, key string
	sent                     any
	Answer                   Answer
}

func (s *RetryingClient) send(ctx context.Context, method, path, token string, sent any) (RecordedCall, error) {
	p := RecordedCall{Method: method, Path: path, token: token, key: rand.Text(), sent: sent}
	a, err := s.Again(ctx, p)
	if err == nil && a.Status >= 300 {
		err = &refusedError{p, a}
	}
	p.Answer = a
	return p, err
}

// Again sends the request until the service answers it. The request may have been sent before.
func (s *RetryingClient) Again(ctx context.Context, p RecordedCall) (Answer, error) {
	var failures int64
	for door := int(s.Attempts.Add(1)); ; door++ {
		a, err := s.Clients[door%len(s.Clients)].Try(ctx, p.Method, p.Path, p.token, p.sent, "Idempotency-Key", p.key)
		if err == nil && a.Status < 500 && a.Code() != "IDEMPOTENCY_IN_PROGRESS" {
			return a, nil
		}
		if err != nil || a.Status >= 500 {
			failures++
			Raise(&s.MaxFailures, failures)
		}
		select {
		case <-ctx.Done():
			return Answer{}, fmt.Errorf("%s %s did not succeed in time: %w (last attempt: error %v, response %d %s)", p.Method, p.Path, ctx.Err(), err, a.Status, a.Body)
		case <-time.After(20 * time.Millisecond):
			s.Attempts.Add(1)
		}
	}
}

// Raise sets n to max(n, to).
func Raise(n *atomic.Int64, to int64) {
	for have := n.Load(); to > have && !n.CompareAndSwap(have, to); have = n.Load() {
	}
}

// refusedError is returned for a response with status 300 to 499.
type refusedError struct {
	p RecordedCall
	a Answer
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("%s %s was refused: %d %s", e.p.Method, e.p.Path, e.a.Status, e.a.Body)
}

// checkReplay sends the request of p again. It returns an error if the response differs from p.Answer,
// except in the log_proof of a certificate.
func (p RecordedCall) checkReplay(ctx context.Context, s *RetryingClient) error {
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
		return fmt.Errorf("%s %s: the first response was\n%d %s\nand the repeated one is\n%d %s", p.Method, p.Path, p.Answer.Status, was, a.Status, is)
	}
	return nil
}

// WithoutProof returns the RFC 8785 form of a certificate without log_proof. The log_proof may
// differ between reads, and the order of the members may differ between releases.
func WithoutProof(certificate []byte) ([]byte, error) {
	members, err := canon.ParseObject(certificate)
	if err != nil {
		return nil, err
	}
	delete(members, "log_proof")
	return canon.Encode(members), nil
}

// LoadDeal is a deal of a load test, with its requests and their responses.
type LoadDeal struct {
	T    testing.TB
	S    *RetryingClient
	Ctx  context.Context
	Past int64 // number of a beacon round that is already published

	Id, key string
	Tokens  []string
	Inputs  []Sealed
	States  []string // the states in which the deal may end
	// Calls are the requests that must have the same response when repeated.
	Calls []RecordedCall
	// drawn is the request POST /entropy. It is not in Calls, because the first response may lack
	// the certificate_id that the response to a repeated request has.
	drawn *RecordedCall
}

// Play runs one deal. The last digit of n selects one of ten kinds.
func (d *LoadDeal) Play(n int) error {
	far, near := []time.Duration{time.Hour, 2 * time.Hour}, []time.Duration{2 * time.Second, 4 * time.Second}
	split := func(by []time.Duration) Body { return SplitBody(by[0], by[1]) }
	accept, reject := Body{"accept": true}, Body{"accept": false}
	switch n % 10 {
	case 0:
		return d.Whole(split(far), false, AnnsValues, BobsValues)
	case 1:
		return d.Whole(Retained(split(far), "sealed", "purge"), false, AnnsValues, BobsValues)
	case 2:
		return d.Whole(RandomBody(3, d.Past, far[0], far[1]), true, Body{"nonce": "1"}, Body{"nonce": "22"}, Body{"nonce": ""})
	case 3:
		return d.Whole(ShapleyBody(far[0], far[1]), false, accept, accept)
	case 4:
		return d.playIncomplete(ShapleyBody(far[0], far[1]), []string{"VOID"}, 2, 2, accept, reject)
	case 5:
		return d.playIncomplete(split(near), []string{"VOID"}, 1, 0, AnnsValues, BobsValues)
	case 6:
		return d.playIncomplete(split(near), []string{"VOID"}, 2, 1, AnnsValues, BobsValues)
	case 7: // all parties act, but a deadline may pass first
		return d.playIncomplete(split(near), []string{"VOID", "COMPUTED"}, 2, 2, AnnsValues, BobsValues)
	case 8:
		return d.cancelled(split(far))
	default:
		return d.Whole(Retained(RandomBody(5, d.Past, far[0], far[1]), "open", "standard"), true,
			Body{"nonce": "a"}, Body{"nonce": "b"}, Body{"nonce": "c"}, Body{"nonce": "d"}, Body{"nonce": "e"})
	}
}

// Retained sets the members `mode` and `retention` in the body of a deal's creation.
func Retained(b Body, mode, retention string) Body {
	b["mode"], b["retention"] = mode, retention
	return b
}

// Create creates a deal with a new API key and seals the parties' inputs. It stores all in d.
func (d *LoadDeal) Create(b Body, inputs ...Body) error {
	p, err := d.S.send(d.Ctx, "POST", "/v1/keys", "", nil)
	if err != nil {
		return err
	}
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(p.Answer.Body, &key); err != nil {
		return err
	}
	// Calls must not get p: after the key's first use, the service no longer replays this response.
	d.key = key.APIKey
	if p, err = d.S.send(d.Ctx, "POST", "/v1/deals", d.key, b); err != nil {
		return err
	}
	d.Calls = append(d.Calls, p)
	made := d.S.Clients[0].Created(d.key, p.Answer)
	d.Id, d.Tokens = made.ID, made.Tokens
	for _, in := range inputs {
		d.Inputs = append(d.Inputs, Seal(d.T, in))
	}
	return nil
}

// Acts sends the commits or the reveals of the first `parties` parties of the deal, concurrently.
func (d *LoadDeal) Acts(action string, parties int) error {
	errs, got := make([]error, parties), make([]RecordedCall, parties)
	var wg sync.WaitGroup
	for i := range parties {
		wg.Go(func() {
			got[i], errs[i] = d.S.send(d.Ctx, "POST", "/v1/deals/"+d.Id+"/"+action, d.Tokens[i], d.Inputs[i].Act(action))
		})
	}
	wg.Wait()
	for i, p := range got {
		if errs[i] == nil {
			d.Calls = append(d.Calls, p)
		}
	}
	return errors.Join(errs...)
}

func (d *LoadDeal) played(b Body, commits, reveals int, inputs ...Body) error {
	err := d.Create(b, inputs...)
	if err == nil {
		err = d.Acts("commit", commits)
	}
	if err == nil {
		err = d.Acts("reveal", reveals)
	}
	return err
}

// Whole runs a deal in which all parties act in time, and waits for the certificate. It returns an
// error if a request is refused. If `draws` is true, party 0 also requests the entropy.
func (d *LoadDeal) Whole(b Body, draws bool, inputs ...Body) error {
	d.States = []string{"COMPUTED"}
	err := d.played(b, len(inputs), len(inputs), inputs...)
	if err == nil && draws {
		var p RecordedCall
		p, err = d.S.send(d.Ctx, "POST", "/v1/deals/"+d.Id+"/entropy", d.Tokens[0], nil)
		d.drawn = &p
	}
	if err != nil {
		return err
	}
	return d.Certified()
}

// playIncomplete runs a deal in which a party is missing, may be late, or rejects. The refusal of a late
// request is not an error. Invariants later checks void_flakers, the list of the parties at fault.
func (d *LoadDeal) playIncomplete(b Body, states []string, commits, reveals int, inputs ...Body) error {
	d.States = states
	err := d.played(b, commits, reveals, inputs...)
	if r, refused := errors.AsType[*refusedError](err); refused &&
		slices.Contains([]string{"DEADLINE_PASSED", "DEAL_ENDED", "COMMITS_MISSING", "INVALID_REQUEST"}, r.a.Code()) {
		return nil
	}
	return err
}

func (d *LoadDeal) cancelled(b Body) error {
	d.States = []string{"CANCELLED"}
	err := d.played(b, 1, 0, AnnsValues, BobsValues)
	if err != nil {
		return err
	}
	p, err := d.S.send(d.Ctx, "POST", "/v1/deals/"+d.Id+"/cancel", d.key, nil)
	if err == nil {
		d.Calls = append(d.Calls, p)
	}
	return err
}

// Certified waits for the certificate and adds the GET request to Calls. Later reads of the
// certificate may differ only in log_proof.
func (d *LoadDeal) Certified() error {
	for {
		p, err := d.S.send(d.Ctx, "GET", "/v1/deals/"+d.Id+"/certificate", d.Tokens[0], nil)
		if r, refused := errors.AsType[*refusedError](err); refused && r.a.Code() == "CERT_NOT_READY" {
			select {
			case <-d.Ctx.Done():
				return fmt.Errorf("no certificate of deal %s: %w; last response: %w", d.Id, d.Ctx.Err(), err)
			case <-time.After(20 * time.Millisecond):
				continue
			}
		}
		if err == nil {
			d.Calls = append(d.Calls, p)
		}
		return err
	}
}

// Ended compares the responses in Calls with the view of the ended deal, and repeats these
// requests. Unless the deal is CANCELLED, each deal-api must then verify the certificate.
func (d *LoadDeal) Ended() error {
	if d.Id == "" {
		return nil // the creation was refused because a deadline had passed
	}
	p, err := d.S.send(d.Ctx, "GET", "/v1/deals/"+d.Id, d.key, nil)
	if err != nil {
		return err
	}
	var v View
	if err := json.Unmarshal(p.Answer.Body, &v); err != nil {
		return err
	}
	if !slices.Contains(d.States, v.State) {
		return fmt.Errorf("the state of deal %s is %s, want one of %v", d.Id, v.State, d.States)
	}
	answered := d.Calls
	if d.drawn != nil {
		answered = append(slices.Clone(answered), *d.drawn)
	}
	for _, p := range answered {
		if err := d.true(p, v); err != nil {
			return err
		}
	}
	for _, p := range d.Calls {
		if err := p.checkReplay(d.Ctx, d.S); err != nil {
			return err
		}
	}
	if v.State == "CANCELLED" {
		return nil
	}
	return d.verified(v)
}

func (d *LoadDeal) true(p RecordedCall, v View) error {
	var was struct {
		State     string
		Party     int
		Committed bool
		Revealed  bool
		Result    json.RawMessage
	}
	if err := json.Unmarshal(p.Answer.Body, &was); err != nil {
		return err
	}
	party := v.Parties[was.Party]
	over := slices.Contains([]string{"COMPUTED", "VOID", "CANCELLED"}, was.State)
	switch {
	case over && was.State != v.State,
		over && string(was.Result) != "" && string(was.Result) != string(v.Result),
		was.Committed && (!party.Committed || *party.Commitment != d.Inputs[was.Party].Commitment),
		was.Revealed && !party.Revealed,
		(was.Committed || was.Revealed) && d.Tokens[was.Party] != p.token:
		return fmt.Errorf("%s %s: the response %s contradicts the ended deal %+v", p.Method, p.Path, p.Answer.Body, v)
	}
	return nil
}

func (d *LoadDeal) verified(v View) error {
	for _, door := range d.S.Clients {
		a, err := door.Try(d.Ctx, "GET", "/v1/verify/"+*v.CertificateID, "", nil)
		if err != nil {
			return err
		}
		var r Report
		if err := json.Unmarshal(a.Body, &r); err != nil || a.Status != 200 || !r.Valid || r.Outcome != v.State {
			return fmt.Errorf("GET /v1/verify/%s: %d %s, want 200, valid and outcome %s", *v.CertificateID, a.Status, a.Body, v.State)
		}
	}
	return nil
}

// Passes waits until s has sent the given number of further requests, repetitions included.
func (s *RetryingClient) Passes(ctx context.Context, requests int64) error {
	for until := s.Attempts.Load() + requests; s.Attempts.Load() < until; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("fewer than %d further requests were sent: %w", requests, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
