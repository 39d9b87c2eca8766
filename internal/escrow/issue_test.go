package escrow_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

var errKeyAway = errors.New("the key is away")

func keyAway(context.Context) error { return errKeyAway }

// lastReveal returns a split.v1 deal in which all parties have revealed. The test MUST make the
// signer or the log fail before it calls lastReveal. lastReveal checks that the last reveal returns
// the result, and that the view shows no certificate.
func lastReveal(t *testing.T, h *fixture) *game {
	t.Helper()
	g := h.split(t, nil).committed(t)
	svc := h.replica()
	g.reveal(t, svc, 0).ok(t)
	last := g.reveal(t, svc, 1).ok(t)
	if last.State != deal.Computed || last.Result == nil || !last.Revealed {
		t.Fatalf("the last reveal is answered %+v, want COMPUTED with the result", last)
	}
	view := g.view(t, h.replica())
	if view.State != deal.Computed || view.CertificateID != nil || string(view.Result) != string(last.Result) {
		t.Fatalf("the view is %s, want COMPUTED with the result and without certificate_id", show(view))
	}
	return g
}

func pending(t *testing.T, h *fixture) *game {
	t.Helper()
	h.signer.fail(keyAway)
	defer h.signer.fail(nil)
	return lastReveal(t, h)
}

func checkPending(t *testing.T, g *game, reason string) {
	t.Helper()
	svc := g.replica()
	p := g.certificate(t, svc).refused(t, problem.CertNotReady)
	if !strings.Contains(p.Error(), reason) || p.RetryAfter <= 0 {
		t.Errorf("got error %v with retry after %d s, want the reason %q and a positive time", p, p.RetryAfter, reason)
	}
	of(svc.Verify(t.Context(), g.certID(t))).refused(t, problem.CertNotFound)
}

// After an outage or a crash, a worker issues the pending certificate with one leaf. Before
// that, callers are told why the certificate is pending. After an outage of the log, the
// worker uses the stored signature and does not sign again.
func TestPendingCertificateIsFinished(t *testing.T) {
	t.Parallel()
	down := func(func()) error { return translog.ErrUnavailable }
	lost := func(add func()) error {
		add()
		return translog.ErrUnavailable
	}
	for name, row := range map[string]struct {
		signer     func(context.Context) error
		log        func(add func()) error
		died       bool // the process died before it stored the signature
		reason     string
		err        error // the error of ProcessDeal during the outage
		signatures int   // expected calls of Sign; 0: any number
	}{
		"the key is away":          {keyAway, nil, false, "the certificate is not signed yet", errKeyAway, 0},
		"the log is down":          {nil, down, false, "transparency log is out of reach", translog.ErrUnavailable, 1},
		"the log's answer is lost": {nil, lost, false, "transparency log is out of reach", translog.ErrUnavailable, 1},
		"a crash after the append": {nil, lost, true, "transparency log is out of reach", translog.ErrUnavailable, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			of(h.log.Append(t.Context(), [32]byte{1}, "es256:00", translog.Tag{})).ok(t)
			h.signer.fail(row.signer)
			h.log.fail(row.log, nil)
			g := lastReveal(t, h)
			checkPending(t, g, row.reason)
			for range 3 {
				if _, err := h.replica().ProcessDeal(t.Context(), g.id); !errors.Is(err, row.err) {
					t.Errorf("ProcessDeal: got error %v, want %v", err, row.err)
				}
			}
			if row.died {
				g.exec(t, "UPDATE certificates SET signature = NULL")
			}
			h.signer.fail(nil)
			h.log.fail(nil, nil)
			c := g.attended(t).published(t)
			same(t, g.attended(t).published(t), c)
			if n := h.signer.signatures(); row.signatures > 0 && n != row.signatures || h.log.size() != 2 || c.LogProof.LeafIndex != 1 {
				t.Errorf("%d signatures, %d leaves, leaf %d; want %d signatures (0: any number), 2 leaves and leaf 1", n, h.log.size(), c.LogProof.LeafIndex, row.signatures)
			}
			if (c.Signature == h.log.taken[1]) == row.died {
				t.Errorf("the certificate has signature %s and the log %s, want them equal: %v", c.Signature, h.log.taken[1], !row.died)
			}
		})
	}
}

// If the log has another certificate of the deal, a process tries to issue the pending
// certificate only once an hour (contradictedFor). The signature is not stored, and readers get
// an error.
func TestSecondCertificateIsTriedOnce(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	g := pending(t, h)
	of(h.log.Append(t.Context(), [32]byte{1}, "es256:00", certificate.Tag(g.id))).ok(t)
	worker, before := h.replica(), h.signer.signatures()
	for range 3 {
		of(worker.ProcessDeal(t.Context(), g.id)).ok(t)
		g.certificate(t, worker).refused(t, problem.LogInconsistent)
	}
	if n := h.signer.signatures() - before; n != 1 || g.pendingCertificate(t).Signature != nil || h.log.size() != 1 {
		t.Errorf("signed %d times, stored signature %s, %d leaves; want 1, null, 1", n, show(g.pendingCertificate(t).Signature), h.log.size())
	}
	g.exec(t, "UPDATE certificates SET created_at = created_at - 60")
	for who, lists := range map[*escrow.Service]bool{worker: false, h.replica(): true} {
		if listed := slices.ContainsFunc(of(who.Due(t.Context(), time.Second, 1000)).ok(t), func(d store.Due) bool { return d.DealID == g.id }); listed != lists {
			t.Errorf("Due lists the deal: %t, want %t", listed, lists)
		}
	}
}

// A certificate is appended under the tag of the deal_id in its signed payload, even if the row's
// column deal_id has another value.
func TestTagIsOfTheSignedDeal(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.log.fail(func(func()) error { return translog.ErrUnavailable }, nil)
	g, other := lastReveal(t, h), h.split(t, nil).revealed(t)
	h.log.fail(nil, nil)
	h.exec(t, "UPDATE certificates SET deal_id = 'd_x' WHERE deal_id = $1", other.id)
	h.exec(t, "UPDATE certificates SET deal_id = $2 WHERE deal_id = $1", g.id, other.id)
	h.exec(t, "UPDATE deals SET cert_id = (SELECT cert_id FROM deals WHERE deal_id = $1) WHERE deal_id = $2", g.id, other.id)
	of(h.replica().ProcessDeal(t.Context(), other.id)).ok(t)
	if _, ok := h.log.tags[certificate.Tag(g.id)]; !ok || len(h.log.tags) != 1 {
		t.Errorf("the log has the tags %v, want only the tag of %s", h.log.tags, g.id)
	}
}

func counted(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	check(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("found no counter %s with the label %q, want one", name, label)
	return 0
}

func TestOneProcessSignsOnce(t *testing.T) { // not parallel: this test reads the stacks of all goroutines
	h := newFixture(t)
	g := pending(t, h)
	before := h.signer.signatures()
	const callers = 8
	waitAll := make(chan struct{})
	h.signer.fail(func(ctx context.Context) error {
		select {
		case <-waitAll:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	svc := h.replica()
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = svc.ProcessDeal(bounded(t), g.id)
			} else {
				_, err = svc.Certificate(bounded(t), access)
			}
			if err != nil {
				t.Errorf("call %d (ProcessDeal or Certificate): %v, want no error", i, err)
			}
		})
	}
	stacks := make([]byte, 4<<20)
	for {
		all := string(stacks[:runtime.Stack(stacks, true)])
		if strings.Count(all, "escrow.(*Service).issueCertificate(") >= callers {
			break
		}
		if t.Context().Err() != nil || t.Failed() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(waitAll)
	group.Wait()
	if n := h.signer.signatures() - before; n != 1 {
		t.Errorf("%d signatures for one certificate, want 1", n)
	}
	g.published(t)
}

// A stored signature that verifies under no key is replaced, if the certificate has no leaf.
func TestForeignSignatureIsReplaced(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for _, stored := range []string{"es256:", "es256:" + strings.Repeat("0", 128), foreign(t, newPen(t))} {
		g := pending(t, h)
		g.exec(t, "UPDATE certificates SET signature = $2 WHERE deal_id = $1", g.id, stored)
		if c := g.attended(t).published(t); c.Signature == stored {
			t.Errorf("the certificate has the foreign signature %s, want a new one", stored)
		}
	}
}

func foreign(t *testing.T, stranger *fakeSigner) string {
	t.Helper()
	return of(stranger.Signer.Sign(t.Context(), [32]byte{1})).ok(t)
}

// If processes issue one certificate concurrently, it gets one signature and one leaf, and
// its payload does not change.
func TestConcurrentIssuing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	for range 8 {
		g, leaves := pending(t, h), h.log.size()
		payload := string(g.pendingCertificate(t).Payload)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if _, err := h.replica().ProcessDeal(bounded(t), g.id); err != nil {
					t.Errorf("ProcessDeal: %v, want no error", err)
				}
			})
		}
		group.Wait()
		c := g.published(t)
		if h.log.size() != leaves+1 {
			t.Errorf("%d new leaves for one certificate, want 1", h.log.size()-leaves)
		}
		if after := string(g.pendingCertificate(t).Payload); after != payload {
			t.Errorf("the payload is %s, want %s, as before", after, payload)
		}
		same(t, g.published(t), c)
	}
}
