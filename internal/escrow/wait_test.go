package escrow_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/waiting"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func (g *game) follows(t *testing.T, svc *escrow.Service, w escrow.Wait) <-chan answer[escrow.View] {
	t.Helper()
	w.For = waiting.Longest
	access := g.access(t, svc, g.tokens[0], escrow.Read)
	got := make(chan answer[escrow.View], 1)
	go func() { got <- of(svc.ViewAfter(t.Context(), access, w)) }()
	return got
}

func (h *fixture) waitable(t *testing.T) *escrow.Service {
	t.Helper()
	hub := waiting.New(h.store.Progress, nil, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		hub.Run(t.Context())
	}()
	t.Cleanup(func() { <-done }) // hub.Run returns, because t.Context ends before the cleanups run
	return h.replicaOn(h.store, escrow.Options{Waits: hub})
}

// Each change of a deal ends a wait, both in the process that made the change and in a
// process that is not notified of the change.
func TestViewWaitsForEachChange(t *testing.T) {
	h := newFixture(t)
	g := h.split(t, nil)
	here, there := h.waitable(t), h.waitable(t)
	for _, step := range []struct {
		what             string
		take             func()
		state            deal.State
		commits, reveals int
	}{
		{"a commit", func() { g.commit(t, here, 0).ok(t) }, deal.Committing, 1, 0},
		{"the last commit", func() { g.commit(t, here, 1).ok(t) }, deal.Revealing, 2, 0},
		{"a reveal", func() { g.reveal(t, here, 1).ok(t) }, deal.Revealing, 2, 1},
		{"the last reveal", func() { g.reveal(t, here, 0).ok(t) }, deal.Computed, 2, 2},
	} {
		before := g.view(t, here).Snapshot.Progress()
		same := escrow.Wait{Same: func(v escrow.View) bool { return v.Snapshot.Progress() == before }}
		local, remote := g.follows(t, here, same), g.follows(t, there, same)
		step.take()
		for _, v := range []escrow.View{(<-local).ok(t), (<-remote).ok(t)} {
			if v.State != step.state || v.Commits != step.commits || v.Reveals != step.reveals {
				t.Fatalf("%s: the view shows %s with %d commits and %d reveals, want %s with %d and %d", step.what, v.State, v.Commits, v.Reveals, step.state, step.commits, step.reveals)
			}
		}
	}
}

func TestViewDoesNotWaitInVain(t *testing.T) {
	h := newFixture(t)
	svc := h.replica() // the hub of svc does not run, so a wait ends only when its time is up
	cancelled := h.split(t, nil)
	of(svc.Cancel(t.Context(), cancelled.access(t, svc, cancelled.key, escrow.CancelDeal), nil)).ok(t)
	began := time.Now()
	for what, c := range map[string]struct {
		g *game
		w escrow.Wait
	}{
		"the state is another":            {h.split(t, nil).committed(t), escrow.Wait{State: deal.Committing}},
		"the view is another":             {h.split(t, nil), escrow.Wait{Same: func(escrow.View) bool { return false }}},
		"certified":                       {h.split(t, nil).revealed(t), escrow.Wait{}},
		"certified, since the last state": {h.split(t, nil).revealed(t), escrow.Wait{State: deal.Computed}},
		"cancelled":                       {cancelled, escrow.Wait{}},
	} {
		want := c.g.view(t, h.replica()).State
		if v := (<-c.g.follows(t, svc, c.w)).ok(t); v.State != want {
			t.Errorf("%s: ViewAfter shows %s, want %s", what, v.State, want)
		}
	}
	if time.Since(began) >= waiting.Longest {
		t.Errorf("the calls took %v, want less than %v: no call may wait", time.Since(began), waiting.Longest)
	}
}

// A wait ends when a deadline passes, even if no worker runs.
func TestDeadlineEndsAWait(t *testing.T) {
	h := newFixture(t)
	for state, g := range map[deal.State]*game{deal.Open: h.split(t, nil).later(t, 3600-2), deal.Revealing: h.split(t, nil).committed(t).later(t, 7200-2)} {
		if v := (<-g.follows(t, h.waitable(t), escrow.Wait{State: state})).ok(t); v.State != deal.Void {
			t.Errorf("a wait that began in %s ended in %s, want VOID after the deadline", state, v.State)
		}
	}
}

// CertificateAfter tries to get the certificate three times: at once, after the last reveal, and
// after the RetryAfter of the second try's error.
func TestCertificateWaitsForTheDraw(t *testing.T) {
	h := newFixture(t)
	g := h.random(t, nil).committed(t)
	g.reveal(t, h.replica(), 0).ok(t)
	svc := h.waitable(t)
	access := g.access(t, svc, g.tokens[0], escrow.AsParty)
	tries := 0
	before := func() error {
		switch tries++; tries {
		case 1:
			g.reveal(t, h.replica(), 1).ok(t)
		case 2:
			return problem.New(problem.CertNotReady, "the round is due in a second").WithRetryAfter(1)
		case 3:
			g.later(t, roundOut).entropy(t, h.replica()).ok(t)
		}
		return nil
	}
	issued := of(svc.CertificateAfter(t.Context(), access, escrow.Wait{For: waiting.Longest}, before)).ok(t)
	if tries != 3 || issued.CertID != g.certID(t) {
		t.Errorf("certificate %s after %d tries, want %s after 3", issued.CertID, tries, g.certID(t))
	}
}

func TestCertificateIsTriedAtTheStartAndTheEndOfAWait(t *testing.T) {
	h := newFixture(t)
	const wait = 50 * time.Millisecond
	for what, row := range map[string]struct {
		wait, drain time.Duration
		tries       int
	}{
		"no wait":     {0, 0, 1},
		"time is up":  {wait, 0, 2},
		"drain began": {waiting.Longest, wait, 2},
	} {
		g := h.split(t, nil).committed(t)
		g.reveal(t, h.replica(), 0).ok(t)
		hub := waiting.New(h.store.Progress, nil, slog.New(slog.DiscardHandler)) // this hub does not run, so a change does not end a wait
		svc := h.replicaOn(h.store, escrow.Options{Waits: hub})
		access := g.access(t, svc, g.tokens[0], escrow.AsParty)
		began, tries := time.Now(), 0
		if row.drain > 0 {
			time.AfterFunc(row.drain, hub.End)
		}
		_, err := svc.CertificateAfter(t.Context(), access, escrow.Wait{For: row.wait}, func() error {
			if tries++; tries == 2 {
				if time.Since(began) < wait {
					t.Errorf("%s: the second try came after %v, want %v or more, the end of the wait", what, time.Since(began), wait)
				}
				g.reveal(t, h.replica(), 1).ok(t)
			}
			return nil
		})
		if tries != row.tries || (err == nil) != (tries == 2) || err != nil && !problem.Is(err, problem.CertNotReady) {
			t.Errorf("%s: CertificateAfter: got error %v after %d tries, want %d tries and CERT_NOT_READY unless there are 2", what, err, tries, row.tries)
		}
	}
}

// Unlike deal.Deal.LookAt, which package deal tests, Service.LookAt takes account of a pending
// certificate.
func TestLookAt(t *testing.T) {
	h := newFixture(t)
	svc := h.replica()
	for name, row := range map[string]struct {
		g    *game
		want func(escrow.View) int64
	}{
		"revealing": {h.split(t, nil).committed(t), func(v escrow.View) int64 { return v.RevealDeadline }},
		"pending":   {pending(t, h), func(v escrow.View) int64 { return v.Now + 5 }},
		"published": {h.split(t, nil).revealed(t), func(escrow.View) int64 { return 0 }},
	} {
		v := row.g.view(t, svc)
		if at, more := svc.LookAt(v); at != row.want(v) || more != (at != 0) {
			t.Errorf("%s: LookAt = %d, %t; want %d", name, at, more, row.want(v))
		}
	}
}
