package escrow_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

type rotation struct {
	*fixture
	old, next *sealing.Secret
}

func newRotation(t *testing.T) rotation {
	t.Helper()
	r := rotation{fixture: newFixture(t)}
	r.old, r.next = r.secret, of(sealing.New(bytes.Repeat([]byte("n"), 32))).ok(t)
	check(t, r.secrets.Check(t.Context(), r.store))
	return r
}

func (r rotation) holding(t *testing.T, all ...*sealing.Secret) *fixture {
	t.Helper()
	h := *r.fixture
	h.secrets = of(sealing.NewSecrets(all...)).ok(t)
	check(t, h.secrets.Check(t.Context(), h.store))
	return &h
}

func (r rotation) rotate(t *testing.T) {
	t.Helper()
	if done := of(r.store.RotateSecret(t.Context(), r.old.Fingerprint(), r.next.Fingerprint())).ok(t); !done {
		t.Fatal("RotateSecret = false, want true: another secret than the old one is in force")
	}
}

// resealed makes the rotation and the idempotency records 61 seconds older, because Reseal does
// nothing in the first minute of a rotation. Then it calls Reseal until Reseal returns false.
func (r rotation) resealed(t *testing.T, h *fixture) {
	t.Helper()
	r.exec(t, "UPDATE server_secret SET since = since - 61")
	r.exec(t, "UPDATE idempotency SET expires_at = expires_at - 61")
	for svc := h.replica(); of(svc.Reseal(t.Context())).ok(t); {
	}
}

func (r rotation) refused(t *testing.T, all ...*sealing.Secret) {
	t.Helper()
	if err := of(sealing.NewSecrets(all...)).ok(t).Check(t.Context(), r.store); err == nil || !strings.Contains(err.Error(), "add the missing secret") {
		t.Errorf("Check without the former secret: got error %v, want one that advises to add it", err)
	}
}

func TestProcessWithoutTheSecretEndsNoDeal(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	whole, lacking := r.holding(t, r.next, r.old), r.holding(t, r.old)
	r.rotate(t)
	check(t, whole.secrets.Check(t.Context(), r.store))
	g := r.split(t, nil).committed(t).as(whole)
	g.reveal(t, whole.replica(), 0).ok(t)
	r.exec(t, "UPDATE reveals SET sealed = sealed || '\\x00'::bytea WHERE deal_id = $1", g.id)
	g.reveal(t, whole.replica(), 1).ok(t)
	r.exec(t, "UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 0", g.id)
	g.later(t, 7201)
	if _, err := lacking.replica().ProcessDeal(t.Context(), g.id); !problem.Is(err, problem.Unavailable) {
		t.Errorf("ProcessDeal by a process without the secret: got error %v, want UNAVAILABLE", err)
	}
	g.attended(t).published(t)
}

// A process that still encrypts under the former server secret after a rotation cannot store an
// input. After Secrets.Refresh the process can.
func TestAStaleProcessStoresNoReveal(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	stale := r.holding(t, r.next, r.old)
	reveal := r.split(t, nil).committed(t).as(stale)
	rejection := r.shapley(t, `{"accept":false}`, `{"accept":true}`).committed(t).as(stale)
	r.rotate(t)
	for _, g := range []*game{reveal, rejection} {
		if err := g.reveal(t, stale.replica(), 0).err; !errors.Is(err, store.ErrSecretReplaced) {
			t.Errorf("reveal under the former secret: got error %v, want ErrSecretReplaced", err)
		}
	}
	if n := r.text(t, "SELECT count(*)::text FROM reveals"); n != "0" {
		t.Errorf("%s inputs are stored under the former secret, want 0", n)
	}
	check(t, stale.secrets.Refresh(t.Context(), r.store))
	reveal.reveal(t, stale.replica(), 0).ok(t)
	rejection.reveal(t, stale.replica(), 0).ok(t)
}

func (g *game) as(h *fixture) *game {
	other := *g
	other.fixture = h
	return &other
}

// Processes need the former server secret as long as an idempotency record may be encrypted under
// that secret. Then a rotation ends although certificates from before it are pending: one can be
// issued under the new secret, the log has another one of a deal, and somebody else wrote the third.
func TestFormerSecretIsNeededForReplaysButNotForPendingCertificates(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	waits, contradicted, foreign := pending(t, r.fixture), pending(t, r.fixture), pending(t, r.fixture)
	of(r.log.Append(t.Context(), [32]byte{1}, "es256:00", certificate.Tag(contradicted.id))).ok(t)
	r.exec(t, "UPDATE certificates SET mac = sha256(mac) WHERE deal_id = $1", foreign.id)
	check(t, r.store.InsertKey(t.Context(), bytes.Repeat([]byte("k"), 32), &store.Replay{Scope: []byte("s"), Body: []byte("b"), Lifetime: escrow.ReplayTime}))
	r.rotate(t)
	one := r.holding(t, r.next, r.old)
	r.resealed(t, one)
	r.refused(t, r.next)
	r.exec(t, "UPDATE idempotency SET expires_at = expires_at - $1", escrow.ReplayTime)
	check(t, r.store.InsertKey(t.Context(), bytes.Repeat([]byte("l"), 32), &store.Replay{Scope: []byte("t"), Body: []byte("b"), Lifetime: escrow.ReplayTime})) // an idempotency record from after the rotation does not need the former secret
	r.exec(t, "UPDATE certificates SET created_at = created_at - 200")
	r.resealed(t, one)
	renewed := r.holding(t, r.next)
	waits.as(renewed).attended(t).published(t)
	contradicted.as(renewed).certificate(t, renewed.replica()).refused(t, problem.LogInconsistent)
	if _, err := renewed.replica().ProcessDeal(t.Context(), foreign.id); err == nil || !strings.Contains(err.Error(), "foreign certificate") {
		t.Errorf("ProcessDeal of a certificate with a changed MAC: got error %v, want one that calls it foreign", err)
	}
}

// A deal with an input that cannot be decrypted stays REVEALING until reveal_deadline, so that
// an operator can restore the input or the server secret. Then the deal becomes EXPIRED. A
// random.v1 deal stays REVEALING until the end of the entropy window, and then becomes EXPIRED.
func TestDealWithALostInput(t *testing.T) { // not parallel: this test counts the failed decryptions of the process
	spoil := func(g *game, party int) *game {
		g.exec(t, "UPDATE reveals SET sealed = sealed || '\\x00'::bytea WHERE deal_id = $1 AND party = $2", g.id, party)
		return g
	}
	h := newRotation(t).fixture
	g, restored := h.split(t, nil).committed(t), h.split(t, nil).committed(t)
	for _, g := range []*game{g, restored} {
		g.reveal(t, h.replica(), 0).ok(t)
		if last := spoil(g, 0).reveal(t, h.replica(), 1).ok(t); last.State != deal.Revealing || !last.Revealed {
			t.Errorf("the last reveal is answered %+v, want REVEALING and revealed", last)
		}
	}
	if v := g.view(t, h.replica()); v.State != deal.Revealing {
		t.Errorf("before the deadline the view is %s, want REVEALING", show(v))
	}
	g.certificate(t, h.replica()).refused(t, problem.CertNotReady)
	const lost = "fairpact_inputs_unopened_total"
	before := counted(t, lost, "")
	if _, err := h.replica().ProcessDeal(t.Context(), g.id); !problem.Is(err, problem.Unavailable) || counted(t, lost, "") != before+1 {
		t.Errorf("ProcessDeal: got error %v after %v failed decryptions, want UNAVAILABLE after 1", err, counted(t, lost, "")-before)
	}
	if v := g.later(t, 7201).view(t, h.replica()); v.State != deal.Expired || v.CertificateID != nil {
		t.Errorf("after the deadline the view is %s, want EXPIRED without a certificate", show(v))
	}
	g.certificate(t, h.replica()).refused(t, problem.NoCertificate)
	restored.exec(t, "UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 0", restored.id)
	restored.attended(t).published(t)

	draw := spoil(h.random(t, nil).revealed(t), 1).later(t, drawTime+1)
	draw.entropy(t, h.replica()).refused(t, problem.Unavailable)
	if v := draw.view(t, h.replica()); v.State != deal.Revealing {
		t.Errorf("random.v1: before the end of the entropy window the view is %s, want REVEALING", show(v))
	}
	if v := draw.later(t, int64(window.Seconds())).view(t, h.replica()); v.State != deal.Expired {
		t.Errorf("random.v1: after the entropy window the view is %s, want EXPIRED", show(v))
	}
}

// The first process records its server secret in the database. Then Secrets.Check refuses
// every process that lacks the recorded secret. Once no deal needs the recorded secret, an operator
// can replace the secret without a rotation.
func TestAnotherServerSecretIsRefused(t *testing.T) {
	t.Parallel()
	r := rotation{fixture: newFixture(t)}
	r.next = of(sealing.New(bytes.Repeat([]byte("n"), 32))).ok(t)
	needed := func(want int) {
		t.Helper()
		if deals, certificates, err := r.store.Live(t.Context()); int(deals) != want || certificates != 0 || err != nil {
			t.Errorf("%d deals and %d certificates need the secret, %v; want %d and 0", deals, certificates, err, want)
		}
	}
	g := r.split(t, nil).committed(t)
	check(t, r.secrets.Check(t.Context(), r.store))
	g.reveal(t, r.replica(), 0).ok(t)
	r.refused(t, r.next)
	needed(1)
	g.reveal(t, r.replica(), 1).ok(t)
	needed(0)
	check(t, r.store.ReplaceSecret(t.Context(), r.next.Fingerprint(), [][]byte{r.next.Fingerprint()}))
	r.holding(t, r.next)
	r.refused(t, r.secret)
}
