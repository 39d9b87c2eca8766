package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/fairpact/fairpact/e2e"
)

// Violation is a broken rule, with the events that show it.
type Violation struct {
	Rule, Deal, Text string
	Events           []*Event
}

const everyDealEnds = "every deal ends"

// modelBound is how long checkLinearizable may search for an order of one deal's calls.
const modelBound = 10 * time.Second

func check(events []*Event) (found []Violation) {
	slices.SortStableFunc(events, func(a, b *Event) int { return cmp.Compare(a.Call, b.Call) })
	deals, plans := map[string][]*Event{}, map[string]*Plan{}
	for _, e := range events {
		if e.Deal != "" {
			deals[e.Deal] = append(deals[e.Deal], e)
		}
		if e.Plan != nil {
			plans[e.Deal] = e.Plan
		}
	}
	found = append(found, checkReplays(events)...)
	found = append(found, checkHeads(events)...)
	found = append(found, checkLeaves(events)...)
	for id, plan := range plans {
		for _, v := range slices.Concat(checkOutcomes(deals[id]), checkRefusals(deals[id]), checkSeals(plan, deals[id]), checkLinearizable(plan, deals[id])) {
			v.Deal = id
			found = append(found, v)
		}
	}
	return found
}

func checkOutcomes(events []*Event) (found []Violation) {
	seen := map[string]*Event{}
	same := func(what string, value any, e *Event) {
		text := fmt.Sprint(value)
		if first := seen[what]; first == nil {
			seen[what] = &Event{Note: text, Body: e.Body, Op: e.Op, Via: e.Via, Call: e.Call, Return: e.Return}
		} else if first.Note != text {
			found = append(found, Violation{Rule: "a deal has one " + what, Text: fmt.Sprintf("%.300s and %.300s", first.Note, text), Events: []*Event{first, e}})
		}
	}
	for _, e := range events {
		switch v := e.state(); {
		case !e.acknowledged():
		case e.Op == opCertificate:
			text, err := e2e.WithoutProof(e.Body)
			if err != nil {
				text = e.Body
			}
			same("certificate", string(text), e)
			c := e.certificate()
			same("certificate id", c.ID, e)
			same("leaf", fmt.Sprint(c.Proof.Leaf), e)
			same("outcome", c.Outcome, e)
			same("result", string(c.Result), e)
			same("list of flakers", fmt.Sprint(c.Flakers), e)
		case ended(v.State):
			same("outcome", v.State, e)
			if v.State == "COMPUTED" {
				same("result", string(v.Result), e)
			}
			if e.Op == opView {
				same("list of flakers", fmt.Sprint(v.Flakers), e)
			}
			if v.CertID != nil {
				same("certificate id", *v.CertID, e)
			}
		}
	}
	return found
}

// certified has the members of a certificate (SPEC 2.5) that checkOutcomes and checkLeaves need.
type certified struct {
	ID      string `json:"cert_id"`
	Outcome string
	Result  json.RawMessage
	Flakers []int `json:"void_flakers"`
	Proof   struct {
		Leaf int64 `json:"leaf_index"`
	} `json:"log_proof"`
}

func (e *Event) certificate() (c certified) {
	_ = json.Unmarshal(e.Body, &c) // if Body is unreadable, c stays empty and differs from every readable certificate
	return c
}

func checkRefusals(events []*Event) (found []Violation) {
	for _, e := range events {
		switch {
		case e.Op == opUnfinished:
			found = append(found, Violation{Rule: everyDealEnds, Text: e.Note, Events: []*Event{e}})
		case e.Op == opVerify && e.Status != 200:
			found = append(found, Violation{Rule: "every certificate verifies", Text: e.Note, Events: []*Event{e}})
		case e.answered() && e.Status >= 400 && e.Status != 409 && e.Op != opVerify:
			found = append(found, Violation{Rule: "a legal request gets no error except 409", Text: fmt.Sprintf("%s: %d %s", e.Op, e.Status, e.Code), Events: []*Event{e}})
		}
	}
	return found
}

func checkLinearizable(plan *Plan, events []*Event) []Violation {
	switch porcupine.CheckOperationsTimeout(model(plan), operations(plan, events), modelBound) {
	case porcupine.Illegal:
		return []Violation{{Rule: "a deal is linearizable", Text: "no order of these events explains all answers", Events: events}}
	case porcupine.Unknown:
		return []Violation{{Rule: "a deal is linearizable", Text: fmt.Sprintf("the search for an order has no verdict after %s: raise modelBound", modelBound), Events: events}}
	}
	return nil
}

// stored returns the part of an answer that a replay must repeat. For a creation, it removes the
// deadlines, because the MCP tool create_deal omits them if it cannot read the new deal.
func stored(e *Event) []byte {
	if e.Op != opCreate {
		return e.Body
	}
	return deadlines.ReplaceAll(e.Body, nil)
}

var deadlines = regexp.MustCompile(`,"(commit|reveal)_deadline":\d+`)

func checkReplays(events []*Event) (found []Violation) {
	first := map[string]*Event{}
	for _, e := range events {
		switch {
		case e.Key == "" || !e.answered():
		case e.Op == opReuse && e.Code != "IDEMPOTENCY_KEY_REUSED":
			found = append(found, Violation{Rule: "a second body under one Idempotency-Key is refused", Deal: e.Deal, Text: fmt.Sprintf("got %d %s, want IDEMPOTENCY_KEY_REUSED", e.Status, e.Code), Events: []*Event{first[e.Key], e}})
		case e.Op == opReuse || !e.acknowledged():
		case first[e.Key] == nil:
			first[e.Key] = e
		case !bytes.Equal(stored(first[e.Key]), stored(e)):
			found = append(found, Violation{Rule: "a replay is identical", Deal: e.Deal, Text: "the answers under one Idempotency-Key differ", Events: []*Event{first[e.Key], e}})
		}
	}
	return found
}

// checkHeads checks that all tree heads are consistent. After a client has received a tree head,
// no request that is sent later may return an older head.
func checkHeads(events []*Event) (found []Violation) {
	roots := map[int64]*Event{}
	var newest *Event // the largest head that a client received before the request of the current event
	answered := slices.DeleteFunc(slices.Clone(events), func(e *Event) bool { return e.Op != opHead || !e.acknowledged() })
	byReturn := slices.SortedStableFunc(slices.Values(answered), func(a, b *Event) int { return cmp.Compare(a.Return, b.Return) })
	for _, e := range answered { // in the order of Call, because check sorted the events
		h := e.head()
		if first := roots[h.Size]; first == nil {
			roots[h.Size] = e
		} else if first.head().Root != h.Root {
			found = append(found, Violation{Rule: "a tree size has one root", Text: fmt.Sprint("size ", h.Size), Events: []*Event{first, e}})
		}
		for ; len(byReturn) > 0 && byReturn[0].Return < e.Call; byReturn = byReturn[1:] {
			if newest == nil || byReturn[0].head().Size > newest.head().Size {
				newest = byReturn[0]
			}
		}
		if newest != nil && h.Size < newest.head().Size {
			found = append(found, Violation{Rule: "a later request never returns an older tree head", Text: fmt.Sprintf("size %d, requested after size %d was answered", h.Size, newest.head().Size), Events: []*Event{newest, e}})
		}
	}
	for _, e := range events {
		if e.Op != opConsistency || !e.answered() {
			continue
		}
		if err := consistent(e); err != nil {
			found = append(found, Violation{Rule: "tree heads are consistent", Text: err.Error(), Events: []*Event{e}})
		}
	}
	return found
}

func (e *Event) head() (h head) {
	_ = json.Unmarshal(e.Body, &h) // an unreadable head has size 0, so it counts as the oldest
	return h
}

func consistent(e *Event) error {
	if !e.acknowledged() {
		return fmt.Errorf("the log returned no consistency proof: status %d %s %s", e.Status, e.Code, e.Note)
	}
	var body struct {
		Path []string `json:"consistency_path"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	raw := make([][]byte, 0, len(body.Path)+2)
	for _, text := range append([]string{e.First.Root, e.Last.Root}, body.Path...) {
		hash, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		raw = append(raw, hash)
	}
	return proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(e.First.Size), uint64(e.Last.Size), raw[2:], raw[0], raw[1])
}

func checkLeaves(events []*Event) (found []Violation) {
	at := map[int64]*Event{}
	for _, e := range events {
		if e.Op != opCertificate || !e.acknowledged() {
			continue
		}
		c := e.certificate()
		if first := at[c.Proof.Leaf]; first == nil {
			at[c.Proof.Leaf] = e
		} else if first.Deal != e.Deal {
			found = append(found, Violation{Rule: "a leaf belongs to one deal", Deal: e.Deal, Text: fmt.Sprint("leaf ", c.Proof.Leaf), Events: []*Event{first, e}})
		}
	}
	var last *Event
	closed := map[string]bool{}  // deals with seals, each of which may have a second leaf, its closing
	created := map[string]bool{} // for the Idempotency-Key of each creation: whether any attempt was answered
	for _, e := range events {
		switch {
		case e.Op == opHead && e.Final && e.acknowledged():
			last = e
		case e.Op == opCreate:
			created[e.Key] = created[e.Key] || e.answered()
		case e.Op == opCommit && bytes.Contains(e.Body, []byte(`"opens_at"`)):
			closed[e.Deal] = true
		}
	}
	for _, answered := range created {
		if !answered {
			return found // a creation without an answer may have added a deal and a leaf that `events` does not show
		}
	}
	if last != nil && last.head().Size > int64(len(at)+len(closed)) {
		found = append(found, Violation{Rule: "a deal has one leaf", Text: fmt.Sprintf("%d leaves, %d certificates and %d deals with seals", last.head().Size, len(at), len(closed)), Events: []*Event{last}})
	}
	return found
}
