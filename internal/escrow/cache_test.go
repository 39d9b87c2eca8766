package escrow_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

func TestProcessesSeeEachOther(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	one, other := h.replica(), h.replicaOn(openStore(t, h.sql.Config().ConnString()), escrow.Options{})
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
	g.reveal(t, other, 0).ok(t)
	g.reveal(t, one, 0).refused(t, problem.AlreadyRevealed)
	sees(deal.Revealing, 2, 1)
	h.log.fail(func(func()) error { return translog.ErrUnavailable }, nil)
	g.reveal(t, one, 1).ok(t)
	sees(deal.Computed, 2, 2)
	h.log.fail(nil, nil)
	of(other.ProcessDeal(t.Context(), g.id)).ok(t)
	for i, svc := range []*escrow.Service{one, other} {
		if v := g.view(t, svc); v.CertificateID == nil || *v.CertificateID != g.certID(t) {
			t.Errorf("replica %d shows certificate %s, want %s", i, show(v.CertificateID), g.certID(t))
		}
	}
	g.reveal(t, one, 0).refused(t, problem.DealEnded)

	cancelled := h.split(t, nil)
	cancelled.view(t, other)
	of(one.Cancel(t.Context(), cancelled.access(t, one, cancelled.key, escrow.CancelDeal), nil)).ok(t)
	cancelled.commit(t, other, 1).refused(t, problem.DealEnded)
	cancelled.certificate(t, other).refused(t, problem.NoCertificate)
}

func TestARefusedCommitmentIsNotCached(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g, svc := h.split(t, nil).committed(t), h.replica()
	wrong := g.commitment(t, 1)
	of(svc.Commit(t.Context(), g.access(t, svc, g.tokens[0], escrow.AsParty), escrow.Commitment{Hash: wrong}, nil)).refused(t, problem.AlreadyCommitted)
	g.reveal(t, svc, 0).ok(t)
}

// Service.View answers from the cache if the deal's certificate is published. Service.Certificate
// and Service.Verify read the database each time, so that they notice a changed row.
//
// Not parallel: database.Server is process-wide, and other tests use other servers.
func TestPublishedDealShowsWithoutTheDatabase(t *testing.T) {
	server := servertest.StartPostgres(t)
	h := newFixtureOn(t, server.AdminURL())
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
			t.Errorf("%s without the database: got error %v, want UNAVAILABLE", name, err)
		}
	}
}

// A restored database is older than the caches. The process notices a restart of the
// database server and empties its caches within a second.
//
// Not parallel: database.Server is process-wide, and other tests use other servers.
func TestCachesAreEmptiedAfterARestore(t *testing.T) {
	server := servertest.StartPostgres(t)
	h := newFixtureOn(t, server.AdminURL())
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
		t.Fatalf("the view is %s, want one with a certificate", show(v))
	}
	owner := of(svc.Authenticate(t.Context(), back.key)).ok(t)
	backAccess := back.access(t, svc, back.key, escrow.Read)

	// Simulate an older backup, without the deal of `gone`, and without the commits, reveals and
	// certificate of `back`.
	h.exec(t, "DELETE FROM api_keys WHERE key_hash = (SELECT owner_hash FROM deals WHERE deal_id = $1)", gone.id)
	for _, table := range []string{"parties", "deals"} {
		h.exec(t, "DELETE FROM "+table+" WHERE deal_id = $1", gone.id)
	}
	for _, table := range []string{"commitments", "reveals", "certificates"} {
		h.exec(t, "DELETE FROM "+table)
	}
	h.log.empty() // by default a real log is in the same database, so a restore resets the log too
	h.exec(t, `UPDATE deals SET phase = 'COMMITTING', commits_closed_at = NULL, reveals_closed_at = NULL, computed_at = NULL, result = NULL, cert_id = NULL`)
	check(t, server.Stop())
	check(t, server.Restart(t.Context()))
	h.sql.Reset()

	// The process notices the restart of the database even while its caches answer all calls.
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := svc.Authenticate(t.Context(), gone.key); problem.Is(err, problem.InvalidCredential) {
			break
		} else if time.Now().After(until) {
			t.Fatalf("after a minute an API key that is not stored: got error %v, want INVALID_CREDENTIAL", err)
		}
	}
	if v, err := svc.View(t.Context(), backAccess); err != nil || v.CertificateID != nil {
		t.Errorf("a deal in which nobody has acted: got state %s, certificate %s, %v; want no certificate", v.State, show(v.CertificateID), err)
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
			t.Errorf("the view is %s, want OPEN without certificate and result", show(v))
		}
	})
	t.Run("commitments", func(t *testing.T) {
		back.inputs = []string{`{"valuations":{"boat":1,"car":2}}`, `{"valuations":{"boat":2,"car":1}}`}
		back.committed(t)
		for party := range back.tokens {
			back.reveal(t, svc, party).ok(t)
		}
		c := back.published(t)
		if *c.Parties[0].Commitment != canon.Commitment([]byte(back.inputs[0]), []byte(salt)) {
			t.Errorf("the certificate is %s, want the new commitment of party 0", show(c))
		}
	})
}

// A dump may be restored without a restart of the database server. A call about a deal that
// the dump lacks is refused, because the deal or the invite token is unknown. The call also
// empties the caches.
func TestDealThatARestoreLostIsUnknown(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	keep := h.split(t, nil).revealed(t)
	for name, row := range map[string]struct {
		byKey  bool // the call uses the initiator's API key, not the invite token of party 0
		action escrow.Action
		call   func(context.Context, *escrow.Service, escrow.Access) error
		code   problem.Code
	}{
		"view": {false, escrow.Read, func(ctx context.Context, svc *escrow.Service, a escrow.Access) error {
			return of(svc.View(ctx, a)).err
		}, problem.InvalidCredential},
		"view by key": {true, escrow.Read, func(ctx context.Context, svc *escrow.Service, a escrow.Access) error {
			return of(svc.View(ctx, a)).err
		}, problem.DealNotFound},
		"commit": {false, escrow.AsParty, func(ctx context.Context, svc *escrow.Service, a escrow.Access) error {
			return of(svc.Commit(ctx, a, escrow.Commitment{Hash: [32]byte{1}}, nil)).err
		}, problem.InvalidCredential},
		"certificate": {false, escrow.AsParty, func(ctx context.Context, svc *escrow.Service, a escrow.Access) error {
			return of(svc.Certificate(ctx, a)).err
		}, problem.InvalidCredential},
		"cancel": {true, escrow.CancelDeal, func(ctx context.Context, svc *escrow.Service, a escrow.Access) error {
			return of(svc.Cancel(ctx, a, nil)).err
		}, problem.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			svc, g := h.replica(), h.split(t, nil)
			keep.view(t, svc)
			credential := g.tokens[0]
			if row.byKey {
				credential = g.key
			}
			for _, c := range append(g.tokens, g.key) {
				g.access(t, svc, c, escrow.Read)
			}
			// Call Authorize before the rows are deleted; later it could find the deal only in the
			// cache. A parallel test may empty this cache, because database.Server is one variable
			// for the whole process: another test's server looks like a failover.
			access := g.access(t, svc, credential, row.action)
			for _, table := range []string{"parties", "deals"} {
				g.exec(t, "DELETE FROM "+table+" WHERE deal_id = $1", g.id)
			}
			if err := row.call(t.Context(), svc, access); !problem.Is(err, row.code) {
				t.Errorf("%v, want %s", err, row.code)
			}
			for _, token := range g.tokens {
				of(svc.Authenticate(t.Context(), token)).refused(t, problem.InvalidCredential)
			}
			of(svc.Authorize(t.Context(), of(svc.Authenticate(t.Context(), g.key)).ok(t), g.id, escrow.Read)).refused(t, problem.DealNotFound)
			if v := keep.view(t, svc); v.State != deal.Computed {
				t.Errorf("another deal shows as %s", show(v))
			}
		})
	}
}
