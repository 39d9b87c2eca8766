package escrow_test

import (
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

// What the parties read of a deal whose contents are deleted, on a replica that has cached the deal.
func TestReadsOfADealWithoutContents(t *testing.T) {
	g := newFixture(t).split(t, func(d *escrow.Declared) { d.Mode, d.Title, d.Message = "open", "title", "message" }).revealed(t)
	before := g.published(t)
	const keep = 240 * time.Hour
	g.exec(t, "UPDATE deals SET commit_deadline = commit_deadline - $2, reveal_deadline = reveal_deadline - $2, computed_at = computed_at - $2, ended_at = ended_at - $2 WHERE deal_id = $1", g.id, int64(keep/time.Second)+7300)
	svc := g.replicaOn(g.store, escrow.Options{KeepContents: keep})
	at := func() escrow.Access { return g.access(t, svc, g.tokens[1], escrow.AsParty) }
	if first := at().Deal(); at().Deal() != first {
		t.Error("before the sweep, each call reads the deal again")
	}
	if in, view := of(svc.Inputs(t.Context(), at())).ok(t), g.view(t, svc); len(in.Inputs) != 2 || view.ContentsDeleted || view.Title != "title" || view.Message != "message" {
		t.Fatalf("before the sweep: %d inputs and the view %s, want 2, and both texts", len(in.Inputs), show(view))
	}
	if n := of(g.store.DeleteContents(t.Context(), keep)).ok(t); n != 1 {
		t.Fatalf("the sweep took %d deals, want 1", n)
	}
	g.exec(t, "UPDATE deals SET title = 'left by an older release' WHERE deal_id = $1", g.id)
	view := g.view(t, svc)
	if !view.ContentsDeleted || view.TextBytes() != 0 || string(view.Params) != "{}" || string(view.Result) == "" || view.Parts[0].Commitment == nil {
		t.Errorf("the view is %s, want one without params", show(view))
	}
	after := g.certificate(t, svc).ok(t)
	same(t, after, before)
	if report := of(svc.Verify(t.Context(), before.CertID)).ok(t); !report.Valid {
		t.Errorf("Verify = %+v, want valid", report)
	}
	bundle := of(svc.Bundle(t.Context(), at(), true)).ok(t)
	if bundle.Declaration != nil || bundle.Own != nil || bundle.Openings != nil || bundle.Keys == nil {
		t.Errorf("the bundle is %s, want one without declaration and inputs", show(bundle))
	}
	of(svc.Inputs(t.Context(), at())).refused(t, problem.InputsSealed)
	of(svc.Declaration(t.Context(), at())).refused(t, problem.DealEnded)
	of(svc.Disclose(t.Context(), at(), escrow.Opening{})).refused(t, problem.InputsSealed)
	g.commit(t, svc, 0).refused(t, problem.DealEnded)
	g.reveal(t, svc, 0).refused(t, problem.DealEnded)
}

// The trust model (/trust) says what a writer of the database can read: a service that has not read the deal before shows it the
// inputs of a COMPUTED deal. A service that has read the deal keeps its mode.
func TestAWriterOfTheDatabaseCanReadInputs(t *testing.T) {
	h := newFixture(t)
	g, own := h.split(t, nil).revealed(t), h.split(t, nil)
	read := func(svc *escrow.Service) answer[escrow.OpenInputs] {
		return of(svc.Inputs(t.Context(), g.access(t, svc, own.tokens[1], escrow.AsParty)))
	}
	old := h.replica()
	g.view(t, old)
	hash := g.text(t, "SELECT encode(token_hash, 'hex') FROM parties WHERE deal_id = $1 AND party = 1", own.id)
	g.exec(t, "UPDATE parties SET token_hash = sha256(token_hash) WHERE deal_id = $1", own.id)
	g.exec(t, "UPDATE parties SET token_hash = decode($2, 'hex') WHERE deal_id = $1 AND party = 1", g.id, hash)
	read(h.replica()).refused(t, problem.InputsSealed)
	g.exec(t, "UPDATE deals SET mode = 'open' WHERE deal_id = $1", g.id)
	read(old).refused(t, problem.InputsSealed)
	if all := read(h.replica()).ok(t); len(all.Inputs) != 2 {
		t.Errorf("a fresh service shows %d inputs, want those of both parties", len(all.Inputs))
	}
}
