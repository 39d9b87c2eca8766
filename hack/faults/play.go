package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/drand"
)

type game struct {
	c      *client
	plan   Plan
	body   e2e.Body
	late   string // what the last party does only after the deadline: opCommit, opReveal or ""
	absent string // what the last party never does: opCommit, opReveal or ""
	cancel bool   // the initiator cancels while the parties commit

	id, key string
	tokens  []string
	mu      sync.Mutex
	kept    []request // acknowledged requests; the method settle sends them again

	chain drand.Chain // of the seals
	hand  []int64     // by party, of a deal with seals: unix time at which the party reveals by hand, or 0
	seals []string    // by party
}

var gameKinds = []string{"split", "purge", "random", "shapley", "reject", "no commit", "no reveal", "late commit", "late reveal", "cancel"}

// newGame prepares a deal of one of the gameKinds. The parameter `past` is the number of a beacon
// round that is already published.
func newGame(c *client, kind string, past int64) (*game, error) {
	far, soon := time.Hour, 2*time.Second+mathrand.N(time.Second)
	g := &game{c: c, body: e2e.SplitBody(far, 2*far)}
	inputs := []e2e.Body{e2e.AnnsValues, e2e.BobsValues}
	accept, reject := e2e.Body{"accept": true}, e2e.Body{"accept": false}
	switch kind {
	case "purge":
		g.body = e2e.Retained(g.body, "sealed", "purge")
	case "random":
		inputs = []e2e.Body{{"nonce": "a1"}, {"nonce": ""}, {"nonce": "c3"}}
		g.body = e2e.RandomBody(len(inputs), past, far, 2*far)
		g.plan.Random = true
	case "shapley":
		g.body, inputs = e2e.ShapleyBody(far, 2*far), []e2e.Body{accept, accept}
	case "reject":
		g.body, inputs = e2e.ShapleyBody(far, 2*far), []e2e.Body{accept, reject}
		g.plan.Rejects = []bool{false, true}
	case "no commit":
		g.body, g.absent = e2e.SplitBody(soon, 2*soon), opCommit
	case "late commit":
		g.body, g.late = e2e.SplitBody(soon, 2*soon), opCommit
	case "no reveal":
		g.body, g.absent = e2e.SplitBody(soon, soon+2*time.Second), opReveal
	case "late reveal":
		g.body, g.late = e2e.SplitBody(soon, soon+2*time.Second), opReveal
	case "cancel":
		g.body, g.cancel = e2e.SplitBody(2*soon, 3*soon), true
	}
	g.plan.Kind, g.plan.Params = kind, g.body["algorithm_params"].(e2e.Body)
	g.plan.CommitDeadline, g.plan.RevealDeadline = g.body["commit_deadline"].(int64), g.body["reveal_deadline"].(int64)
	if g.plan.Rejects == nil {
		g.plan.Rejects = make([]bool, len(inputs))
	}
	for _, in := range inputs {
		sealed, err := e2e.NewSealed(in)
		if err != nil {
			return nil, err
		}
		g.plan.Inputs = append(g.plan.Inputs, sealed)
	}
	return g, nil
}

// play creates the deal, sends the requests of its parties, and reports whether the deal was
// created. Unless the last party never commits or never reveals (g.absent), play also waits until
// the deal has its certificate or can never get one. If ctx ends, play returns early.
func (g *game) play(ctx context.Context, apiKey string) bool {
	g.key = apiKey
	create := request{op: opCreate, key: rand.Text(), method: http.MethodPost, path: "/v1/deals", token: apiKey, body: g.body}
	create = create.overMCP("create_deal", e2e.Body{"api_key": apiKey})
	e := g.c.sendUntilAnswered(ctx, create, func(e *Event) { e.Deal, e.Plan = e.state().DealID, &g.plan })
	if e == nil || !e.acknowledged() {
		return false // ctx ended, or the commit deadline passed before the creation
	}
	made := e.state()
	g.id = made.DealID
	for _, t := range made.Tokens {
		g.tokens = append(g.tokens, t.Token)
	}
	create.deal = g.id
	g.keep(create)
	g.sealInputs()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { g.watch(ctx, over) })
	g.acts(ctx)
	close(over)
	watching.Wait()
	return true
}

func (g *game) acts(ctx context.Context) {
	var canceling sync.WaitGroup
	if g.cancel {
		canceling.Go(func() {
			e2e.Pause(ctx, mathrand.N(200*time.Millisecond))
			g.act(ctx, request{op: opCancel, path: "/cancel", token: g.key, body: e2e.Body{}}, "")
		})
	}
	all := g.everybody(ctx, opCommit, g.plan.CommitDeadline)
	canceling.Wait()
	if all && g.plan.Seals != nil {
		g.revealSealed(ctx)
	} else if all && g.everybody(ctx, opReveal, g.plan.RevealDeadline) && g.plan.Random {
		for ctx.Err() == nil {
			e := g.c.sendUntilAnswered(ctx, request{op: opEntropy, deal: g.id, method: http.MethodPost, path: "/v1/deals/" + g.id + "/entropy", token: g.tokens[0]}, nil)
			if e == nil || e.acknowledged() || e.Code == "DEAL_ENDED" {
				break
			}
			e2e.Pause(ctx, 100*time.Millisecond)
		}
	}
	for ctx.Err() == nil {
		if e := g.certificate(ctx); e == nil || e.Code != "CERT_NOT_READY" || g.absent != "" {
			return
		}
		e2e.Pause(ctx, g.pause(100*time.Millisecond))
	}
}

// everybody sends the commits or the reveals (op) of all parties concurrently. The last party
// sends nothing if g.absent is op, and waits for the deadline if g.late is op. The result is true
// if every party sent its request and the service acknowledged all of them.
func (g *game) everybody(ctx context.Context, op string, deadline int64) bool {
	var parties sync.WaitGroup
	done := make([]bool, len(g.tokens))
	for i, token := range g.tokens {
		last := i == len(g.tokens)-1
		if last && g.absent == op {
			continue
		}
		parties.Go(func() {
			if g.cancel && op == opCommit {
				e2e.Pause(ctx, mathrand.N(200*time.Millisecond))
			}
			if last && g.late == op {
				e2e.Pause(ctx, time.Until(time.Unix(deadline, 0))+mathrand.N(50*time.Millisecond))
			}
			tool := map[string]string{opCommit: "commit_input", opReveal: "reveal_input"}[op]
			e := g.act(ctx, request{op: op, path: "/" + op, party: i, token: token, body: g.bodyOf(op, i)}, tool)
			done[i] = e != nil && e.acknowledged()
		})
	}
	parties.Wait()
	for _, ok := range done {
		if !ok {
			return false
		}
	}
	return true
}

// act sends r, with retries, and returns the first final answer, or nil if ctx ends first. After a
// success, act sends r again with probability 1/4. If r is a commit over REST, act also has a chance
// of 1/4 to send a different body under the same Idempotency-Key instead.
func (g *game) act(ctx context.Context, r request, tool string) *Event {
	r.deal, r.key, r.method, r.path = g.id, rand.Text(), http.MethodPost, "/v1/deals/"+g.id+r.path
	if tool != "" {
		r = r.overMCP(tool, e2e.Body{"deal_id": g.id, "invite_token": r.token})
	}
	e := g.c.sendUntilAnswered(ctx, r, nil)
	if e == nil || !e.acknowledged() {
		return e
	}
	g.keep(r)
	switch mathrand.IntN(4) {
	case 0:
		g.c.sendUntilAnswered(ctx, r, nil)
	case 1:
		if r.op == opCommit && r.tool == "" {
			other := r
			other.op, other.body = opReuse, g.plan.Inputs[(r.party+1)%len(g.tokens)].Act(opCommit)
			g.c.sendUntilAnswered(ctx, other, nil)
		}
	}
	return e
}

func (g *game) keep(r request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept = append(g.kept, r)
}

func (g *game) watch(ctx context.Context, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-time.After(mathrand.N(g.pause(400 * time.Millisecond))):
		}
		g.c.h.add(g.c.try(ctx, g.view(), mathrand.IntN(len(g.c.doors))))
		if g.plan.Seals != nil {
			g.c.h.add(g.c.try(ctx, g.sealStates(), mathrand.IntN(len(g.c.doors))))
		}
	}
}

func (g *game) view() request {
	r := get(opView, g.id, g.tokens[0], "/v1/deals/"+g.id)
	return r.overMCP("get_deal", e2e.Body{"deal_id": g.id, "invite_token": g.tokens[0]})
}

func (g *game) certificate(ctx context.Context) *Event {
	r := get(opCertificate, g.id, g.tokens[0], "/v1/deals/"+g.id+"/certificate")
	return g.c.sendUntilAnswered(ctx, r.overMCP("get_certificate", e2e.Body{"deal_id": g.id, "invite_token": g.tokens[0]}), nil)
}

// settle is called after all faults have ended. It waits for the end of the deal. If ctx ends
// first, settle records opUnfinished and returns. Otherwise it reads the deal and its certificate
// again, repeats each acknowledged request, and has the Python verifier check the certificate.
func (g *game) settle(ctx context.Context, c *client, dir string) {
	g.c = c
	for {
		e := g.c.sendUntilAnswered(ctx, g.view(), nil)
		if e != nil && ended(e.state().State) && (e.state().CertID != nil || e.state().State == "CANCELLED") {
			break
		}
		if ctx.Err() != nil {
			c.h.add(&Event{Op: opUnfinished, Deal: g.id, Call: now(), Return: now(), Final: true, Note: fmt.Sprintf("the last view: %+v", e)})
			return
		}
		e2e.Pause(ctx, 200*time.Millisecond)
	}
	var certificate *Event
	for range 2 {
		g.c.sendUntilAnswered(ctx, g.view(), nil)
		certificate = g.certificate(ctx)
	}
	if g.plan.Seals != nil {
		g.c.sendUntilAnswered(ctx, g.sealStates(), nil)
	}
	for _, r := range g.kept {
		g.c.sendUntilAnswered(ctx, r, func(e *Event) { e.Deal = e.state().DealID })
	}
	if certificate != nil && certificate.acknowledged() {
		c.h.add(g.verified(certificate, dir))
	}
}

// verified runs the Python verifier on a certificate. The returned event has status 200 if the
// verifier accepts the certificate. If all parties have revealed, the verifier also recomputes
// the result.
func (g *game) verified(certificate *Event, dir string) *Event {
	e := &Event{Op: opVerify, Deal: g.id, Final: true, Call: now()}
	var shown struct {
		Root *string `json:"input_root"`
	}
	err := json.Unmarshal(certificate.Body, &shown)
	args := []string{"--base-url", g.c.doors[0].Base}
	give := func(flag string, content any) {
		path, failed := writeJSON(dir, content)
		if err == nil {
			err = failed
		}
		args = append(args, flag, path)
	}
	give("--certificate", certificate.Body)
	if shown.Root != nil {
		var inputs []e2e.Body
		for _, in := range g.plan.Inputs {
			inputs = append(inputs, in.Act(opReveal))
		}
		give("--inputs", inputs)
		give("--params", g.plan.Params)
	}
	var accepted bool
	if err == nil {
		accepted, e.Note, err = e2e.RunVerifier(args...)
	}
	if err != nil {
		e.Note = err.Error()
	}
	if accepted {
		e.Status, e.Note = http.StatusOK, ""
	}
	e.Return = now()
	return e
}
