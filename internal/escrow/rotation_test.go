package escrow_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/deal"
	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/problem"
	"github.com/fairpact/fairpact/internal/sealing"
	"github.com/fairpact/fairpact/internal/serversecret"
	"github.com/fairpact/fairpact/internal/store"
)

// rotation is a house whose server secret is rotated.
type rotation struct {
	*house
	old, next *sealing.Secret
}

func newRotation(t *testing.T) rotation {
	t.Helper()
	r := rotation{house: newHouse(t)}
	r.old, r.next = r.secret, of(sealing.New(bytes.Repeat([]byte("n"), 32))).ok(t)
	check(t, serversecret.Check(t.Context(), r.store, r.secrets))
	return r
}

// holding is a process with some secrets, as it starts.
func (r rotation) holding(t *testing.T, all ...*sealing.Secret) *house {
	t.Helper()
	h := *r.house
	h.secrets = of(sealing.NewSecrets(all...)).ok(t)
	check(t, serversecret.Check(t.Context(), h.store, h.secrets))
	return &h
}

func (r rotation) rotate(t *testing.T) {
	t.Helper()
	if done := of(r.store.RotateSecret(t.Context(), r.old.Fingerprint(), r.next.Fingerprint())).ok(t); !done {
		t.Fatal("another secret was in force")
	}
}

// resealed lets a worker do all that the rotation leaves to do, a minute after it.
func (r rotation) resealed(t *testing.T, h *house) {
	t.Helper()
	r.exec(t, "UPDATE server_secret SET since = since - 61")
	r.exec(t, "UPDATE idempotency SET expires_at = expires_at - 61")
	for svc := h.replica(); of(svc.Reseal(t.Context())).ok(t); {
	}
}

func (r rotation) refused(t *testing.T, all ...*sealing.Secret) {
	t.Helper()
	if err := serversecret.Check(t.Context(), r.store, of(sealing.NewSecrets(all...)).ok(t)); err == nil || !strings.Contains(err.Error(), "put the former one back") {
		t.Errorf("%v; want advice to put the former secret back", err)
	}
}

// A deal goes on over a rotation, at processes that have learned of it and at one
// that has not, and ends after the former secret has gone.
func TestRotationInTheMiddleOfADeal(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	open := func(d *escrow.Declared) { d.Mode = "open" }
	begun, ended := r.split(t, open).committed(t), r.split(t, open).revealed(t)
	begun.reveal(t, r.replica(), 0).ok(t)
	waits := pending(t, r.house)

	one, stale := r.holding(t, r.next, r.old), r.holding(t, r.next, r.old)
	if one.secrets.Writer().ID() != r.old.ID() {
		t.Fatal("a process writes under a secret that is not in force")
	}
	r.rotate(t)
	r.refused(t, r.old)
	r.refused(t, r.next)
	lost := begun.as(stale)
	if err := lost.reveal(t, stale.replica(), 1).err; !errors.Is(err, store.ErrSecretMoved) {
		t.Fatalf("a reveal under the former secret: %v", err)
	}
	if n := r.text(t, "SELECT count(*)::text FROM reveals WHERE deal_id = $1", begun.id); n != "1" {
		t.Fatalf("%s reveals are stored", n)
	}
	check(t, serversecret.Refresh(t.Context(), r.store, stale.secrets))
	if last := lost.reveal(t, stale.replica(), 1).ok(t); last.State != deal.Computed {
		t.Errorf("the last reveal is answered %+v", last)
	}
	lost.published(t)
	second := r.split(t, nil).committed(t)
	second.as(stale).reveal(t, stale.replica(), 0).ok(t)

	check(t, serversecret.Check(t.Context(), r.store, one.secrets))
	r.resealed(t, one)
	after := r.holding(t, r.next)
	second.as(after).reveal(t, after.replica(), 1).ok(t)
	second.as(after).published(t)
	waits.as(after).attended(t).published(t)
	for _, g := range []*game{begun, ended} {
		g = g.as(after)
		if inputs := of(after.replica().Inputs(t.Context(), g.access(t, after.replica(), g.tokens[0], escrow.AsParty))).ok(t); len(inputs) != 2 {
			t.Errorf("%d inputs", len(inputs))
		}
	}
	r.refused(t, r.old)
}

// A process that lacks the secret in force ends no deal that others can open.
func TestAProcessThatLacksTheSecretEndsNoDeal(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	whole, lacking := r.holding(t, r.next, r.old), r.holding(t, r.old)
	r.rotate(t)
	check(t, serversecret.Check(t.Context(), r.store, whole.secrets))
	g := r.split(t, nil).committed(t).as(whole)
	g.reveal(t, whole.replica(), 0).ok(t)
	r.exec(t, "UPDATE reveals SET sealed = sealed || '\\x00'::bytea WHERE deal_id = $1", g.id)
	g.reveal(t, whole.replica(), 1).ok(t)
	r.exec(t, "UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 0", g.id)
	g.later(t, 7201)
	if _, err := lacking.replica().Attend(t.Context(), g.id); !problem.Is(err, problem.Unavailable) {
		t.Errorf("the worker of the process: %v", err)
	}
	g.attended(t).published(t)
}

// as is the game played at another process.
func (g *game) as(h *house) *game {
	other := *g
	other.house = h
	return &other
}

// The former secret stays while a record of a replay may be under it.
func TestFormerSecretStaysForReplays(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	check(t, r.store.InsertKey(t.Context(), bytes.Repeat([]byte("k"), 32), &store.Replay{Scope: []byte("s"), Body: []byte("b"), Lifetime: escrow.ReplayTime}))
	r.rotate(t)
	one := r.holding(t, r.next, r.old)
	r.resealed(t, one)
	r.refused(t, r.next)
	r.exec(t, "UPDATE idempotency SET expires_at = expires_at - $1", escrow.ReplayTime)
	r.resealed(t, one)
	r.holding(t, r.next)
}

// Until the first rotation a process of the release before opens what is stored.
func TestInputsAreMarkedAfterTheFirstRotation(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	one := r.holding(t, r.next, r.old)
	g := r.split(t, nil).committed(t).as(one)
	g.reveal(t, one.replica(), 0).ok(t)
	sealed := func(party int) (b []byte) {
		check(t, r.sql.QueryRow(t.Context(), "SELECT sealed FROM reveals WHERE deal_id = $1 AND party = $2", g.id, party).Scan(&b))
		return b
	}
	if r.old.Marked(sealed(0)) || r.next.Marked(sealed(0)) {
		t.Error("an input is marked before the first rotation")
	}
	r.rotate(t)
	check(t, serversecret.Check(t.Context(), r.store, one.secrets))
	g.reveal(t, one.replica(), 1).ok(t)
	if !r.next.Marked(sealed(1)) {
		t.Error("an input is not marked after a rotation")
	}
}

// A stored input that does not open: the deal shows as it is, waits for its
// operator until its deadline, and ends with nobody at fault.
func TestADealThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	spoil := func(g *game, t *testing.T, party int) {
		g.exec(t, "UPDATE reveals SET sealed = sealed || '\\x00'::bytea WHERE deal_id = $1 AND party = $2", g.id, party)
	}
	t.Run("split.v1", func(t *testing.T) {
		t.Parallel()
		h := newRotation(t).house
		g := h.split(t, nil).committed(t)
		g.reveal(t, h.replica(), 0).ok(t)
		spoil(g, t, 0)
		if last := g.reveal(t, h.replica(), 1).ok(t); last.State != deal.Revealing || !last.Revealed {
			t.Errorf("the last reveal is answered %+v", last)
		}
		if v := g.view(t, h.replica()); v.State != deal.Revealing {
			t.Errorf("it shows as %s", show(v))
		}
		g.certificate(t, h.replica()).refused(t, problem.CertNotReady)
		if _, err := h.replica().Attend(t.Context(), g.id); err == nil {
			t.Error("the worker is not told")
		}
		g.later(t, 7201)
		if v := g.view(t, h.replica()); v.State != deal.Expired || v.CertificateID != nil {
			t.Errorf("after its deadline it shows as %s", show(v))
		}
		g.certificate(t, h.replica()).refused(t, problem.NoCertificate)
		g.attended(t)
	})
	t.Run("the secret is put back in time", func(t *testing.T) {
		t.Parallel()
		h := newRotation(t).house
		g := h.split(t, nil).committed(t)
		g.reveal(t, h.replica(), 0).ok(t)
		spoil(g, t, 0)
		g.reveal(t, h.replica(), 1).ok(t)
		g.exec(t, "UPDATE reveals SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE deal_id = $1 AND party = 0", g.id)
		g.attended(t).published(t)
	})
	t.Run("random.v1", func(t *testing.T) {
		t.Parallel()
		h := newRotation(t).house
		g := h.random(t, nil).committed(t)
		g.reveal(t, h.replica(), 0).ok(t)
		g.reveal(t, h.replica(), 1).ok(t)
		spoil(g, t, 1)
		g.later(t, drawTime+1)
		g.entropy(t, h.replica()).refused(t, problem.Unavailable)
		if v := g.view(t, h.replica()); v.State != deal.Revealing {
			t.Errorf("it shows as %s", show(v))
		}
		g.later(t, int64(window.Seconds()))
		if v := g.view(t, h.replica()); v.State != deal.Expired {
			t.Errorf("after the entropy window it shows as %s", show(v))
		}
	})
	t.Run("inputs of an ended deal", func(t *testing.T) {
		t.Parallel()
		h := newRotation(t).house
		g := h.split(t, func(d *escrow.Declared) { d.Mode = "open" }).revealed(t)
		spoil(g, t, 1)
		of(h.replica().Inputs(t.Context(), g.access(t, h.replica(), g.tokens[0], escrow.AsParty))).refused(t, problem.Unavailable)
	})
}
