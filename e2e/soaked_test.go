package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// soaked is a deal of the stream, with all that was promised about it.
type soaked struct {
	t    testing.TB
	s    *stubborn
	ctx  context.Context
	past int64 // a beacon round that is out

	id, key string
	tokens  []string
	inputs  []sealed
	states  []string // in which the deal may end
	// promises are the answers that a repeated request must give again.
	promises []promise
	drawn    *promise // the answer to entropy, which tells of the certificate later
}

func (d *soaked) play(n int) error {
	far, near := []time.Duration{time.Hour, 2 * time.Hour}, []time.Duration{2 * time.Second, 4 * time.Second}
	split := func(by []time.Duration) body { return splitBody(by[0], by[1]) }
	accept, reject := body{"accept": true}, body{"accept": false}
	switch n % 10 {
	case 0:
		return d.whole(split(far), false, annsValues, bobsValues)
	case 1:
		return d.whole(retained(split(far), "sealed", "purge"), false, annsValues, bobsValues)
	case 2:
		return d.whole(randomBody(3, d.past, far[0], far[1]), true, body{"nonce": "1"}, body{"nonce": "22"}, body{"nonce": ""})
	case 3:
		return d.whole(shapleyBody(far[0], far[1]), false, accept, accept)
	case 4:
		return d.part(shapleyBody(far[0], far[1]), []string{"VOID"}, 2, 2, accept, reject)
	case 5:
		return d.part(split(near), []string{"VOID"}, 1, 0, annsValues, bobsValues)
	case 6:
		return d.part(split(near), []string{"VOID"}, 2, 1, annsValues, bobsValues)
	case 7: // all in time, or not
		return d.part(split(near), []string{"VOID", "COMPUTED"}, 2, 2, annsValues, bobsValues)
	case 8:
		return d.cancelled(split(far))
	default:
		return d.whole(retained(randomBody(5, d.past, far[0], far[1]), "open", "standard"), true,
			body{"nonce": "a"}, body{"nonce": "b"}, body{"nonce": "c"}, body{"nonce": "d"}, body{"nonce": "e"})
	}
}

func retained(b body, mode, retention string) body {
	b["mode"], b["retention"] = mode, retention
	return b
}

func (d *soaked) create(b body, inputs ...body) error {
	p, err := d.s.send(d.ctx, "POST", "/v1/keys", "", nil)
	if err != nil {
		return err
	}
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(p.answer.body, &key); err != nil {
		return err
	}
	d.key = key.APIKey // its replay ends with its first use: no promise to keep
	if p, err = d.s.send(d.ctx, "POST", "/v1/deals", d.key, b); err != nil {
		return err
	}
	d.promises = append(d.promises, p)
	made := d.s.doors[0].created(d.key, p.answer)
	d.id, d.tokens = made.ID, made.Tokens
	for _, in := range inputs {
		d.inputs = append(d.inputs, seal(d.t, in))
	}
	return nil
}

func (d *soaked) act(action, token string, sent any) error {
	p, err := d.s.send(d.ctx, "POST", "/v1/deals/"+d.id+action, token, sent)
	if err == nil {
		d.promises = append(d.promises, p)
	}
	return err
}

// acts has the first so many parties act, all at once where they are all.
func (d *soaked) acts(action string, parties int, sent func(sealed) body) error {
	errs, got := make([]error, parties), make([]promise, parties)
	var wg sync.WaitGroup
	for i := range parties {
		wg.Go(func() {
			got[i], errs[i] = d.s.send(d.ctx, "POST", "/v1/deals/"+d.id+action, d.tokens[i], sent(d.inputs[i]))
		})
	}
	wg.Wait()
	for i, p := range got {
		if errs[i] == nil {
			d.promises = append(d.promises, p)
		}
	}
	return errors.Join(errs...)
}

func committing(s sealed) body { return body{"commitment": s.Commitment} }
func revealing(s sealed) body  { return body{"input": s.Input, "salt": s.Salt} }

// whole plays a deal in which everybody acts in time: nothing may be refused.
func (d *soaked) whole(b body, draws bool, inputs ...body) error {
	d.states = []string{"COMPUTED"}
	err := d.create(b, inputs...)
	if err == nil {
		err = d.acts("/commit", len(inputs), committing)
	}
	if err == nil {
		err = d.acts("/reveal", len(inputs), revealing)
	}
	if err == nil && draws {
		var p promise
		p, err = d.s.send(d.ctx, "POST", "/v1/deals/"+d.id+"/entropy", d.tokens[0], nil)
		d.drawn = &p
	}
	if err != nil {
		return err
	}
	return d.certified()
}

// part plays a deal to which not all come, or too late, or to reject it.
func (d *soaked) part(b body, states []string, commits, reveals int, inputs ...body) error {
	d.states = states
	err := d.create(b, inputs...)
	if err == nil {
		err = d.acts("/commit", commits, committing)
	}
	if err == nil && reveals > 0 {
		err = d.acts("/reveal", reveals, revealing)
	}
	if r, refused := errors.AsType[*refusedError](err); refused {
		// Who is late is told so, and who was not is not named. Where the deal was
		// never made, there is nothing to hold it to.
		if slices.Contains([]string{"DEADLINE_PASSED", "DEAL_ENDED", "COMMITS_MISSING", "INVALID_REQUEST"}, r.a.code()) {
			return nil
		}
	}
	return err
}

func (d *soaked) cancelled(b body) error {
	d.states = []string{"CANCELLED"}
	err := d.create(b, annsValues, bobsValues)
	if err == nil {
		err = d.act("/commit", d.tokens[0], committing(d.inputs[0]))
	}
	if err == nil {
		err = d.act("/cancel", d.key, nil)
	}
	return err
}

// certified waits for the certificate, which stays the same but for its proof.
func (d *soaked) certified() error {
	for {
		p, err := d.s.send(d.ctx, "GET", "/v1/deals/"+d.id+"/certificate", d.tokens[0], nil)
		if r, refused := errors.AsType[*refusedError](err); refused && r.a.code() == "CERT_NOT_READY" {
			select {
			case <-d.ctx.Done():
				return fmt.Errorf("no certificate: %w, at last %w", d.ctx.Err(), err)
			case <-time.After(20 * time.Millisecond):
				continue
			}
		}
		if err == nil {
			d.promises = append(d.promises, p)
		}
		return err
	}
}

// ended holds the deal, when all is over, against what was said about it.
func (d *soaked) ended() error {
	if d.id == "" {
		return nil // its deadline came before it did
	}
	p, err := d.s.send(d.ctx, "GET", "/v1/deals/"+d.id, d.key, nil)
	if err != nil {
		return err
	}
	var v view
	if err := json.Unmarshal(p.answer.body, &v); err != nil {
		return err
	}
	if !slices.Contains(d.states, v.State) {
		return fmt.Errorf("it ended %s, not %v", v.State, d.states)
	}
	told := d.promises
	if d.drawn != nil {
		told = append(slices.Clone(told), *d.drawn)
	}
	for _, p := range told {
		if err := d.true(p, v); err != nil {
			return err
		}
	}
	for _, p := range d.promises {
		if err := p.stays(d.ctx, d.s); err != nil {
			return err
		}
	}
	if v.State == "CANCELLED" {
		return nil
	}
	return d.verified(v)
}

// true holds one answer against the view of the ended deal.
func (d *soaked) true(p promise, v view) error {
	var told struct {
		State     string
		Party     int
		Committed bool
		Revealed  bool
		Result    json.RawMessage
	}
	if err := json.Unmarshal(p.answer.body, &told); err != nil {
		return err
	}
	party := v.Parties[told.Party]
	over := slices.Contains([]string{"COMPUTED", "VOID", "CANCELLED"}, told.State)
	switch {
	case over && told.State != v.State,
		over && string(told.Result) != "" && string(told.Result) != string(v.Result),
		told.Committed && (!party.Committed || *party.Commitment != d.inputs[told.Party].Commitment),
		told.Revealed && !party.Revealed,
		(told.Committed || told.Revealed) && d.tokens[told.Party] != p.token:
		return fmt.Errorf("%s %s was answered %s, and now the deal is %+v", p.method, p.path, p.answer.body, v)
	}
	return nil
}

// verified asks both deal-apis.
func (d *soaked) verified(v view) error {
	for _, door := range d.s.doors {
		a, err := door.try(d.ctx, "GET", "/v1/verify/"+*v.CertificateID, "", nil)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(a.body, &r); err != nil || a.status != 200 || !r.Valid || r.Outcome != v.State {
			return fmt.Errorf("verification: %d %s", a.status, a.body)
		}
	}
	return nil
}
