package main

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const maxParties = 8

type dealState struct {
	phase                        string // the deal's state; COMMITTING also stands for OPEN
	committed, revealed, flakers [maxParties]bool
	failed                       [maxParties]bool   // parties whose seal does not open to the commitment
	commits, reveals             [maxParties]string // by party: Idempotency-Key of the request that took effect
	cancel                       string
}

// Steps of a deal that the clock or the worker takes, without a client's request.
const (
	stepCommitDeadline = "commit deadline"
	stepRevealDeadline = "reveal deadline"
	stepDraw           = "draw"
	stepSeal           = "seal" // one party's seal is opened
)

// model returns the sequential specification of one deal (SPEC 3): the legal answers to each
// call in each state. In the model, a request without an answer takes effect if the state allows
// it. If the request in fact had no effect, porcupine can place it after all views, so that no
// view contradicts the model.
func model(plan *Plan) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return dealState{phase: "COMMITTING"} },
		Step: func(s, in, _ any) (bool, any) {
			next := s.(dealState)
			legal := next.step(plan, in.(*Event))
			return legal, next
		},
	}
}

// step applies the event e to s, and reports whether the answer in e, if any, is legal.
func (s *dealState) step(plan *Plan, e *Event) bool {
	over := ended(s.phase)
	switch e.Op {
	case stepCommitDeadline:
		if s.phase == "COMMITTING" {
			s.void(plan, s.committed)
		}
		return true
	case stepRevealDeadline:
		if s.phase == "REVEALING" && !full(plan, s.revealed) && !s.awaitsSeals(plan) {
			s.void(plan, s.revealed)
		}
		return true
	case stepSeal:
		s.open(plan, e.Party)
		return true
	case stepDraw:
		if s.phase == "REVEALING" && full(plan, s.revealed) {
			s.phase = "COMPUTED"
		}
		return true
	case opCommit:
		can := s.phase == "COMMITTING" && !s.committed[e.Party] && before(e, plan.CommitDeadline)
		replay := s.commits[e.Party] == e.Key
		if !replay && can && (!e.answered() || e.acknowledged()) {
			s.committed[e.Party], s.commits[e.Party] = true, e.Key
			if full(plan, s.committed) {
				s.phase = "REVEALING"
			}
			return true
		}
		return answer(e, replay, map[string]bool{"ALREADY_COMMITTED": s.phase != "COMMITTING" || s.committed[e.Party], "DEADLINE_PASSED": over, "DEAL_ENDED": over})
	case opReveal:
		can := s.phase == "REVEALING" && !s.revealed[e.Party] && before(e, plan.RevealDeadline)
		replay := s.reveals[e.Party] == e.Key
		if !replay && can && (!e.answered() || e.acknowledged()) {
			s.revealed[e.Party], s.reveals[e.Party] = true, e.Key
			switch {
			case plan.Rejects[e.Party]:
				s.phase, s.flakers[e.Party] = "VOID", true
			case full(plan, s.revealed) && !plan.Random:
				s.phase = "COMPUTED"
			}
			return true
		}
		return answer(e, replay, map[string]bool{
			"ALREADY_REVEALED": s.revealed[e.Party], "COMMITS_MISSING": s.phase == "COMMITTING",
			"DEADLINE_PASSED": over || s.awaitsSeals(plan) && e.Return >= plan.RevealDeadline*int64(time.Second), "DEAL_ENDED": over})
	case opEntropy:
		if s.phase == "REVEALING" && full(plan, s.revealed) && (!e.answered() || e.acknowledged()) {
			s.phase = "COMPUTED"
		}
		return answer(e, s.phase == "COMPUTED", map[string]bool{"DEAL_ENDED": over, "REVEALS_MISSING": !full(plan, s.revealed)})
	case opCancel:
		others := slices.Contains(s.committed[1:], true)
		replay := s.cancel == e.Key
		if !replay && s.phase == "COMMITTING" && !others && before(e, plan.CommitDeadline) && (!e.answered() || e.acknowledged()) {
			s.phase, s.cancel = "CANCELLED", e.Key
			return true
		}
		return answer(e, replay, map[string]bool{"CANNOT_CANCEL": s.phase != "COMMITTING" || others})
	case opView:
		return s.shows(plan, e)
	case opCertificate:
		return answer(e, s.phase == "COMPUTED" || s.phase == "VOID", map[string]bool{"CERT_NOT_READY": true, "NO_CERTIFICATE": s.phase == "CANCELLED"})
	}
	return true
}

func answer(e *Event, success bool, codes map[string]bool) bool {
	return !e.answered() || e.acknowledged() && success || !e.acknowledged() && codes[e.Code]
}

// before can compare the two times, because the clients and the database use the same machine's clock.
func before(e *Event, deadline int64) bool { return e.Call < deadline*int64(time.Second) }

func full(plan *Plan, acted [maxParties]bool) bool {
	return !slices.Contains(acted[:len(plan.Inputs)], false)
}

func (s *dealState) void(plan *Plan, acted [maxParties]bool) {
	s.phase = "VOID"
	for i := range plan.Inputs {
		s.flakers[i] = !acted[i]
	}
}

// shows reports whether the view e shows state s. A view that was requested after a deadline
// must not show a deal that still waits for that deadline.
func (s *dealState) shows(plan *Plan, e *Event) bool {
	if !e.acknowledged() {
		return false
	}
	v := e.state()
	shown := s.phase
	if shown == "COMMITTING" && !slices.Contains(s.committed[:], true) {
		shown = "OPEN"
	}
	if v.State != shown || len(v.Parties) != len(plan.Inputs) ||
		s.phase == "COMMITTING" && !before(e, plan.CommitDeadline) ||
		s.phase == "REVEALING" && !full(plan, s.revealed) && !s.awaitsSeals(plan) && !before(e, plan.RevealDeadline) {
		return false
	}
	for i, p := range v.Parties {
		if p.Committed != s.committed[i] || p.Revealed != s.revealed[i] || slices.Contains(v.Flakers, i) != s.flakers[i] {
			return false
		}
	}
	return true
}

const never = math.MaxInt64

// operations converts a deal's events to operations for porcupine, and adds the two deadlines,
// the draw and the openings of seals. Of the unanswered attempts at a request, operations keeps only the first. This is
// enough: the interval of the first attempt contains the intervals of the later attempts, and at
// most one attempt takes effect.
func operations(plan *Plan, events []*Event) (ops []porcupine.Operation) {
	add := func(e *Event, until int64) {
		ops = append(ops, porcupine.Operation{Input: e, Call: e.Call, Return: until})
	}
	unanswered := map[string]bool{}
	for _, e := range events {
		switch e.Op {
		case opCommit, opReveal, opEntropy, opCancel:
			if !e.answered() && !unanswered[e.Op+e.Key] {
				unanswered[e.Op+e.Key] = true
				add(e, never)
			}
			fallthrough
		case opView, opCertificate:
			if e.answered() {
				add(e, e.Return)
			}
		}
	}
	add(&Event{Op: stepCommitDeadline, Call: plan.CommitDeadline * int64(time.Second)}, never)
	add(&Event{Op: stepRevealDeadline, Call: plan.RevealDeadline * int64(time.Second)}, never)
	if plan.Random {
		add(&Event{Op: stepDraw, Call: 0}, never)
	}
	for i := range plan.Seals {
		add(&Event{Op: stepSeal, Party: i, Call: plan.SealTime * int64(time.Second)}, never)
	}
	return ops
}
