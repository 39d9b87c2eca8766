package deal

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/rules/problem"
)

var (
	idle      = Party{Index: 1}
	committed = Party{Index: 1, Committed: true}
	revealed  = Party{Index: 1, Committed: true, Revealed: true}
)

func code(r *problem.Error) string {
	if r == nil {
		return "ok"
	}
	return string(r.Code)
}

func void(flakers ...int) Deal {
	d := ended(Void)
	d.VoidFlakers = flakers
	return d
}

func TestCommitAndReveal(t *testing.T) {
	for _, row := range []struct {
		what           string
		deal           Deal
		party          Party
		now            int64
		commit, reveal string
	}{
		{"OPEN", committing(0), idle, 50, "ok", "COMMITS_MISSING"},
		{"OPEN, the last second", committing(0), idle, 99, "ok", "COMMITS_MISSING"},
		{"COMMITTING, another has committed", committing(1), idle, 99, "ok", "COMMITS_MISSING"},
		{"COMMITTING, at the deadline", committing(1), idle, 100, "DEADLINE_PASSED", "COMMITS_MISSING"},
		{"COMMITTING, the party has committed", committing(1), committed, 50, "ALREADY_COMMITTED", "COMMITS_MISSING"},
		{"REVEALING", revealing(0), committed, 150, "ALREADY_COMMITTED", "ok"},
		{"REVEALING, the last second", revealing(1), committed, 199, "ALREADY_COMMITTED", "ok"},
		{"REVEALING, at the deadline", revealing(1), committed, 200, "ALREADY_COMMITTED", "DEADLINE_PASSED"},
		{"REVEALING, the party has revealed", revealing(1), revealed, 150, "ALREADY_COMMITTED", "ALREADY_REVEALED"},
		{"REVEALING, read before the party's own commit", revealing(0), idle, 150, "ALREADY_COMMITTED", "ok"},
		{"random.v1 waiting for its round", drawing(2), revealed, 250, "ALREADY_COMMITTED", "ALREADY_REVEALED"},
		{"VOID, the party missed its commit", void(1), idle, 150, "DEADLINE_PASSED", "DEADLINE_PASSED"},
		{"VOID, the party missed its reveal", void(1), committed, 250, "DEADLINE_PASSED", "DEADLINE_PASSED"},
		{"VOID, another was late", void(0), committed, 250, "DEAL_ENDED", "DEAL_ENDED"},
		{"VOID, the party rejected", void(1), revealed, 150, "DEAL_ENDED", "DEAL_ENDED"},
		{"COMPUTED", ended(Computed), revealed, 150, "DEAL_ENDED", "DEAL_ENDED"},
		{"CERTIFIED", ended(Certified), revealed, 150, "DEAL_ENDED", "DEAL_ENDED"},
		{"EXPIRED", ended(Expired), revealed, 9999, "DEAL_ENDED", "DEAL_ENDED"},
		{"CANCELLED", ended(Cancelled), idle, 50, "DEAL_ENDED", "DEAL_ENDED"},
	} {
		t.Run(row.what, func(t *testing.T) {
			if got := code(row.deal.Commit(row.party, row.now)); got != row.commit {
				t.Errorf("Commit(%+v, %d) = %s, want %s", row.party, row.now, got, row.commit)
			}
			if got := code(row.deal.Reveal(row.party, row.now)); got != row.reveal {
				t.Errorf("Reveal(%+v, %d) = %s, want %s", row.party, row.now, got, row.reveal)
			}
		})
	}
}

func TestEntropy(t *testing.T) {
	random := func(d Deal) Deal {
		d.RoundTime = new(int64(300))
		return d
	}
	for _, row := range []struct {
		what string
		deal Deal
		now  int64
		want string
	}{
		{"not random.v1", revealing(1), 350, "WRONG_ALGORITHM"},
		{"not random.v1, COMPUTED", ended(Computed), 350, "WRONG_ALGORITHM"},
		{"OPEN", random(committing(0)), 50, "REVEALS_MISSING"},
		{"COMMITTING", random(committing(1)), 50, "REVEALS_MISSING"},
		{"one reveal is missing", drawing(1), 150, "REVEALS_MISSING"},
		{"one reveal is missing, the round is published", drawing(1), 350, "REVEALS_MISSING"},
		{"complete, the second before the round", drawing(2), 299, "BEACON_NOT_READY"},
		{"complete, the round is published", drawing(2), 300, "ok"},
		{"COMPUTED", random(ended(Computed)), 350, "ok"},
		{"CERTIFIED", random(ended(Certified)), 350, "ok"},
		{"EXPIRED", random(ended(Expired)), 9999, "DEAL_ENDED"},
		{"VOID", random(ended(Void)), 350, "DEAL_ENDED"},
		{"CANCELLED", random(ended(Cancelled)), 350, "DEAL_ENDED"},
	} {
		if got := code(row.deal.Entropy(row.now)); got != row.want {
			t.Errorf("%s: Entropy(%d) = %s, want %s", row.what, row.now, got, row.want)
		}
	}
}

// SPEC 3: a deal can be cancelled until a counterparty commits.
func TestCancel(t *testing.T) {
	for _, row := range []struct {
		what      string
		deal      Deal
		initiator bool
		want      string
	}{
		{"OPEN", committing(0), false, "ok"},
		{"only the initiator has committed", committing(1), true, "ok"},
		{"a counterparty has committed", committing(1), false, "CANNOT_CANCEL"},
		{"both have committed", committing(2), true, "CANNOT_CANCEL"},
		{"REVEALING", revealing(0), true, "CANNOT_CANCEL"},
		{"random.v1 waiting for its round", drawing(2), true, "CANNOT_CANCEL"},
		{"CANCELLED already", ended(Cancelled), false, "CANNOT_CANCEL"},
		{"COMPUTED", ended(Computed), true, "CANNOT_CANCEL"},
		{"VOID", ended(Void), true, "CANNOT_CANCEL"},
		{"EXPIRED", ended(Expired), true, "CANNOT_CANCEL"},
		{"CERTIFIED", ended(Certified), true, "CANNOT_CANCEL"},
	} {
		if got := code(row.deal.Cancel(row.initiator)); got != row.want {
			t.Errorf("%s: Cancel(%v) = %s, want %s", row.what, row.initiator, got, row.want)
		}
	}
}

// Every refusal has status 409 and names the next call (SPEC 1.6, 7.1). The text contains no
// REST path, because MCP shows the same text.
func TestRefusalsNameTheNextCall(t *testing.T) {
	next := regexp.MustCompile(" d_1|create a new deal|let the deal run|call again")
	for _, d := range []Deal{
		committing(0), committing(1), committing(2), revealing(0), revealing(1), revealing(2), drawing(1), drawing(2),
		ended(Computed), ended(Certified), ended(Expired), ended(Cancelled), void(0), void(1),
	} {
		for _, p := range []Party{idle, committed, revealed} {
			for _, now := range []int64{50, 100, 150, 200, 250, 300} {
				for what, r := range map[string]*problem.Error{
					"commit": d.Commit(p, now), "reveal": d.Reveal(p, now), "entropy": d.Entropy(now), "cancel": d.Cancel(p.Committed),
				} {
					if r == nil {
						continue
					}
					row, known := problem.Lookup(r.Code)
					if !known || row.Status != 409 {
						t.Fatalf("%s of a %s deal: code %q has status %d in the table, want 409", what, d.Phase, r.Code, row.Status)
					}
					if !next.MatchString(r.Error()) || strings.Contains(r.Error(), "/v1/") {
						t.Errorf("%s of a %s deal: got the text %q, want one that names the next call and no path", what, d.Phase, r)
					}
				}
			}
		}
	}
}
