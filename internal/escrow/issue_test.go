package escrow_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/translog"
)

// lastReveal plays a deal whose last reveal meets an outside part that fails:
// it is answered all the same, with its result, and the certificate is pending.
func lastReveal(t *testing.T, h *house) *game {
	t.Helper()
	g := h.split(t, nil).committed(t)
	svc := h.replica()
	is(t, 200, g.reveal(t, svc, 0))
	answer := is(t, 200, g.reveal(t, svc, 1))
	if answer["state"] != "COMPUTED" || answer["result"] == nil || answer["revealed"] != true {
		t.Fatalf("the last reveal is answered %v", answer)
	}
	view := g.view(t, h.replica())
	if view["state"] != "COMPUTED" || view["certificate_id"] != nil || show(view["result"]) != show(answer["result"]) {
		t.Fatalf("the deal shows as %v", view)
	}
	return g
}

// pending checks what the endpoints say of a certificate that is not in the log.
func pending(t *testing.T, g *game, reason string) {
	t.Helper()
	svc := g.replica()
	p := refused(t, problem.CertNotReady, g.certificate(t, svc))
	if !strings.Contains(p.Fix, reason) || p.RetryAfter <= 0 {
		t.Errorf("CERT_NOT_READY says %q, retry after %v; want the reason %q", p.Fix, p.RetryAfter, reason)
	}
	id := g.text(t, "SELECT cert_id FROM certificates WHERE deal_id = $1", g.id)
	refused(t, problem.CertNotFound, first(svc.Verify(t.Context(), id)))
}

func TestSignerDown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pen.fail(func(context.Context) error { return errors.New("the key is away") })
	g := lastReveal(t, h)
	pending(t, g, "the signing key is out of reach")
	if _, err := h.replica().Attend(t.Context(), g.id); err == nil {
		t.Error("the worker is told that a pending certificate is finished")
	}
	h.pen.fail(nil)
	g.attended(t).published(t)
	if h.log.size() != 1 {
		t.Errorf("%d leaves", h.log.size())
	}
}

// A signer that never answers costs a reveal a bounded time, whatever its caller
// would wait.
func TestSignerHangs(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pen.fail(func(ctx context.Context) error {
		if _, bound := ctx.Deadline(); !bound {
			t.Error("the signer is asked without a bound")
			return errors.New("no bound")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	g := lastReveal(t, h)
	h.pen.fail(nil)
	// The lock of a process that died while it signed does not outlive the bound.
	g.attended(t).published(t)
}

func TestLogDown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.log.fail(func(func()) error { return translog.ErrUnavailable }, nil)
	g := lastReveal(t, h)
	pending(t, g, "transparency log is out of reach")
	signature := g.text(t, "SELECT signature FROM certificates WHERE deal_id = $1", g.id)
	if _, err := h.replica().Attend(t.Context(), g.id); !errors.Is(err, translog.ErrUnavailable) {
		t.Errorf("the worker is told %v", err)
	}
	h.log.fail(nil, nil)
	c := g.attended(t).published(t)
	if c["signature"] != signature || h.log.taken[0] != signature || h.pen.signed != 1 {
		t.Errorf("signed %d times; the first signature %s, the log's %s, the certificate's %v", h.pen.signed, signature, h.log.taken[0], c["signature"])
	}
}

// issued is how many certificates this process has counted as its own.
func issued(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "fairpact_certificates_issued_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no such counter")
	return 0
}

// A certificate is counted once, by the process that stored its leaf.
func TestIssuedOnceIsCountedOnce(t *testing.T) {
	h := newHouse(t)
	before := issued(t)
	h.split(t, nil).revealed(t).published(t)
	if n := issued(t) - before; n != 1 {
		t.Errorf("%v are counted, want 1", n)
	}
	h.log.fail(func(then func()) error { // another process is faster
		then()
		h.exec(t, "UPDATE certificates SET leaf_index = 1 WHERE leaf_index IS NULL")
		return nil
	}, nil)
	h.split(t, nil).revealed(t).published(t)
	if n := issued(t) - before; n != 1 {
		t.Errorf("%v are counted, want 1: the other is another process's", n)
	}
}

// Fails but persisted: the log has the entry and its answer is lost.
func TestLogAnswerLost(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.log.fail(func(then func()) error {
		then()
		return translog.ErrUnavailable
	}, nil)
	g := lastReveal(t, h)
	h.log.fail(nil, nil)
	g.attended(t).published(t)
	if h.log.size() != 1 {
		t.Errorf("%d leaves for one certificate", h.log.size())
	}
}

// What follows a pending certificate does not change it: the payload is that of
// the transaction that ended the deal.
func TestIssuingChangesNoPayload(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pen.fail(func(context.Context) error { return errors.New("the key is away") })
	g := lastReveal(t, h)
	const payload = "SELECT encode(payload, 'escape') FROM certificates WHERE deal_id = $1"
	before := g.text(t, payload, g.id)
	h.pen.fail(nil)
	one := show(g.attended(t).published(t))
	if after := g.text(t, payload, g.id); after != before {
		t.Errorf("the payload was %s and is %s", before, after)
	}
	if again := show(g.published(t)); again != one {
		t.Errorf("the certificate was %s and is %s", one, again)
	}
}

// A stored signature that verifies under no key, and has no leaf, is replaced.
func TestAForeignSignatureIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.pen.fail(func(context.Context) error { return errors.New("the key is away") })
	g := lastReveal(t, h)
	h.pen.fail(nil)
	stranger := newPen(t)
	for _, stored := range []string{"es256:", "es256:" + strings.Repeat("0", 128), foreign(t, stranger)} {
		g := lastPending(t, h)
		g.exec(t, "UPDATE certificates SET signature = $2 WHERE deal_id = $1", g.id, stored)
		if c := g.attended(t).published(t); c["signature"] == stored {
			t.Errorf("%s stands", stored)
		}
	}
	g.attended(t).published(t)
}

func foreign(t *testing.T, stranger *pen) string {
	t.Helper()
	signature, err := stranger.Signer.Sign(t.Context(), [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// lastPending is a deal whose certificate is pending, with all parts well.
func lastPending(t *testing.T, h *house) *game {
	t.Helper()
	h.pen.fail(func(context.Context) error { return errors.New("the key is away") })
	defer h.pen.fail(nil)
	return lastReveal(t, h)
}

// Any number of processes may issue one certificate, with Redis and without it:
// one signature stands, and one leaf.
func TestIssuingAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, redis := range []string{"up", "gone"} {
		if redis == "gone" {
			h.server.Kill()
		}
		for range 5 {
			g, leaves := lastPending(t, h), h.log.size()
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					if _, err := h.replica().Attend(bounded(t), g.id); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			c := g.published(t)
			if h.log.size() != leaves+1 {
				t.Errorf("Redis %s: %d leaves for one certificate", redis, h.log.size()-leaves)
			}
			if got := show(g.published(t)); got != show(c) {
				t.Errorf("Redis %s: two reads differ:\n%s\n%s", redis, show(c), got)
			}
		}
	}
}

// Two last reveals at the same moment: both are answered, one of them at least
// with the result, and there is one certificate.
func TestTwoLastReveals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 15 {
		g := h.split(t, nil).committed(t)
		leaves := h.log.size()
		replicas := []func() answer{}
		for party := range g.tokens {
			svc := h.replica()
			replicas = append(replicas, func() answer { return g.reveal(t, svc, party) })
		}
		answers := make([]answer, 2)
		var group sync.WaitGroup
		for i, reveal := range replicas {
			group.Go(func() { answers[i] = reveal() })
		}
		group.Wait()
		computed := 0
		for _, a := range answers {
			if body := is(t, 200, a); body["state"] == "COMPUTED" && body["result"] != nil {
				computed++
			}
		}
		if computed == 0 {
			t.Fatal("neither of two last reveals has the result")
		}
		g.attended(t).published(t)
		if h.log.size() != leaves+1 {
			t.Fatalf("%d leaves for one certificate", h.log.size()-leaves)
		}
	}
}
