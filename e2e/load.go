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

	"github.com/fairpact/fairpact/internal/canon"
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

// WithoutProof is the RFC 8785 form of a certificate without its log_proof, the
// one member that is made at each read. Its members may come in another order
// from another release: what is signed is this form.
func WithoutProof(certificate []byte) ([]byte, error) {
	members, err := canon.ParseObject(certificate)
	if err != nil {
		return nil, err
	}
	delete(members, "log_proof")
	return canon.Encode(members), nil
}

// Soaked is a deal of the stream, with all that was promised about it.
type Soaked struct {
	T    testing.TB
	S    *Stubborn
	Ctx  context.Context
	Past int64 // a beacon round that is out

	Id, key string
	Tokens  []string
	Inputs  []Sealed
	States  []string // in which the deal may end
	// promises are the answers that a repeated request must give again.
	Promises []Promise
	drawn    *Promise // the answer to entropy, which tells of the certificate later
}

func (d *Soaked) Play(n int) error {
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
		return d.part(ShapleyBody(far[0], far[1]), []string{"VOID"}, 2, 2, accept, reject)
	case 5:
		return d.part(split(near), []string{"VOID"}, 1, 0, AnnsValues, BobsValues)
	case 6:
		return d.part(split(near), []string{"VOID"}, 2, 1, AnnsValues, BobsValues)
	case 7: // all in time, or not
		return d.part(split(near), []string{"VOID", "COMPUTED"}, 2, 2, AnnsValues, BobsValues)
	case 8:
		return d.cancelled(split(far))
	default:
		return d.Whole(Retained(RandomBody(5, d.Past, far[0], far[1]), "open", "standard"), true,
			Body{"nonce": "a"}, Body{"nonce": "b"}, Body{"nonce": "c"}, Body{"nonce": "d"}, Body{"nonce": "e"})
	}
}

func Retained(b Body, mode, retention string) Body {
	b["mode"], b["retention"] = mode, retention
	return b
}

func (d *Soaked) Create(b Body, inputs ...Body) error {
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
	d.key = key.APIKey // its replay ends with its first use: no promise to keep
	if p, err = d.S.send(d.Ctx, "POST", "/v1/deals", d.key, b); err != nil {
		return err
	}
	d.Promises = append(d.Promises, p)
	made := d.S.Doors[0].Created(d.key, p.Answer)
	d.Id, d.Tokens = made.ID, made.Tokens
	for _, in := range inputs {
		d.Inputs = append(d.Inputs, Seal(d.T, in))
	}
	return nil
}

func (d *Soaked) act(action, token string, sent any) error {
	p, err := d.S.send(d.Ctx, "POST", "/v1/deals/"+d.Id+action, token, sent)
	if err == nil {
		d.Promises = append(d.Promises, p)
	}
	return err
}

// Acts has the first so many parties act, all at once where they are all.
func (d *Soaked) Acts(action string, parties int, sent func(Sealed) Body) error {
	errs, got := make([]error, parties), make([]Promise, parties)
	var wg sync.WaitGroup
	for i := range parties {
		wg.Go(func() {
			got[i], errs[i] = d.S.send(d.Ctx, "POST", "/v1/deals/"+d.Id+action, d.Tokens[i], sent(d.Inputs[i]))
		})
	}
	wg.Wait()
	for i, p := range got {
		if errs[i] == nil {
			d.Promises = append(d.Promises, p)
		}
	}
	return errors.Join(errs...)
}

func Committing(s Sealed) Body { return Body{"commitment": s.Commitment} }
func Revealing(s Sealed) Body  { return Body{"input": s.Input, "salt": s.Salt} }

// Whole plays a deal in which everybody acts in time: nothing may be refused.
func (d *Soaked) Whole(b Body, draws bool, inputs ...Body) error {
	d.States = []string{"COMPUTED"}
	err := d.Create(b, inputs...)
	if err == nil {
		err = d.Acts("/commit", len(inputs), Committing)
	}
	if err == nil {
		err = d.Acts("/reveal", len(inputs), Revealing)
	}
	if err == nil && draws {
		var p Promise
		p, err = d.S.send(d.Ctx, "POST", "/v1/deals/"+d.Id+"/entropy", d.Tokens[0], nil)
		d.drawn = &p
	}
	if err != nil {
		return err
	}
	return d.Certified()
}

// part plays a deal to which not all come, or too late, or to reject it.
func (d *Soaked) part(b Body, states []string, commits, reveals int, inputs ...Body) error {
	d.States = states
	err := d.Create(b, inputs...)
	if err == nil {
		err = d.Acts("/commit", commits, Committing)
	}
	if err == nil && reveals > 0 {
		err = d.Acts("/reveal", reveals, Revealing)
	}
	if r, refused := errors.AsType[*refusedError](err); refused {
		// Who is late is told so, and who was not is not named. Where the deal was
		// never made, there is nothing to hold it to.
		if slices.Contains([]string{"DEADLINE_PASSED", "DEAL_ENDED", "COMMITS_MISSING", "INVALID_REQUEST"}, r.a.Code()) {
			return nil
		}
	}
	return err
}

func (d *Soaked) cancelled(b Body) error {
	d.States = []string{"CANCELLED"}
	err := d.Create(b, AnnsValues, BobsValues)
	if err == nil {
		err = d.act("/commit", d.Tokens[0], Committing(d.Inputs[0]))
	}
	if err == nil {
		err = d.act("/cancel", d.key, nil)
	}
	return err
}

// Certified waits for the certificate, which stays the same but for its proof.
func (d *Soaked) Certified() error {
	for {
		p, err := d.S.send(d.Ctx, "GET", "/v1/deals/"+d.Id+"/certificate", d.Tokens[0], nil)
		if r, refused := errors.AsType[*refusedError](err); refused && r.a.Code() == "CERT_NOT_READY" {
			select {
			case <-d.Ctx.Done():
				return fmt.Errorf("no certificate: %w, at last %w", d.Ctx.Err(), err)
			case <-time.After(20 * time.Millisecond):
				continue
			}
		}
		if err == nil {
			d.Promises = append(d.Promises, p)
		}
		return err
	}
}

// Ended holds the deal, when all is over, against what was said about it.
func (d *Soaked) Ended() error {
	if d.Id == "" {
		return nil // its deadline came before it did
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
		return fmt.Errorf("it ended %s, not %v", v.State, d.States)
	}
	told := d.Promises
	if d.drawn != nil {
		told = append(slices.Clone(told), *d.drawn)
	}
	for _, p := range told {
		if err := d.true(p, v); err != nil {
			return err
		}
	}
	for _, p := range d.Promises {
		if err := p.stays(d.Ctx, d.S); err != nil {
			return err
		}
	}
	if v.State == "CANCELLED" {
		return nil
	}
	return d.verified(v)
}

// true holds one answer against the view of the ended deal.
func (d *Soaked) true(p Promise, v View) error {
	var told struct {
		State     string
		Party     int
		Committed bool
		Revealed  bool
		Result    json.RawMessage
	}
	if err := json.Unmarshal(p.Answer.Body, &told); err != nil {
		return err
	}
	party := v.Parties[told.Party]
	over := slices.Contains([]string{"COMPUTED", "VOID", "CANCELLED"}, told.State)
	switch {
	case over && told.State != v.State,
		over && string(told.Result) != "" && string(told.Result) != string(v.Result),
		told.Committed && (!party.Committed || *party.Commitment != d.Inputs[told.Party].Commitment),
		told.Revealed && !party.Revealed,
		(told.Committed || told.Revealed) && d.Tokens[told.Party] != p.token:
		return fmt.Errorf("%s %s was answered %s, and now the deal is %+v", p.Method, p.Path, p.Answer.Body, v)
	}
	return nil
}

// verified asks both deal-apis.
func (d *Soaked) verified(v View) error {
	for _, door := range d.S.Doors {
		a, err := door.Try(d.Ctx, "GET", "/v1/verify/"+*v.CertificateID, "", nil)
		if err != nil {
			return err
		}
		var r Report
		if err := json.Unmarshal(a.Body, &r); err != nil || a.Status != 200 || !r.Valid || r.Outcome != v.State {
			return fmt.Errorf("verification: %d %s", a.Status, a.Body)
		}
	}
	return nil
}

// Passes waits until so many more requests were sent.
func (s *Stubborn) Passes(ctx context.Context, requests int64) error {
	for until := s.Attempts.Load() + requests; s.Attempts.Load() < until; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the requests cease: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Valid has the certificate that the parties were given verified.
func (d *Soaked) Valid() error {
	var certificate struct {
		ID string `json:"cert_id"`
	}
	given := d.Promises[len(d.Promises)-1].Answer.Body
	if err := json.Unmarshal(given, &certificate); err != nil {
		return err
	}
	p, err := d.S.send(d.Ctx, "GET", "/v1/verify/"+certificate.ID, "", nil)
	if err != nil {
		return err
	}
	var verdict Report
	if err := json.Unmarshal(p.Answer.Body, &verdict); err != nil || !verdict.Valid {
		return fmt.Errorf("the certificate %s is answered %s (%v)", given, p.Answer.Body, err)
	}
	return nil
}
