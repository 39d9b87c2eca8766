package main

import (
	"context"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/drand"
	"github.com/fairpact/fairpact/internal/rules/timelock"
)

// The kinds of seals in Plan.Seals. A garbage seal passes all checks of a commitment, but opens for another party.
const (
	goodSeal    = "good"
	garbageSeal = "garbage"
)

// Deals with seals last more than a minute, until their round, or more than two, until their reveal
// deadline. So players do not wait for them, and the last of them begins sealedTail before the last fault.
const (
	sealedEvery = 500 * time.Millisecond
	sealedTail  = 60 * time.Second
)

var sealedKinds = []string{"sealed", "sealed reject", "half sealed", "half absent", "no sealed commit", "early by hand", "at the round", "garbage", "garbage by hand"}

// newSealedGame prepares a deal of one of the sealedKinds, of two parties.
func newSealedGame(c *client, kind string, chain drand.Chain) (*game, error) {
	g, err := newGame(c, "split", 0)
	if kind == "sealed reject" {
		g, err = newGame(c, "reject", 0)
	}
	if err != nil {
		return nil, err
	}
	by := time.Now().Add(4*time.Second + mathrand.N(6*time.Second)).Unix()
	p := &g.plan
	p.Kind, p.CommitDeadline, p.SealTime = kind, by, chain.RoundTime(timelock.RoundOf(chain, by))
	p.RevealDeadline = p.SealTime + timelock.Room
	p.Seals, g.hand, g.chain = []string{goodSeal, goodSeal}, make([]int64, 2), chain
	switch kind {
	case "half sealed":
		p.Seals[1], g.hand[1] = "", by
	case "half absent":
		p.Seals[1] = ""
	case "no sealed commit":
		g.absent = opCommit
	case "early by hand":
		g.hand[mathrand.IntN(2)] = by
	case "at the round":
		g.hand[0], g.hand[1] = p.SealTime, p.SealTime
	case "garbage":
		p.Seals[1] = garbageSeal
	case "garbage by hand":
		p.Seals[1], g.hand[1] = garbageSeal, p.SealTime+mathrand.Int64N(20)
	default:
		g.body["seals"] = "required"
	}
	e2e.Timed(g.body, p.CommitDeadline, p.RevealDeadline)
	return g, nil
}

// playSealed starts deals with seals until the time `until`, and waits for all of them.
func (c *campaign) playSealed(ctx, playing context.Context, until time.Time) {
	random := mathrand.New(mathrand.NewPCG(c.seed, players+2))
	var all sync.WaitGroup
	for time.Now().Before(until) && ctx.Err() == nil {
		kind := sealedKinds[random.IntN(len(sealedKinds))]
		all.Go(func() { c.play(playing, kind) })
		e2e.Pause(ctx, sealedEvery)
	}
	all.Wait()
}

// sealInputs makes the seals of the parties, which name the deal.
func (g *game) sealInputs() {
	g.seals = make([]string, len(g.plan.Seals))
	for i, kind := range g.plan.Seals {
		party := i
		switch kind {
		case "":
			continue
		case garbageSeal:
			party++
		}
		seal, err := g.plan.Inputs[i].Timelock(g.chain, g.id, party, g.plan.CommitDeadline)
		if err != nil {
			panic(err) // cannot happen: the input is an object
		}
		g.seals[i] = seal
	}
}

func (g *game) bodyOf(op string, party int) e2e.Body {
	b := g.plan.Inputs[party].Act(op)
	if op == opCommit && g.plan.Seals != nil && g.seals[party] != "" {
		b["seal"] = g.seals[party]
	}
	return b
}

// revealSealed reveals for the parties that reveal by hand, milliseconds before or after the time of g.hand, and
// waits for the round.
func (g *game) revealSealed(ctx context.Context) {
	var parties sync.WaitGroup
	for i, from := range g.hand {
		if from == 0 {
			continue
		}
		parties.Go(func() {
			e2e.Pause(ctx, time.Until(time.Unix(from, 0))+mathrand.N(300*time.Millisecond)-50*time.Millisecond)
			g.act(ctx, request{op: opReveal, path: "/" + opReveal, party: i, token: g.tokens[i], body: g.bodyOf(opReveal, i)}, "reveal_input")
		})
	}
	e2e.Pause(ctx, time.Until(time.Unix(g.plan.SealTime, 0)))
	parties.Wait()
}

// pause returns how long to wait between two reads of the deal: `short`, but longer for a deal with seals.
func (g *game) pause(short time.Duration) time.Duration {
	if g.plan.Seals != nil {
		return 10 * short
	}
	return short
}

func (g *game) sealStates() request {
	return get(opSeals, g.id, g.tokens[0], "/v1/deals/"+g.id+"/declaration")
}

// open opens a party's seal in the model. Rejections come last, and together.
func (s *dealState) open(plan *Plan, party int) {
	if s.phase != "REVEALING" || !s.pending(plan, party) {
		return
	}
	switch {
	case plan.Seals[party] == garbageSeal:
		s.failed[party] = true
	case !plan.Rejects[party]:
		s.revealed[party] = true
		if full(plan, s.revealed) {
			s.phase = "COMPUTED"
		}
	default:
		for i := range plan.Seals {
			if s.pending(plan, i) && (plan.Seals[i] == garbageSeal || !plan.Rejects[i]) {
				return
			}
		}
		for i := range plan.Seals {
			if s.pending(plan, i) {
				s.revealed[i], s.flakers[i] = true, true
			}
		}
		s.phase = "VOID"
	}
}

func (s *dealState) pending(plan *Plan, party int) bool {
	return plan.Seals[party] != "" && s.committed[party] && !s.revealed[party] && !s.failed[party]
}

func (s *dealState) awaitsSeals(plan *Plan) bool {
	for i := range plan.Seals {
		if s.pending(plan, i) {
			return true
		}
	}
	return false
}

// checkSeals checks the states of seals that the service shows.
func checkSeals(plan *Plan, events []*Event) (found []Violation) {
	for _, e := range events {
		if e.Op != opSeals || !e.acknowledged() {
			continue
		}
		var shown struct {
			Seals struct{ Parties []string }
		}
		_ = json.Unmarshal(e.Body, &shown) // no seal is shown before the first commitment, and after a deal that ended before its round
		for i, state := range shown.Seals.Parties {
			legal := map[string]bool{
				"none":   true,
				"sealed": plan.Seals[i] != "",
				"opened": plan.Seals[i] == goodSeal && e.Return >= plan.SealTime*int64(time.Second),
				"failed": plan.Seals[i] == garbageSeal && e.Return >= plan.SealTime*int64(time.Second),
			}[state]
			if !legal {
				found = append(found, Violation{Rule: "a seal opens if it is good, and not before its round", Text: fmt.Sprintf("the seal of party %d (%s) is %s", i, plan.Seals[i], state), Events: []*Event{e}})
			}
		}
	}
	return found
}
