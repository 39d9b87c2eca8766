package escrow_test

import (
	"testing"
	"time"

	rest "github.com/fairpact/fairpact/internal/answer"
	"github.com/fairpact/fairpact/internal/canon"
	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/localservers/servertest"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// What one process does the other sees at once, whatever it has cached.
func TestTwoProcessesSeeEachOther(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	one, other := h.replica(), h.replicaOn(openStore(t, h.sql.Config().ConnString()))
	g := h.split(t, nil)
	sees := func(state deal.State, commits, reveals int) {
		t.Helper()
		for i, svc := range []*escrow.Service{one, other} {
			v := g.view(t, svc)
			if v.State != state || v.Commits != commits || v.Reveals != reveals || (v.Parts[1].Commitment != nil) != (commits == 2) || v.Parts[1].Revealed != (reveals == 2) {
				t.Errorf("replica %d shows %s, want %s with %d commits and %d reveals", i, show(v), state, commits, reveals)
			}
		}
	}
	sees(deal.Open, 0, 0)
	g.commit(t, one, 0).ok(t)
	sees(deal.Committing, 1, 0)
	g.commit(t, other, 0).refused(t, problem.AlreadyCommitted)
	g.commit(t, other, 1).ok(t)
	sees(deal.Revealing, 2, 0)
	g.reveal(t, other, 0).ok(t) // committed by the one
	g.reveal(t, one, 0).refused(t, problem.AlreadyRevealed)
	sees(deal.Revealing, 2, 1)
	h.log.fail(func(func()) error { return translog.ErrUnavailable }, nil)
	g.reveal(t, one, 1).ok(t)
	sees(deal.Computed, 2, 2)
	h.log.fail(nil, nil)
	of(other.Attend(t.Context(), g.id)).ok(t)
	for i, svc := range []*escrow.Service{one, other} {
		if v := g.view(t, svc); v.CertificateID == nil || *v.CertificateID != g.certID(t) {
			t.Errorf("replica %d shows certificate %v of a published deal", i, v.CertificateID)
		}
	}
	g.reveal(t, one, 0).refused(t, problem.DealEnded)

	cancelled := h.split(t, nil)
	cancelled.view(t, other)
	of(one.Cancel(t.Context(), cancelled.access(t, one, cancelled.key, escrow.CancelDeal), nil)).ok(t)
	cancelled.commit(t, other, 1).refused(t, problem.DealEnded)
	cancelled.certificate(t, other).refused(t, problem.NoCertificate)
}

// A commitment is cached only once it stands.
func TestARefusedCommitmentIsNotCached(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g, svc := h.split(t, nil).committed(t), h.replica()
	wrong := g.commitment(t, 1) // of the other party
	of(svc.Commit(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty), escrow.Commitment{Hash: wrong}, nil)).refused(t, problem.AlreadyCommitted)
	g.reveal(t, svc, 0).ok(t)
}

// A row that somebody changed is found at every call, although the process has
// verified its bytes before.
func TestATamperedRowIsFoundByAProcessThatKnowsIt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	stranger := newPen(t)
	for _, row := range []struct {
		name, change string
		arg          any
		failing      int
	}{
		{"signature", "signature = $2", foreign(t, stranger), signature},
		{"payload", "payload = convert_to(replace(convert_from(payload, 'UTF8'), $2, 'proportional'), 'UTF8')", "adjusted_winner", signature | inclusion},
		{"leaf_index", "leaf_index = leaf_index + $2", -1, inclusion},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, id := certified(t, h)
			svc := h.replica()
			healthy := g.certificate(t, svc).ok(t)
			stored := g.pendingCertificate(t)
			for range 2 {
				checkReport(t, "healthy", of(svc.Verify(t.Context(), id)).ok(t), 0)
				same(t, g.certificate(t, svc).ok(t), healthy)
				g.exec(t, "UPDATE certificates SET "+row.change+" WHERE cert_id = $1", id, row.arg)
				for range 2 {
					checkReport(t, "tampered", of(svc.Verify(t.Context(), id)).ok(t), row.failing)
					g.certificate(t, svc).refused(t, problem.LogInconsistent)
				}
				g.exec(t, "UPDATE certificates SET payload = $2, signature = $3, leaf_index = $4 WHERE cert_id = $1", id, stored.Payload, stored.Signature, stored.LeafIndex)
			}
		})
	}
}

// An ended deal whose certificate is published shows without a statement; what
// may change, or is verified, needs the database.
func TestThePublishedDealShowsWithoutTheDatabase(t *testing.T) { // not parallel: other tests reach other servers
	server := servertest.StartPostgres(t)
	h := newHouseOn(t, server.AdminURL())
	svc := h.replica()
	g := h.split(t, nil).revealed(t)
	before := g.view(t, svc)
	unpublished := pending(t, h)
	unpublished.view(t, svc)
	active := h.split(t, nil)
	active.view(t, svc)
	certID := g.certID(t)
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	check(t, server.Stop())
	same(t, g.view(t, svc), before)
	for name, err := range map[string]error{
		"a pending certificate's deal": of(svc.View(t.Context(), unpublished.access(t, svc, unpublished.key, escrow.Read))).err,
		"an active deal":               of(svc.View(t.Context(), active.access(t, svc, active.key, escrow.Read))).err,
		"the certificate":              of(svc.Certificate(t.Context(), access)).err,
		"the verification":             of(svc.Verify(t.Context(), certID)).err,
	} {
		if !problem.Is(err, problem.Unavailable) || problem.From(err).Status() != 503 {
			t.Errorf("%s: %v, want UNAVAILABLE", name, err)
		}
	}
}

// After a restore the database is older than what was cached. A restore restarts
// the server; a second later nothing of before is served.
func TestARestoredDatabaseIsBelieved(t *testing.T) { // not parallel: other tests reach other servers
	server := servertest.StartPostgres(t)
	h := newHouseOn(t, server.AdminURL())
	svc := h.replica()
	gone, back := h.split(t, nil).revealed(t), h.split(t, nil)
	gone.view(t, svc)
	back.view(t, svc)
	for party := range back.tokens {
		back.commit(t, svc, party).ok(t)
	}
	for party := range back.tokens {
		back.reveal(t, svc, party).ok(t)
	}
	if v := back.view(t, svc); v.CertificateID == nil {
		t.Fatalf("it shows as %s", show(v))
	}
	owner := of(svc.Authenticate(t.Context(), back.key)).ok(t)
	backAccess := back.access(t, svc, back.key, escrow.Read)

	// One deal was not there yet, nobody had acted in the other.
	h.exec(t, "DELETE FROM api_keys WHERE key_hash = (SELECT owner_hash FROM deals WHERE deal_id = $1)", gone.id)
	for _, table := range []string{"parties", "deals"} {
		h.exec(t, "DELETE FROM "+table+" WHERE deal_id = $1", gone.id)
	}
	for _, table := range []string{"commitments", "reveals", "certificates"} {
		h.exec(t, "DELETE FROM "+table)
	}
	h.log.empty() // its schema is in the same database
	h.exec(t, `UPDATE deals SET phase = 'COMMITTING', commits_closed_at = NULL, reveals_closed_at = NULL, computed_at = NULL, result = NULL, cert_id = NULL`)
	check(t, server.Stop())
	check(t, server.Restart(t.Context()))
	h.sql.Reset()

	// No call but those that caches answer: it is noticed within a second all the same.
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := svc.Authenticate(t.Context(), gone.key); problem.Is(err, problem.InvalidCredential) {
			break
		} else if time.Now().After(until) {
			t.Fatalf("an API key that is not stored: %v", err)
		}
	}
	if v, err := svc.View(t.Context(), backAccess); err != nil || v.CertificateID != nil {
		t.Errorf("a deal that nobody has acted in shows as %s, %v", v.State, err)
	}
	t.Run("credentials", func(t *testing.T) {
		for _, credential := range []string{gone.key, gone.tokens[0], gone.tokens[1]} {
			of(svc.Authenticate(t.Context(), credential)).refused(t, problem.InvalidCredential)
		}
	})
	t.Run("deals", func(t *testing.T) {
		of(svc.Authorize(t.Context(), owner, gone.id, escrow.Read)).refused(t, problem.DealNotFound)
	})
	t.Run("views", func(t *testing.T) {
		if v := back.view(t, svc); v.State != deal.Open || v.CertificateID != nil || v.Result != nil {
			t.Errorf("it shows as %s", show(v))
		}
	})
	t.Run("commitments", func(t *testing.T) {
		back.inputs = []string{`{"valuations":{"boat":1,"car":2}}`, `{"valuations":{"boat":2,"car":1}}`} // other ones than before
		back.committed(t)
		for party := range back.tokens {
			back.reveal(t, svc, party).ok(t)
		}
		c := back.published(t)
		if *c.Parties[0].Commitment != canon.Commitment([]byte(back.inputs[0]), []byte(salt)) {
			t.Errorf("certified as %s", show(c))
		}
	})
}

// The error says what this caller can do: an API key that did not create the
// deal does not become able to cancel it by an invite token.
func TestCancelByAnotherKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g, svc := h.split(t, nil), h.replica()
	other := of(svc.CreateKey(t.Context(), nil)).ok(t)
	who := of(svc.Authenticate(t.Context(), other.APIKey)).ok(t)
	for action, want := range map[escrow.Action]string{
		escrow.CancelDeal: "FORBIDDEN: this API key did not create this deal; pass the initiator's key",
		escrow.Read:       "FORBIDDEN: this API key did not create this deal; pass the initiator's key or an invite token of the deal",
	} {
		if got := of(svc.Authorize(t.Context(), who, g.id, action)).refused(t, problem.Forbidden).In(rest.REST); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
