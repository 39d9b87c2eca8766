package api

import (
	"reflect"
	"slices"
	"testing"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/rules/certificate"
)

// standing is a deal in one state, with the expected view, certificate and refusals.
type standing struct {
	deal      *e2e.CreatedDeal
	inputs    []e2e.Sealed
	state     string
	committed []bool
	revealed  []bool
	flakers   []int // void_flakers of the view; nil unless the state is VOID
	result    bool

	commit, reveal, cancel, certificate string // the code of each refusal; empty if the call is accepted
}

func (s standing) ended() standing {
	s.commit, s.reveal, s.cancel = "DEAL_ENDED", "DEAL_ENDED", "CANNOT_CANCEL"
	return s
}

// inEachState returns two-party deals in every state that is reachable without an outage and without
// witnesses.
func inEachState(c *e2e.Client) map[string]standing {
	c.T.Helper()
	of := func(x *e2e.UnfinishedDeal, s standing) standing {
		s.deal, s.inputs = x.Deal, x.Inputs
		return s
	}
	late := func(miss e2e.Scenario) *e2e.UnfinishedDeal {
		x := e2e.Played(c.T, c, miss)
		e2e.Eventually(c.T, "the deal is VOID after its deadline", e2e.DefaultTimeout, func() bool { return x.Deal.View().State == "VOID" })
		return x
	}
	rejected := e2e.Open(c, shapley(), 2, 0, e2e.Body{"accept": false}, e2e.Body{"accept": true})
	rejected.Deal.Reveal(0, rejected.Inputs[0])
	cancelled := e2e.Open(c, split(), 1, 0, e2e.AnnsValues, e2e.BobsValues)
	c.Want(200, "POST", cancelled.Deal.Path("/cancel"), cancelled.Deal.Key, nil)
	no, one, two, second := []bool{false, false}, []bool{true, false}, []bool{true, true}, []bool{false, true}
	counter := e2e.Open(c, split(), 0, 0, e2e.AnnsValues, e2e.BobsValues)
	counter.Deal.Commit(1, counter.Inputs[1])

	const ready, none = "CERT_NOT_READY", "NO_CERTIFICATE"
	return map[string]standing{
		"open": of(e2e.Open(c, split(), 0, 0, e2e.AnnsValues, e2e.BobsValues), standing{state: "OPEN", committed: no, revealed: no,
			reveal: "COMMITS_MISSING", certificate: ready}),
		"committing, the initiator has committed": of(e2e.Open(c, split(), 1, 0, e2e.AnnsValues, e2e.BobsValues), standing{state: "COMMITTING", committed: one, revealed: no,
			reveal: "COMMITS_MISSING", certificate: ready}),
		"committing, the counterparty has committed": of(counter, standing{state: "COMMITTING", committed: second, revealed: no,
			commit: "ALREADY_COMMITTED", reveal: "COMMITS_MISSING", cancel: "CANNOT_CANCEL", certificate: ready}),
		"revealing": of(e2e.Open(c, split(), 2, 0, e2e.AnnsValues, e2e.BobsValues), standing{state: "REVEALING", committed: two, revealed: no,
			commit: "ALREADY_COMMITTED", cancel: "CANNOT_CANCEL", certificate: ready}),
		"revealing, the initiator has revealed": of(e2e.Open(c, split(), 2, 1, e2e.AnnsValues, e2e.BobsValues), standing{state: "REVEALING", committed: two, revealed: one,
			commit: "ALREADY_COMMITTED", cancel: "CANNOT_CANCEL", certificate: ready}),
		"revealed, before the draw": of(e2e.Open(c, random(2, farRound(c.T)), 2, 2, e2e.Body{"nonce": "1"}, e2e.Body{"nonce": "2"}), standing{state: "REVEALING", committed: two, revealed: two,
			commit: "ALREADY_COMMITTED", reveal: "ALREADY_REVEALED", cancel: "CANNOT_CANCEL", certificate: ready}),
		"computed": of(e2e.Open(c, split(), 2, 2, e2e.AnnsValues, e2e.BobsValues), standing{state: "COMPUTED", committed: two, revealed: two, result: true}.ended()),
		"void, a missed commit": of(late(e2e.MissedCommit), standing{state: "VOID", committed: one, revealed: no, flakers: []int{1},
			commit: "DEADLINE_PASSED", reveal: "DEADLINE_PASSED", cancel: "CANNOT_CANCEL"}),
		"void, a missed reveal": of(late(e2e.MissedReveal), standing{state: "VOID", committed: two, revealed: one, flakers: []int{1},
			commit: "DEADLINE_PASSED", reveal: "DEADLINE_PASSED", cancel: "CANNOT_CANCEL"}),
		"void, a rejection": of(rejected, standing{state: "VOID", committed: two, revealed: one, flakers: []int{0}}.ended()),
		"cancelled": of(cancelled, standing{state: "CANCELLED", committed: one, revealed: no,
			commit: "DEAL_ENDED", reveal: "DEAL_ENDED", cancel: "CANNOT_CANCEL", certificate: none}),
	}
}

func TestEachState(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for name, s := range inEachState(c) {
		t.Run(name, func(t *testing.T) {
			d := *s.deal
			d.C = newClient(t)
			if s.certificate == "" {
				d.Certified(e2e.DefaultTimeout)
			}
			before := d.C.Want(200, "GET", d.Path(""), d.Tokens[1], nil)
			s.shown(t, before.Body)
			for action, code := range map[string]string{"/commit": s.commit, "/reveal": s.reveal} {
				if code != "" {
					for range 2 {
						d.C.Refused(409, code, "POST", d.Path(action), d.Tokens[1], s.inputs[1].Act(action[1:]))
					}
				}
			}
			if s.cancel != "" {
				d.C.Refused(409, s.cancel, "POST", d.Path("/cancel"), d.Key, nil)
			}
			if s.state != "REVEALING" || !s.revealed[1] { // true for every deal except the random.v1 deal
				d.C.Refused(409, "WRONG_ALGORITHM", "POST", d.Path("/entropy"), d.Key, nil)
			}
			hidden := "INPUTS_SEALED"
			if s.state == "OPEN" || s.state == "COMMITTING" || s.state == "REVEALING" {
				hidden = "INPUTS_NOT_READY"
			}
			d.C.Refused(409, hidden, "GET", d.Path("/inputs"), d.Tokens[1], nil)
			if s.state != "COMPUTED" {
				d.C.Refused(409, hidden, "POST", d.Path("/disclose"), d.Tokens[1], e2e.Body{"input": e2e.Body{}})
			}
			if s.certificate != "" {
				d.C.Refused(409, s.certificate, "GET", d.Path("/certificate"), d.Tokens[1], nil)
			} else {
				s.attested(t, d.Certified(0))
			}
			for _, credential := range append(d.Tokens, d.Key) {
				if after := d.C.Want(200, "GET", d.Path(""), credential, nil); string(after.Body) != string(before.Body) {
					t.Errorf("the view has changed or differs between callers:\n%s\n%s", before.Body, after.Body)
				}
			}
		})
	}
}

// shown checks the answer to GET /v1/deals/{id}: its fields, and which are null (SPEC 2.4).
func (s standing) shown(t *testing.T, text []byte) {
	t.Helper()
	var v e2e.View
	var times struct {
		Created int64 `json:"created_at"`
		Commit  int64 `json:"commit_deadline"`
		Reveal  int64 `json:"reveal_deadline"`
	}
	e2e.Answer{Body: text}.Into(t, &v)
	e2e.Answer{Body: text}.Into(t, &times)
	allCommitted, allRevealed := !slices.Contains(s.committed, false), !slices.Contains(s.revealed, false)
	if v.State != s.state || v.DealID != s.deal.ID {
		t.Errorf("deal %s is in state %s, want %s in state %s", v.DealID, v.State, s.deal.ID, s.state)
	}
	for i, p := range v.Parties {
		if p.Committed != s.committed[i] || p.Revealed != s.revealed[i] || (p.Commitment != nil) != s.committed[i] {
			t.Errorf("party %d: %+v, want committed %v, revealed %v", i, p, s.committed[i], s.revealed[i])
		}
		if p.Commitment != nil && *p.Commitment != s.inputs[i].Commitment {
			t.Errorf("party %d: the view has the commitment %s, want %s", i, *p.Commitment, s.inputs[i].Commitment)
		}
	}
	for field, row := range map[string]struct {
		at   *int64
		want bool
		end  int64
	}{
		"commits_closed_at": {v.CommitsClosedAt, allCommitted, times.Commit},
		"reveals_closed_at": {v.RevealsClosedAt, allRevealed, times.Reveal},
		"computed_at":       {v.ComputedAt, s.result, times.Reveal},
	} {
		if (row.at != nil) != row.want {
			t.Errorf("%s is set: %v, want %v", field, row.at != nil, row.want)
		} else if row.want && (*row.at < times.Created || *row.at >= row.end) {
			t.Errorf("%s is %d, want at least %d and less than %d", field, *row.at, times.Created, row.end)
		}
	}
	if (string(v.Result) != "null") != s.result || !slices.Equal(v.VoidFlakers, s.flakers) || (v.VoidFlakers == nil) != (s.flakers == nil) {
		t.Errorf("result %s and void_flakers %v, want a result: %v, and %v", v.Result, v.VoidFlakers, s.result, s.flakers)
	}
	if (v.CertificateID != nil) != (s.certificate == "") {
		t.Errorf("certificate_id is set: %v, want %v", v.CertificateID != nil, s.certificate == "")
	}
}

// attested compares the certificate with the deal that the API shows (SPEC 2.5), and verifies the certificate.
func (s standing) attested(t *testing.T, text []byte) {
	t.Helper()
	cert, view := e2e.Decoded(t, text), e2e.Decoded(t, s.deal.C.Want(200, "GET", s.deal.Path(""), s.deal.Tokens[1], nil).Body)
	timing := cert["timing"].(e2e.Body)
	for _, field := range []string{"deal_id", "algorithm", "mode", "retention", "result", "void_flakers"} {
		if !reflect.DeepEqual(cert[field], view[field]) {
			t.Errorf("%s is %v in the certificate and %v in the view", field, cert[field], view[field])
		}
	}
	for _, field := range []string{"created_at", "commits_closed_at", "reveals_closed_at", "computed_at"} {
		if timing[field] != view[field] {
			t.Errorf("%s is %v in the certificate and %v in the view", field, timing[field], view[field])
		}
	}
	for i, shown := range view["parties"].([]any) {
		p, shown := cert["parties"].([]any)[i].(e2e.Body), shown.(e2e.Body)
		if p["index"] != shown["index"] || p["label"] != shown["label"] || p["commitment"] != shown["commitment"] || p["attested_by"] != "initiator" {
			t.Errorf("party %d is %v in the certificate and %v in the view", i, p, shown)
		}
	}
	if cert["cert_version"] != "1" || cert["cert_id"] != view["certificate_id"] || cert["outcome"] != s.state || (cert["input_root"] != nil) == slices.Contains(s.revealed, false) {
		t.Errorf("certificate %s, want version 1, id %v, outcome %s, and an input_root only if all have revealed", text, view["certificate_id"], s.state)
	}
	var properties []string
	for _, p := range cert["properties"].([]any) {
		properties = append(properties, p.(string))
	}
	digest, err := certificate.DeclarationIn(properties)
	if err != nil || digest == "" {
		t.Errorf("the properties %v have no digest of the declaration: %v", properties, err)
	}
	var want []string
	if slices.Contains(s.revealed, true) {
		want = append(want, "inputs-committed-before-reveal")
	}
	switch {
	case s.result:
		want = append(want, "deterministic-recomputable")
	case slices.Contains(s.committed, false):
		want = append(want, "void:missed-commit")
	case cert["algorithm"] == "shapley.v1":
		want = append(want, "void:rejected")
	default:
		want = append(want, "void:missed-reveal")
	}
	if want = append(want, certificate.DeclarationProperty(digest), "logged"); !slices.Equal(properties, want) {
		t.Errorf("properties %v, want %v", properties, want)
	}
	if r := s.deal.C.Verify(cert["cert_id"].(string)); !r.Valid || r.Outcome != s.state || !r.Checks.Signature || !r.Checks.InputRoot || !r.Checks.Inclusion {
		t.Errorf("verification report %+v, want valid in every check with outcome %s", r, s.state)
	}
}
