//go:build alerts

package alerts

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
	"github.com/fairpact/fairpact/internal/signing/kmstest"
)

// nowhere is an address at which nobody listens.
const nowhere = "http://127.0.0.1:1"

// unhastened is why FairpactWorkerBlind may fire first here: whether Postgres answers is looked at every 5 s, which this
// clock does not hasten.
const unhastened = "the worker lists nothing, and the outage is measured some seconds later"

// faults has one or more for each alert of the chart.
var faults = []fault{
	{alert: "FairpactProofFailures", what: "a leaf was changed in the database", do: func(s *site) func() {
		v := &e2e.Vault{W: s.w}
		put := v.Change(s.t, []string{`UPDATE translog.leaves SET entry = sha256(entry) WHERE leaf_index = 0`})
		if r := s.c.Verify(s.published()); r.Valid {
			s.t.Errorf("%+v", r)
		}
		return func() { put(); s.restart(localstack.LogServer) }
	}},
	{alert: "FairpactSecondCertificate", what: "the phase of a certified deal was set back", also: map[string]string{
		"FairpactCertificatesPending": "the second certificate waits for ever",
	}, do: func(s *site) func() {
		d := s.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		first := e2e.File(s.t, d.Certified(e2e.Patience))
		(&e2e.Vault{W: s.w}).SetBack(s.t, d)
		return func() {
			_, err := s.stack.Fairpactctl(s.t.Context(), "certificate", "adopt", first, "--base-url", s.stack.BaseURL(), "--secret-file", filepath.Join(s.stack.Dir(), "server-secret"))
			s.must(err)
			d.Certified(e2e.Patience)
			s.restart(localstack.LogServer)
		}
	}},
	{alert: "FairpactInputsUnopened", what: "a stored input was changed", do: func(s *site) func() {
		d := s.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		ann, bob := e2e.Seal(s.t, e2e.AnnsValues), e2e.Seal(s.t, e2e.BobsValues)
		d.Commit(0, ann)
		d.Commit(1, bob)
		d.Reveal(0, ann)
		change := func(sealed string) {
			_, err := s.w.Pool.Exec(s.t.Context(), "UPDATE reveals SET sealed = "+sealed+" WHERE deal_id = $1 AND party = 0", d.ID)
			s.must(err)
		}
		change("sealed || '\\x00'::bytea")
		d.Reveal(1, bob)
		return func() {
			change("substr(sealed, 1, length(sealed) - 1)")
			d.Certified(e2e.Patience)
		}
	}},
	{alert: "FairpactForkGuardRefused", what: "the database is an old backup", env: []string{guardBeside}, also: map[string]string{
		"FairpactLogUnpublished": "leaves that came meanwhile have no head",
	}, do: func(s *site) func() {
		backup := s.backup()
		s.play()
		newest := s.backup()
		s.restore(backup)
		s.play() // the log takes the leaf and may not sign the head
		return func() { s.restore(newest); s.restart(localstack.LogServer) }
	}},
	{alert: "FairpactSignatureInvalid", what: "a signature of something else, once", do: func(s *site) func() {
		d := s.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		inputs := []e2e.Sealed{e2e.Seal(s.t, e2e.AnnsValues), e2e.Seal(s.t, e2e.BobsValues)}
		d.Commit(0, inputs[0])
		d.Commit(1, inputs[1])
		d.Reveal(0, inputs[0])
		s.must(s.kms.FailTimes(kmstest.OtherDigest, 2)) // one that is wrong is asked for again
		d.Reveal(1, inputs[1])
		return func() { d.Certified(e2e.Patience) }
	}},
	{alert: "FairpactKeySetsDiffer", what: "a worker with a retired key that the others were not given", do: func(s *site) func() {
		_, other := e2e.KeyFile(s.t)
		s.must(s.stack.Restart(s.t.Context(), localstack.DeadlineWorker, "FAIRPACT_LEGACY_KEYS="+other))
		return func() { s.restart(localstack.DeadlineWorker) }
	}},
	{alert: "FairpactKeyUnusable", what: "the file of a key that is to sign later is missing", also: map[string]string{
		"FairpactKeySetsDiffer": "the others were not given it",
	}, do: func(s *site) func() {
		label, err := signing.PublicKeyOf(s.t.Context(), s.uri)
		s.must(err)
		missing, later := e2e.KeyFile(s.t)
		set := e2e.File(s.t, e2e.Body{"keys": []e2e.Body{
			{"pubkey": label, "uri": s.uri, "signs_from": 0},
			{"pubkey": later, "uri": missing + ".missing", "signs_from": time.Now().Add(24 * time.Hour).Unix()},
		}})
		s.must(s.stack.Restart(s.t.Context(), localstack.DeadlineWorker, "FAIRPACT_SIGNING_KEY=", "FAIRPACT_KEY_SET_FILE="+set))
		return func() { s.restart(localstack.DeadlineWorker) }
	}},

	{alert: "FairpactDown", what: "no deal-api", do: gone(localstack.DealAPI)},
	{alert: "FairpactDown", what: "no log-server", do: gone(localstack.LogServer)},
	{alert: "FairpactDown", what: "no deadline-worker", do: gone(localstack.DeadlineWorker)},
	{alert: "FairpactErrorBudgetFast", what: "Postgres is down under load", also: map[string]string{
		"FairpactErrorBudgetSlow": "what fails fast fails slowly as well",
		"FairpactPostgresDown":    "it is why the calls fail",
		"FairpactWorkerBlind":     unhastened,
	}, do: func(s *site) func() {
		stop := s.load(1)
		s.must(s.stack.Postgres().Stop())
		return func() {
			for _, query := range e2e.DashboardQueries(s.t) {
				if whenWell(query) && len(s.p.query(s.t, s.here(query))) == 0 {
					s.t.Errorf("the dashboard shows no calls that fail: %s", query)
				}
			}
			s.must(s.stack.Postgres().Restart(s.t.Context()))
			stop()
		}
	}},
	{alert: "FairpactErrorBudgetFast", what: "Postgres is down for who calls over MCP", also: map[string]string{
		"FairpactErrorBudgetSlow": "what fails fast fails slowly as well",
		"FairpactPostgresDown":    "it is why the calls fail",
		"FairpactWorkerBlind":     unhastened,
	}, do: func(s *site) func() {
		certID := s.published()
		s.must(s.stack.Postgres().Stop())
		stop := s.again(1, func(ctx context.Context) {
			_, _ = s.c.Try(ctx, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"verify_certificate","arguments":{"cert_id":"`+certID+`"}}}`)
			e2e.Pause(ctx, 100*time.Millisecond)
		})
		return func() { stop(); s.must(s.stack.Postgres().Restart(s.t.Context())) }
	}},
	{alert: "FairpactErrorBudgetSlow", what: "one call in a hundred fails", do: func(s *site) func() {
		x := e2e.Open(s.c, e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "open", "standard"), 2, 2, e2e.AnnsValues, e2e.BobsValues)
		x.Deal.Certified(e2e.Patience)
		s.w.Exec(1, `UPDATE reveals SET sealed = sealed || '\x00' WHERE deal_id = $1 AND party = 1`, x.Deal.ID)
		return s.again(1, func(ctx context.Context) {
			for range 100 {
				_, _ = s.c.Try(ctx, "GET", "/v1/status", "", nil)
			}
			_, _ = s.c.Try(ctx, "GET", x.Deal.Path("/inputs"), x.Deal.Tokens[0], nil)
			e2e.Pause(ctx, 100*time.Millisecond)
		})
	}},
	{alert: "FairpactSlow", what: "a table is locked again and again", do: func(s *site) func() {
		stop := s.load(2)
		unlock := s.again(1, func(ctx context.Context) { s.locked(ctx, "commitments", 1500*time.Millisecond) })
		return func() { unlock(); stop() }
	}},

	{alert: "FairpactDeadlinesLate", what: "a transaction holds the row of a due deal", do: func(s *site) func() {
		d := s.c.Create(e2e.SplitBody(3*time.Second, time.Hour))
		held, err := s.w.Pool.Begin(s.t.Context())
		s.must(err)
		_, err = held.Exec(s.t.Context(), "SELECT FROM deals WHERE deal_id = $1 FOR UPDATE", d.ID)
		s.must(err)
		return func() { s.must(held.Rollback(s.t.Context())) }
	}},
	{alert: "FairpactDrawsWait", what: "no relay answers", env: []string{"FAIRPACT_BEACON_RELAYS=" + nowhere}, also: map[string]string{"FairpactBeaconFailing": "it is why draws wait"}, do: undrawn(10 * time.Minute)},
	{alert: "FairpactWorkerBlind", what: "the deals are locked", do: func(s *site) func() {
		held, err := s.w.Pool.Begin(s.t.Context())
		s.must(err)
		_, err = held.Exec(s.t.Context(), "LOCK TABLE deals")
		s.must(err)
		return func() { s.must(held.Rollback(s.t.Context())) }
	}},
	{alert: "FairpactPostgresDown", what: "Postgres is down", also: map[string]string{
		"FairpactWorkerBlind":     unhastened,
		"FairpactErrorBudgetFast": "no other call dilutes those of the processes for the tree head, if the outage lasts",
		"FairpactErrorBudgetSlow": "no other call dilutes those of the processes for the tree head, if the outage lasts",
	}, do: func(s *site) func() {
		s.must(s.stack.Postgres().Stop())
		return func() { s.must(s.stack.Postgres().Restart(s.t.Context())) }
	}},
	{alert: "FairpactReadOnly", what: "the release is read-only", do: func(s *site) func() {
		for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
			s.restart(name, "FAIRPACT_READ_ONLY=true")
		}
		return func() { s.restart(localstack.DealAPI); s.restart(localstack.DeadlineWorker) }
	}},
	{alert: "FairpactCertificatesPending", what: "nobody reaches the append port", do: func(s *site) func() {
		for _, name := range []string{localstack.DealAPI, localstack.DeadlineWorker} {
			s.restart(name, "FAIRPACT_LOG_APPEND_URL="+nowhere)
		}
		s.play()
		return func() { s.restart(localstack.DealAPI); s.restart(localstack.DeadlineWorker) }
	}},
	{alert: "FairpactLogUnpublished", what: "the fork guard is out of reach", env: []string{guardBeside}, also: map[string]string{
		"FairpactSlow": "the last reveal waits three seconds for its certificate",
	}, do: func(s *site) func() {
		path := filepath.Join(s.dir, "guard.json")
		s.must(os.Rename(path, path+".kept"))
		s.must(os.Mkdir(path, 0o700))
		stop := s.load(3)
		return func() {
			// Users are answered well meanwhile, and no other alert says otherwise.
			e2e.Eventually(s.t, "appends have failed for a while", e2e.Patience, func() bool {
				return len(s.p.query(s.t, `fairpact_http_requests_total{route="/v1/append",status=~"5..",namespace="`+s.namespace+`"} offset 5s`)) > 0
			})
			s.must(os.Remove(path))
			s.must(os.Rename(path+".kept", path))
			stop()
		}
	}},

	{alert: "FairpactQuorumBehind", what: "all witnesses are gone", witnesses: 2, also: map[string]string{
		"FairpactWitnessBehind": "each of them owes a cosignature",
	}, do: func(s *site) func() {
		s.stack.Witness(1, false)
		s.stack.Witness(2, false)
		s.play()
		return func() { s.stack.Witness(1, true); s.stack.Witness(2, true) }
	}},
	{alert: "FairpactWitnessBehind", what: "one witness of three is gone", witnesses: 3, do: func(s *site) func() {
		s.stack.Witness(3, false)
		s.play()
		return func() { s.stack.Witness(3, true) }
	}},
	{alert: "FairpactSigningDown", what: "the key service is down", also: map[string]string{"FairpactSigningFailing": "all signatures fail"}, do: func(s *site) func() {
		s.must(s.kms.SetFault(kmstest.Down))
		stop := s.load(1)
		return func() { s.must(s.kms.SetFault(kmstest.None)); stop() }
	}},
	{alert: "FairpactSigningFailing", what: "the right to sign is taken away", do: func(s *site) func() {
		s.must(s.kms.SetFault(kmstest.Denied))
		stop := s.load(1)
		return func() { s.must(s.kms.SetFault(kmstest.None)); stop() }
	}},
	{alert: "FairpactBeaconFailing", what: "no relay answers", env: []string{"FAIRPACT_BEACON_RELAYS=" + nowhere}, do: undrawn(time.Minute)},
	{alert: "FairpactRedisDown", what: "Redis is down", do: func(s *site) func() {
		s.must(s.stack.Redis().Stop())
		return func() { s.must(s.stack.Redis().Restart(s.t.Context())) }
	}},
	{alert: "FairpactDatabasePoolFull", what: "calls wait for a locked table", env: []string{"FAIRPACT_DATABASE_CONNS=4"},
		also: map[string]string{
			"FairpactSlow":            "who waits for a connection waits long",
			"FairpactErrorBudgetFast": "and is told so after ten seconds, when Postgres gives the lock up",
			"FairpactErrorBudgetSlow": "and is told so after ten seconds, when Postgres gives the lock up",
		}, do: func(s *site) func() {
			unlock := s.again(1, func(ctx context.Context) { s.locked(ctx, "api_keys", time.Hour) })
			stop := s.load(8)
			return func() { unlock(); stop() }
		}},
}

// guardBeside has log-server keep a fork guard; {dir} is a directory of the site's own.
const guardBeside = "FAIRPACT_FORK_GUARD=file://{dir}/guard.json"

func gone(kind string) func(s *site) func() {
	return func(s *site) func() {
		s.must(s.stack.Stop(kind))
		return func() { s.must(s.stack.Start(s.t.Context(), kind)) }
	}
}

// undrawn plays a random.v1 deal whose last reveal was so long ago; the worker
// draws after a minute. It is undone by a worker that reaches the beacon.
func undrawn(ago time.Duration) func(s *site) func() {
	return func(s *site) func() {
		d, inTime := s.c.Nonces(s.stack.Chain(), e2e.After(time.Hour), e2e.After(2*time.Hour))
		if !inTime {
			s.t.Fatal("an hour was not enough to play a deal of two")
		}
		s.w.RevealedEarlier(d, int(ago/time.Second))
		s.w.Exec(1, "UPDATE deals SET round_time = reveals_closed_at WHERE deal_id = $1", d.ID)
		return func() {
			s.restart(localstack.DeadlineWorker, "FAIRPACT_BEACON_RELAYS="+s.stack.BeaconURL())
			d.Certified(e2e.Patience)
		}
	}
}

func (s *site) restart(name string, env ...string) {
	s.t.Helper()
	s.must(s.stack.Restart(s.t.Context(), name, env...))
}

// play plays a deal to its end, whatever becomes of its certificate.
func (s *site) play() {
	s.t.Helper()
	s.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)).Play(e2e.AnnsValues, e2e.BobsValues)
}

// published is a certificate in the log.
func (s *site) published() string {
	s.t.Helper()
	return e2e.Value[string](s.w, "SELECT cert_id FROM certificates WHERE leaf_index = 0")
}

// again does something over and over, as many times at once, until it is
// stopped; what is under way is then finished.
func (s *site) again(players int, do func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range players {
		all.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// locked holds the lock of a table, as a change of it does, for a time or until
// ctx ends.
func (s *site) locked(ctx context.Context, table string, hold time.Duration) {
	_ = pgx.BeginFunc(ctx, s.w.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "LOCK TABLE "+pgx.Identifier{table}.Sanitize()); err != nil {
			return err
		}
		e2e.Pause(ctx, hold)
		return nil
	})
	e2e.Pause(ctx, 50*time.Millisecond)
}

// load is as many players who play one deal after another, whatever they are
// answered.
func (s *site) load(players int) (stop func()) {
	return s.again(players, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		s.oneDeal(ctx)
		e2e.Pause(ctx, 200*time.Millisecond)
	})
}

func (s *site) oneDeal(ctx context.Context) {
	call := func(method, path, token string, sent, into any) bool {
		a, err := s.c.Try(ctx, method, path, token, sent)
		return err == nil && a.Status < 300 && (into == nil || json.Unmarshal(a.Body, into) == nil)
	}
	var key struct {
		APIKey string `json:"api_key"`
	}
	var made struct {
		DealID  string                   `json:"deal_id"`
		Invites []struct{ Token string } `json:"invite_tokens"`
	}
	if !call("POST", "/v1/keys", "", nil, &key) || !call("POST", "/v1/deals", key.APIKey, e2e.SplitBody(time.Hour, 2*time.Hour), &made) {
		return
	}
	path, inputs := "/v1/deals/"+made.DealID, []e2e.Sealed{e2e.Seal(s.t, e2e.AnnsValues), e2e.Seal(s.t, e2e.BobsValues)}
	for _, action := range []string{"commit", "reveal"} {
		for i, invite := range made.Invites {
			if !call("POST", path+"/"+action, invite.Token, inputs[i].Act(action), nil) {
				return
			}
		}
	}
	call("GET", path, made.Invites[0].Token, nil, nil)
}

// logTables are the log's tables, as a backup has them.
var logTables = []string{"log_head", "leaves", "nodes", "tree_heads", "tags"}

// backup copies the log, and gives the copy's name.
func (s *site) backup() string {
	s.t.Helper()
	name := "backup_" + e2e.Value[string](s.w, "SELECT count(*)::text FROM pg_namespace")
	statements := []string{"CREATE SCHEMA " + name}
	for _, table := range logTables {
		statements = append(statements, "CREATE TABLE "+name+"."+table+" AS TABLE translog."+table)
	}
	(&e2e.Vault{W: s.w}).At(s.t, statements, false)
	return name
}

// restore puts a backup in the place of the log.
func (s *site) restore(name string) {
	s.t.Helper()
	var statements []string
	for _, table := range logTables {
		statements = append(statements, "DELETE FROM translog."+table, "INSERT INTO translog."+table+" SELECT * FROM "+name+"."+table)
	}
	(&e2e.Vault{W: s.w}).At(s.t, statements, false)
}
