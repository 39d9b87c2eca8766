package store_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/dev/localservers/servertest"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/rules/deal"
	"github.com/fairpact/fairpact/internal/rules/problem"
)

func calls(s *store.Store, dealID string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"InsertKey":    func(ctx context.Context) error { return s.InsertKey(ctx, random32(), nil) },
		"EndKeyReplay": func(ctx context.Context) error { return s.EndKeyReplay(ctx, random32()) },
		"UseKey":       func(ctx context.Context) error { return third(s.UseKey(ctx, random32(), 1)) },
		"PartyByToken": func(ctx context.Context) error { return third(s.PartyByToken(ctx, random32())) },
		"CreateDeal":   func(ctx context.Context) error { return second(s.CreateDeal(ctx, newDeal(0, nil))) },
		"Declaration":  func(ctx context.Context) error { return second(s.Declaration(ctx, dealID)) },
		"Snapshot":     func(ctx context.Context) error { return second(s.Snapshot(ctx, dealID, store.AllParties(2))) },
		"Commit":       func(ctx context.Context) error { return second(s.Commit(ctx, store.Act{DealID: dealID})) },
		"Reveal":       func(ctx context.Context) error { return second(s.Reveal(ctx, store.Act{DealID: dealID})) },
		"End": func(ctx context.Context) error {
			return second(s.End(ctx, &store.Ending{DealID: dealID, Parties: 2, From: deal.Revealing, To: deal.Void}))
		},
		"Reject": func(ctx context.Context) error {
			return second(s.Reject(ctx, &store.Ending{DealID: dealID}, store.Act{}))
		},
		"Cancel":        func(ctx context.Context) error { return second(s.Cancel(ctx, dealID, nil)) },
		"Certificate":   func(ctx context.Context) error { return second(s.Certificate(ctx, "c_1")) },
		"CertificateOf": func(ctx context.Context) error { return second(s.CertificateOf(ctx, dealID)) },
		"SetSignature":  func(ctx context.Context) error { return s.SetSignature(ctx, "c_1", "x", nil) },
		"Publish":       func(ctx context.Context) error { return second(s.Publish(ctx, store.Publication{CertID: "c_1"})) },
		"Due":           func(ctx context.Context) error { return second(s.Due(ctx, 3, 10, nil)) },
		"ListComplete":  func(ctx context.Context) error { return second(s.ListComplete(ctx, 10)) },
		"Load":          func(ctx context.Context) error { return second(s.Load(ctx)) },
		"FindReplay":    func(ctx context.Context) error { return second(s.FindReplay(ctx, random32(), nil)) },
		"SetResponse":   func(ctx context.Context) error { return second(s.SetResponse(ctx, random32(), []byte("x"))) },
		"ExpireReplay":  func(ctx context.Context) error { return s.ExpireReplay(ctx, random32()) },
		"Sweep":         func(ctx context.Context) error { return second(s.Sweep(ctx)) },
		"PutRound":      func(ctx context.Context) error { return s.PutRound(ctx, "00", 1, "00", "00") },
		"Round":         func(ctx context.Context) error { return third(s.Round(ctx, "00", 1)) },
	}
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("%s: got error %v, want UNAVAILABLE", what, err)
	}
}

func allUnavailable(t *testing.T, s *store.Store, dealID string, timeout time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var group sync.WaitGroup
	for what, call := range calls(s, dealID) {
		group.Go(func() { unavailable(t, what, call(ctx)) })
	}
	group.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if s.Ready(ctx) == nil {
		t.Error("Ready: got no error, want one in an outage")
	}
}

func recovers(t *testing.T, f *fixture, d *store.Declaration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var now *store.Snapshot
		// Ignore ActResult.Done: it is false if an earlier try was stored and its answer was lost.
		_, err := f.Commit(ctx, act(d, 1))
		if err == nil {
			now, err = f.Snapshot(ctx, d.DealID, store.OneParty(1))
		}
		if err == nil {
			if now.Commits != 2 || now.Phase != deal.Revealing || now.Parts[0].Commitment == nil {
				t.Errorf("after the outage: got %+v, want REVEALING with 2 commitments", now)
			}
			return
		}
		if !problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
			t.Fatalf("after the outage: got error %v, want only UNAVAILABLE, and that for less than a minute", err)
		}
	}
}

// A call whose new connection fails is retried once, if the database has answered another call meanwhile.
func TestFailedConnectionIsRetriedWhileTheDatabaseAnswers(t *testing.T) {
	f := newFixture(t)
	d := f.create(t, nil)
	for _, row := range []struct {
		name     string
		answers  bool
		failures int32
		attempts int32
		works    bool
	}{
		{"it answers", true, 1, 2, true},
		{"it answers, and the retry fails", true, 2, 2, false},
		{"it does not answer", false, 1, 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			type call struct{}
			var attempts atomic.Int32
			dialing, end := make(chan struct{}), make(chan struct{})
			dials := sync.OnceFunc(func() { close(dialing) })
			s, err := store.Open(t.Context(), f.url, 16, func(config *pgxpool.Config) {
				config.AfterRelease = func(*pgx.Conn) bool { return false } // so that each call opens a connection
				config.BeforeConnect = func(ctx context.Context, next *pgx.ConnConfig) error {
					if ctx.Value(call{}) == nil || attempts.Add(1) > row.failures {
						return nil
					}
					next.DialFunc = func(context.Context, string, string) (net.Conn, error) {
						dials()
						<-end
						return nil, errors.New("no route to the host")
					}
					return nil
				}
			})
			check(t, err)
			defer s.Close()
			failed := make(chan error, 1)
			go func() {
				failed <- third(s.UseKey(context.WithValue(context.Background(), call{}, true), random32(), 1))
			}()
			<-dialing
			if row.answers {
				_, err := s.Snapshot(t.Context(), d.DealID, store.NoParties)
				check(t, err)
			}
			close(end)
			if err := <-failed; row.works {
				check(t, err)
			} else {
				unavailable(t, "the call", err)
			}
			if attempts.Load() != row.attempts {
				t.Errorf("%d attempts to connect, want %d", attempts.Load(), row.attempts)
			}
		})
	}
}

// Close does not wait for a database that hangs, even while statements of each kind are
// under way.
func TestPostgresHangs(t *testing.T) {
	f := newFixture(t)
	proxied, freeze, thaw := freezable(t, f.url)
	f.Store = open(t, proxied)
	// A call that returns UNAVAILABLE may still take effect, so allUnavailable must not use `d`.
	called, d := f.create(t, nil), f.create(t, nil)
	f.commit(t, d, 0)
	freeze()
	allUnavailable(t, f.Store, called.DealID, 200*time.Millisecond)
	thaw()
	recovers(t, f, d)
	freeze()
	defer thaw()
	allUnavailable(t, f.Store, called.DealID, 200*time.Millisecond)
	began := time.Now()
	f.Close()
	// If Close waited for the statements under way, it would take almost 20 s (groupTimeout).
	if took := time.Since(began); took > 18*time.Second {
		t.Errorf("Close took %s, want at most 18 s", took)
	}
}

// freezable returns the URL of a proxy to the database. Between freeze and thaw the proxy
// forwards no answer.
func freezable(t *testing.T, database string) (proxied string, freeze, thaw func()) {
	t.Helper()
	address, err := url.Parse(database)
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { listener.Close() })
	server := address.Host
	address.Host = listener.Addr().String()
	var passing sync.RWMutex
	pass := func(to, from net.Conn, gate sync.Locker) {
		defer to.Close()
		for buffer := make([]byte, 4096); ; {
			n, err := from.Read(buffer)
			gate.Lock()
			_, _ = to.Write(buffer[:n])
			gate.Unlock()
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go pass(upstream, client, new(sync.Mutex))
			go pass(client, upstream, passing.RLocker())
		}
	}()
	return address.String(), passing.Lock, passing.Unlock
}

func TestAPanicInAScanFreesItsConnection(t *testing.T) {
	f := newFixture(t)
	const connections = 2
	s, err := store.Open(t.Context(), f.url, connections)
	check(t, err)
	t.Cleanup(s.Close)
	for range 2 * connections {
		if err := s.PanicInScan(t.Context()); problem.From(err).Code != problem.Internal {
			t.Fatalf("a panic in a scan: got error %v, want INTERNAL", err)
		}
	}
	check(t, second(s.Now(t.Context())))
}

func TestReadyNeedsTheSchema(t *testing.T) {
	_, empty := store.Open(t.Context(), servertest.Postgres(t), 1)
	f := newFixture(t)
	check(t, f.Ready(t.Context()))
	f.exec(t, "UPDATE goose_db_version SET version_id = 0")
	for what, err := range map[string]error{"open without tables": empty, "ready with older tables": f.Ready(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "fairpactctl migrate") {
			t.Errorf("%s: got error %v, want one that names fairpactctl migrate", what, err)
		}
	}
}
