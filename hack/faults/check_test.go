package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairpact/fairpact/e2e"
)

const second = int64(1e9)

func twoParties() *Plan {
	return &Plan{CommitDeadline: 10, RevealDeadline: 20, Inputs: make([]e2e.Sealed, 2), Rejects: make([]bool, 2)}
}

// at returns an event of the deal with the id "d". Its request is sent at the unix time `tenths`,
// in tenths of a second. The answer arrives one nanosecond later, with the status and the body.
func at(tenths int64, op string, party, status int, body string) *Event {
	e := &Event{Op: op, Deal: "d", Party: party, Call: tenths * second / 10, Return: tenths*second/10 + 1, Status: status, Body: []byte(body)}
	if op == opCommit || op == opReveal || op == opCreate {
		e.Key = fmt.Sprint(op, party)
	}
	return e
}

func refused(tenths int64, op string, party int, code string) *Event {
	e := at(tenths, op, party, 409, `{}`)
	e.Code = code
	return e
}

func lost(e *Event) *Event {
	e.Return, e.Status = 0, 0
	return e
}

func under(key string, e *Event) *Event {
	e.Key = key
	return e
}

func view(tenths int64, state string, flakers string, acted ...string) *Event {
	var parties string
	for i, what := range acted {
		if i > 0 {
			parties += ","
		}
		parties += fmt.Sprintf(`{"committed":%v,"revealed":%v}`, what != "", what == "cr")
	}
	closed := "null"
	if !slices.Contains(acted, "") {
		closed = "9"
	}
	return at(tenths, opView, 0, 200, fmt.Sprintf(`{"state":%q,"void_flakers":%s,"commits_closed_at":%s,"parties":[%s]}`, state, flakers, closed, parties))
}

func certificate(tenths int64, deal, id string, leaf int) *Event {
	e := at(tenths, opCertificate, 0, 200, fmt.Sprintf(`{"cert_id":%q,"outcome":"VOID","void_flakers":[1],"log_proof":{"leaf_index":%d}}`, id, leaf))
	e.Deal = deal
	return e
}

func treeHead(tenths, size int64, root string) *Event {
	e := at(tenths, opHead, 0, 200, fmt.Sprintf(`{"tree_size":%d,"root_hash":%q}`, size, root))
	e.Deal = ""
	return e
}

func final(e *Event) *Event {
	e.Final = true
	return e
}

func TestCheck(t *testing.T) {
	created := at(0, opCreate, 0, 201, `{"deal_id":"d","state":"OPEN"}`)
	created.Plan = twoParties()
	commit := func(tenths int64, party int) *Event { return at(tenths, opCommit, party, 200, `{"committed":true}`) }
	reveal := func(tenths int64, party int) *Event { return at(tenths, opReveal, party, 200, `{"revealed":true}`) }
	forged := treeHead(1, 1, "")
	forged.Op = opConsistency
	refusedProof := treeHead(1, 1, "")
	refusedProof.Op, refusedProof.Status = opConsistency, 404
	forged.First, forged.Last = &head{Size: 1, Root: "aa"}, &head{Size: 2, Root: "bb"}
	const order = "a deal is linearizable"
	for _, c := range []struct {
		name   string
		events []*Event
		rules  []string // the broken rules that the function check must report
	}{
		{"a whole deal", []*Event{commit(1, 0), view(2, "COMMITTING", "null", "c", ""), commit(3, 1), reveal(4, 0), reveal(5, 1), view(6, "COMPUTED", "null", "cr", "cr")}, nil},
		{"a missed commit", []*Event{commit(1, 0), view(101, "VOID", "[1]", "c", ""), refused(102, opCommit, 1, "DEADLINE_PASSED")}, nil},
		{"an unanswered commit that takes effect", []*Event{commit(1, 0), lost(commit(2, 1)), view(3, "REVEALING", "null", "c", "c")}, nil},
		{"an unanswered commit without effect", []*Event{commit(1, 0), lost(commit(2, 1)), view(101, "VOID", "[1]", "c", "")}, nil},
		{"a replay after the end", []*Event{commit(1, 0), view(101, "VOID", "[1]", "c", ""), commit(102, 0)}, nil},
		{"a lost commit", []*Event{commit(1, 0), view(2, "OPEN", "null", "", "")}, []string{order}},
		{"a flaker who committed", []*Event{commit(1, 0), view(101, "VOID", "[0,1]", "c", "")}, []string{order}},
		{"a flaker who revealed", []*Event{commit(1, 0), commit(2, 1), reveal(3, 0), view(201, "VOID", "[0,1]", "cr", "c")}, []string{order}},
		{"a commit after its deadline", []*Event{commit(101, 0)}, []string{order}},
		{"a reveal after its deadline", []*Event{commit(1, 0), commit(2, 1), reveal(201, 0)}, []string{order}},
		{"a commit to a deal that is over", []*Event{view(1, "CANCELLED", "null", "", ""), commit(2, 0)}, []string{order}},
		{"an end before the deadline", []*Event{commit(1, 0), view(99, "VOID", "[1]", "c", "")}, []string{order}},
		{"an old view", []*Event{commit(1, 0), commit(2, 1), view(3, "COMMITTING", "null", "c", "c")}, []string{order}},
		{"a view that does not see the deadline", []*Event{commit(1, 0), view(101, "COMMITTING", "null", "c", "")}, []string{order}},
		{"two commits of one party", []*Event{commit(1, 0), under("other", commit(2, 0))}, []string{order}},
		{"two outcomes", []*Event{view(101, "VOID", "[0,1]", "", ""), view(102, "VOID", "[1]", "", "")}, []string{"a deal has one list of flakers", order}},
		{"a refusal without reason", []*Event{refused(1, opCommit, 0, "ALREADY_COMMITTED")}, []string{order}},
		{"an unknown credential", []*Event{at(1, opCertificate, 0, 403, `{}`)}, []string{"a legal request gets no error except 409", order}},
		{"two certificates", []*Event{view(101, "VOID", "[1]", "c", ""), commit(0, 0), certificate(102, "d", "x", 0), certificate(103, "d", "y", 0)}, []string{"a deal has one certificate", "a deal has one certificate id"}},
		{"two leaves", []*Event{view(101, "VOID", "[1]", "c", ""), commit(0, 0), certificate(102, "d", "x", 0), certificate(103, "d", "x", 1)}, []string{"a deal has one leaf"}},
		{"two deals on one leaf", []*Event{certificate(102, "e", "x", 0), certificate(103, "f", "y", 0)}, []string{"a leaf belongs to one deal"}},
		{"a leaf too many", []*Event{certificate(102, "e", "x", 0), final(treeHead(103, 2, "aa"))}, []string{"a deal has one leaf"}},
		{"create_deal could not read the new deal", []*Event{at(1, opCreate, 0, 200, `{"deal_id":"d","state":"OPEN","commit_deadline":1,"reveal_deadline":2}`)}, nil},
		{"two deals under one key", []*Event{at(1, opCreate, 0, 200, `{"deal_id":"e","state":"OPEN"}`)}, []string{"a replay is identical"}},
		{"two answers under one key", []*Event{commit(1, 0), at(2, opCommit, 0, 200, `{"committed":true,"next":""}`)}, []string{"a replay is identical"}},
		{"another body under a key", []*Event{commit(1, 0), under("commit0", at(2, opReuse, 0, 200, `{}`))}, []string{"a second body under one Idempotency-Key is refused"}},
		{"two roots", []*Event{treeHead(1, 3, "aa"), treeHead(2, 3, "bb")}, []string{"a tree size has one root"}},
		{"an older head", []*Event{treeHead(1, 3, "aa"), treeHead(2, 2, "bb")}, []string{"a later request never returns an older tree head"}},
		{"heads at the same moment", []*Event{treeHead(1, 3, "aa"), treeHead(1, 2, "bb")}, nil},
		{"a proof that is refused", []*Event{refusedProof}, []string{"tree heads are consistent"}},
		{"inconsistent heads", []*Event{forged}, []string{"tree heads are consistent"}},
		{"a certificate that the Python verifier refuses", []*Event{at(1, opVerify, 0, 0, `{}`)}, []string{"every certificate verifies"}},
		{"a deal without an end", []*Event{at(1, opUnfinished, 0, 0, `{}`)}, []string{"every deal ends"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var broken []string
			for _, v := range check(append([]*Event{created}, c.events...)) {
				if !slices.Contains(broken, v.Rule) {
					broken = append(broken, v.Rule)
				}
			}
			slices.Sort(broken)
			slices.Sort(c.rules)
			if !slices.Equal(broken, c.rules) {
				t.Errorf("check finds the broken rules %q, want %q", broken, c.rules)
			}
		})
	}
}

// In a deal of two parties with seals, whose round is due 5 s after the commit deadline, views and states of
// seals break these rules.
func TestCheckSeals(t *testing.T) {
	const order, opens = "a deal is linearizable", "a seal opens if it is good, and not before its round"
	both := []*Event{at(1, opCommit, 0, 200, `{"committed":true}`), at(2, opCommit, 1, 200, `{"committed":true}`)}
	states := func(tenths int64, first, second string) *Event {
		return at(tenths, opSeals, 0, 200, fmt.Sprintf(`{"seals":{"parties":[%q,%q]}}`, first, second))
	}
	for _, c := range []struct {
		name    string
		seals   []string
		rejects bool
		events  []*Event
		rules   []string
	}{
		{"both open", []string{goodSeal, goodSeal}, false, []*Event{view(149, "REVEALING", "null", "c", "c"), view(151, "REVEALING", "null", "cr", "c"), view(152, "COMPUTED", "null", "cr", "cr"), states(152, "opened", "opened")}, nil},
		{"a late round", []string{goodSeal, goodSeal}, false, []*Event{view(250, "REVEALING", "null", "c", "c"), states(250, "sealed", "sealed"), view(251, "COMPUTED", "null", "cr", "cr")}, nil},
		{"a reveal by hand before", []string{goodSeal, goodSeal}, false, []*Event{at(3, opReveal, 1, 200, `{"revealed":true}`), view(4, "REVEALING", "null", "c", "cr"), view(151, "COMPUTED", "null", "cr", "cr")}, nil},
		{"garbage", []string{goodSeal, garbageSeal}, false, []*Event{states(151, "opened", "failed"), view(151, "REVEALING", "null", "cr", "c"), view(201, "VOID", "[1]", "cr", "c")}, nil},
		{"a rejection", []string{goodSeal, goodSeal}, true, []*Event{view(151, "VOID", "[1]", "cr", "cr")}, nil},
		{"opened before the round", []string{goodSeal, goodSeal}, false, []*Event{view(149, "REVEALING", "null", "cr", "c"), states(149, "opened", "sealed")}, []string{order, opens}},
		{"a good seal fails", []string{goodSeal, goodSeal}, false, []*Event{states(151, "opened", "failed"), view(201, "VOID", "[1]", "cr", "c")}, []string{order, opens}},
		{"garbage opens", []string{goodSeal, garbageSeal}, false, []*Event{view(151, "COMPUTED", "null", "cr", "cr"), states(151, "opened", "opened")}, []string{order, opens}},
		{"VOID while a seal is pending", []string{goodSeal, ""}, false, []*Event{view(201, "VOID", "[0,1]", "c", "c")}, []string{order}},
		{"a failed seal takes the other reveal away", []string{goodSeal, garbageSeal}, false, []*Event{view(151, "REVEALING", "null", "cr", "c"), view(152, "REVEALING", "null", "c", "c")}, []string{order}},
		{"a rejection before the other seal is opened", []string{goodSeal, goodSeal}, true, []*Event{view(151, "VOID", "[1]", "c", "cr")}, []string{order}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := twoParties()
			plan.Seals, plan.SealTime, plan.Rejects[1] = c.seals, 15, c.rejects
			created := at(0, opCreate, 0, 201, `{"deal_id":"d","state":"OPEN"}`)
			created.Plan = plan
			var broken []string
			for _, v := range check(slices.Concat([]*Event{created}, both, c.events)) {
				if !slices.Contains(broken, v.Rule) {
					broken = append(broken, v.Rule)
				}
			}
			slices.Sort(broken)
			if !slices.Equal(broken, c.rules) {
				t.Errorf("check finds the broken rules %q, want %q", broken, c.rules)
			}
		})
	}
}
