//go:build alerts

package alerts

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/kmstest"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

const nowhere = "http://127.0.0.1:1"

// unhastened says why FairpactWorkerBlind may fire while Postgres is down. fairpact_database_up = 0
// suppresses the alert, but the processes update this metric only every 5 s. The tests shorten the
// durations of the alert, but not these 5 s, so the alert can fire first.
const unhastened = "the worker lists no deals, and fairpact_database_up follows some seconds later"

// faults has at least one fault for each alert of the chart.
var faults = []fault{
	{alert: "FairpactProofFailures", what: "a leaf was changed in the database", do: func(s *site) func() {
		v := &e2e.RowEditor{W: s.w}
		put := v.Update(s.t, []string{`UPDATE translog.leaves SET entry = sha256(entry) WHERE leaf_index = 0`})
		if r := s.c.Verify(s.published()); r.Valid {
			s.t.Errorf("a certificate whose leaf was changed is reported valid: %+v", r)
		}
		return func() { put(); s.restart(localstack.LogServer) }
	}},
	{alert: "FairpactSecondCertificate", what: "the phase of a certified deal was set back", also: map[string]string{
		"FairpactCertificatesPending": "the second certificate can never be published",
	}, do: func(s *site) func() {
		d := s.c.ComputedDeal()
		first := e2e.File(s.t, d.Certified(e2e.DefaultTimeout))
		(&e2e.RowEditor{W: s.w}).RewriteAsMissedReveal(s.t, d)
		return func() {
			_, err := s.stack.Fairpactctl(s.t.Context(), "certificate", "adopt", first, "--base-url", s.stack.BaseURL(), "--secret-file", filepath.Join(s.stack.Dir(), "server-secret"))
			e2e.Must(s.t, err)
			d.Certified(e2e.DefaultTimeout)
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
			e2e.Must(s.t, err)
		}
		change("sealed || '\\x00'::bytea")
		d.Reveal(1, bob)
		return func() {
			change("substr(sealed, 1, length(sealed) - 1)")
			d.Certified(e2e.DefaultTimeout)
		}
	}},
	{alert: "FairpactForkGuardRefused", what: "the database is an old backup", env: []string{guardBeside}, also: map[string]string{
		"FairpactLogUnpublished": "new leaves have no tree head",
	}, do: func(s *site) func() {
		backup := s.backup()
		s.c.ComputedDeal()
		newest := s.backup()
		s.restore(backup)
		s.c.ComputedDeal() // the log accepts the leaf, but the fork guard refuses the new tree head
		return func() { s.restore(newest); s.restart(localstack.LogServer) }
	}},
	{alert: "FairpactSignatureInvalid", what: "a signature of something else, once", do: func(s *site) func() {
		d := s.c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		inputs := []e2e.Sealed{e2e.Seal(s.t, e2e.AnnsValues), e2e.Seal(s.t, e2e.BobsValues)}
		d.Commit(0, inputs[0])
		d.Commit(1, inputs[1])
		d.Reveal(0, inputs[0])
		e2e.Must(s.t, s.kms.FailTimes(kmstest.OtherDigest, 2)) // two faults, because the signer retries once after a wrong signature
		d.Reveal(1, inputs[1])
		return func() { d.Certified(e2e.DefaultTimeout) }
	}},
	{alert: "FairpactKeySetsDiffer", what: "only the worker has another retired key", do: func(s *site) func() {
		_, other := e2e.KeyFile(s.t)
		set := e2e.File(s.t, e2e.Body{"keys": []e2e.Body{{"uri": s.uri, "signs_from": 0}, {"pubkey": other}}})
		return s.with([]string{localstack.DeadlineWorker}, "FAIRPACT_KEY_SET_FILE="+set)
	}},
	{alert: "FairpactFileUnused", what: "the key set of the worker becomes unreadable", do: func(s *site) func() {
		set := e2e.File(s.t, e2e.Body{"keys": []e2e.Body{{"uri": s.uri, "signs_from": 0}}})
		back := s.with([]string{localstack.DeadlineWorker}, "FAIRPACT_KEY_SET_FILE="+set)
		e2e.Must(s.t, os.WriteFile(set, []byte("{"), 0o600))
		return back
	}},
	{alert: "FairpactKeyUnusable", what: "the file of a later key is missing", also: map[string]string{
		"FairpactKeySetsDiffer": "only the worker has this key set",
	}, do: func(s *site) func() {
		label, err := signing.PublicKeyOf(s.t.Context(), s.uri)
		e2e.Must(s.t, err)
		missing, later := e2e.KeyFile(s.t)
		set := e2e.File(s.t, e2e.Body{"keys": []e2e.Body{
			{"pubkey": label, "uri": s.uri, "signs_from": 0},
			{"pubkey": later, "uri": missing + ".missing", "signs_from": time.Now().Add(24 * time.Hour).Unix()},
		}})
		return s.with([]string{localstack.DeadlineWorker}, "FAIRPACT_KEY_SET_FILE="+set)
	}},

	{alert: "FairpactDown", what: "no deal-api", do: gone(localstack.DealAPI)},
	{alert: "FairpactDown", what: "no log-server", do: gone(localstack.LogServer)},
	{alert: "FairpactDown", what: "no deadline-worker", do: gone(localstack.DeadlineWorker)},
	{alert: "FairpactNotReady", what: "the schema of the deals was set back", also: outdated, do: schemaSetBack("public")},
	{alert: "FairpactReplicaNotReady", what: "the schema of the log was set back", also: outdated, do: schemaSetBack("translog")},
	{alert: "FairpactSchemaOld", what: "the schema of the deals was set back", also: outdated, do: schemaSetBack("public")},
	{alert: "FairpactErrorBudgetFast", what: "Postgres is down under load", also: callsFail, do: func(s *site) func() {
		stop, back := s.load(1), s.withoutPostgres()
		return func() {
			for _, query := range e2e.DashboardQueries(s.t) {
				if emptyWhenHealthy(query) && len(s.p.query(s.t, s.here(query))) == 0 {
					s.t.Errorf("the dashboard does not show the failing calls: no series for %s", query)
				}
			}
			back()
			stop()
		}
	}},
	{alert: "FairpactErrorBudgetFast", what: "Postgres is down for calls over MCP", also: callsFail, do: func(s *site) func() {
		certID := s.published()
		back := s.withoutPostgres()
		stop := s.again(1, func(ctx context.Context) {
			_, _ = s.c.Try(ctx, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"verify_certificate","arguments":{"cert_id":"`+certID+`"}}}`)
			e2e.Pause(ctx, 100*time.Millisecond)
		})
		return func() { stop(); back() }
	}},
	{alert: "FairpactErrorBudgetSlow", what: "one call in a hundred fails", also: map[string]string{
		"FairpactInputsUnopened": "the call fails because its input cannot be opened",
	}, do: func(s *site) func() {
		x := e2e.Open(s.c, e2e.Retained(e2e.SplitBody(time.Hour, 2*time.Hour), "open", "standard"), 2, 2, e2e.AnnsValues, e2e.BobsValues)
		x.Deal.Certified(e2e.DefaultTimeout)
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
		held := s.w.HoldDeal(s.c.Create(e2e.SplitBody(3*time.Second, time.Hour)).ID)
		return func() { e2e.Must(s.t, held.Rollback(s.t.Context())) }
	}},
	{alert: "FairpactDrawsWait", what: "no relay answers", env: []string{"FAIRPACT_BEACON_RELAYS=" + nowhere}, also: map[string]string{"FairpactBeaconFailing": "draws wait for the beacon"}, do: undrawn(10 * time.Minute)},
	{alert: "FairpactWorkerBlind", what: "the deals are locked", do: func(s *site) func() {
		held, err := s.w.Pool.Begin(s.t.Context())
		e2e.Must(s.t, err)
		_, err = held.Exec(s.t.Context(), "LOCK TABLE deals")
		e2e.Must(s.t, err)
		return func() { e2e.Must(s.t, held.Rollback(s.t.Context())) }
	}},
	{alert: "FairpactPostgresDown", what: "Postgres is down", also: map[string]string{
		"FairpactWorkerBlind":     unhastened,
		"FairpactErrorBudgetFast": "the only calls are those of the processes for the tree head, which fail",
		"FairpactErrorBudgetSlow": "the only calls are those of the processes for the tree head, which fail",
	}, do: (*site).withoutPostgres},
	{alert: "FairpactCommitsWait", what: "the synchronous standby is gone", also: map[string]string{
		"FairpactCertificatesPending": "no certificate can be stored",
		"FairpactDatabasePoolFull":    "commits that wait keep their connections",
		"FairpactDeadlinesLate":       "the ends of deals are not stored",
		"FairpactErrorBudgetFast":     "changes fail",
		"FairpactErrorBudgetSlow":     "changes fail",
		"FairpactLogUnpublished":      "leaves are stored, but their head waits",
		"FairpactPostgresDown":        "the check of Postgres waits for a connection too",
		"FairpactSlow":                "changes wait",
	}, do: func(s *site) func() {
		e2e.Must(s.t, s.stack.Postgres().Synchronous(s.t.Context(), true)) // there is no standby
		stop := s.load(1)
		return func() { e2e.Must(s.t, s.stack.Postgres().Synchronous(s.t.Context(), false)); stop() }
	}},
	{alert: "FairpactReadOnly", what: "the release is read-only", do: func(s *site) func() {
		return s.with([]string{localstack.DealAPI, localstack.DeadlineWorker}, "FAIRPACT_READ_ONLY=true")
	}},
	{alert: "FairpactCertificatesPending", what: "no process reaches the append port", do: func(s *site) func() {
		back := s.with([]string{localstack.DealAPI, localstack.DeadlineWorker}, "FAIRPACT_LOG_APPEND_URL="+nowhere)
		s.c.ComputedDeal()
		return back
	}},
	{alert: "FairpactLogUnpublished", what: "the fork guard is out of reach", env: []string{guardBeside}, also: map[string]string{
		"FairpactSlow": "a last reveal waits three seconds for its certificate",
	}, do: func(s *site) func() {
		path := filepath.Join(s.dir, "guard.json")
		e2e.Must(s.t, os.Rename(path, path+".kept"))
		e2e.Must(s.t, os.Mkdir(path, 0o700))
		stop := s.load(3)
		return func() {
			// Failed appends must not fire an error-budget alert, because users' calls succeed.
			e2e.Eventually(s.t, "appends have failed for a while", e2e.DefaultTimeout, func() bool {
				return len(s.p.query(s.t, `fairpact_http_requests_total{route="/v1/append",status=~"5..",namespace="`+s.namespace+`"} offset 5s`)) > 0
			})
			e2e.Must(s.t, os.Remove(path))
			e2e.Must(s.t, os.Rename(path+".kept", path))
			stop()
		}
	}},

	{alert: "FairpactCheckpointsFailing", what: "the log key is disabled", env: []string{"FAIRPACT_LOG_KEY={log-key}"}, also: map[string]string{
		"FairpactSigningFailing": "the signatures of the log key are refused",
	}, do: func(s *site) func() {
		s.kms.SetState(s.logKey, kmspb.CryptoKeyVersion_DISABLED)
		s.c.ComputedDeal().Certified(e2e.DefaultTimeout)
		return func() { s.kms.SetState(s.logKey, kmspb.CryptoKeyVersion_ENABLED) }
	}},
	{alert: "FairpactQuorumBehind", what: "all witnesses are gone", witnesses: 2, also: map[string]string{
		"FairpactWitnessBehind": "each of them has not cosigned",
	}, do: unwitnessed(1, 2)},
	{alert: "FairpactWitnessBehind", what: "one witness of three is gone", witnesses: 3, do: unwitnessed(3)},
	{alert: "FairpactSigningDown", what: "the key service is down", also: map[string]string{"FairpactSigningFailing": "all signatures fail"}, do: unsigned(kmstest.Down)},
	{alert: "FairpactSigningFailing", what: "the key service denies the right to sign", do: unsigned(kmstest.Denied)},
	{alert: "FairpactBeaconFailing", what: "no relay answers", env: []string{"FAIRPACT_BEACON_RELAYS=" + nowhere}, do: undrawn(time.Minute)},
	{alert: "FairpactRedisDown", what: "Redis is down", do: func(s *site) func() {
		e2e.Must(s.t, s.stack.Redis().Stop())
		return func() { e2e.Must(s.t, s.stack.Redis().Restart(s.t.Context())) }
	}},
	{alert: "FairpactRedisDown", what: "Redis refuses the password", do: func(s *site) func() {
		u, err := url.Parse(s.stack.Redis().URL())
		e2e.Must(s.t, err)
		u.User = url.UserPassword("", "wrong")
		return s.with([]string{localstack.DealAPI}, "REDIS_URL="+u.String())
	}},
	{alert: "FairpactDatabasePoolFull", what: "calls wait for a locked table", env: []string{"FAIRPACT_DATABASE_CONNS=4"},
		also: map[string]string{
			"FairpactSlow":            "calls wait long for a connection",
			"FairpactPostgresDown":    "the check of Postgres waits for a connection too, longer than the shortened for",
			"FairpactErrorBudgetFast": "calls fail after ten seconds without the lock",
			"FairpactErrorBudgetSlow": "calls fail after ten seconds without the lock",
		}, do: func(s *site) func() {
			unlock := s.again(1, func(ctx context.Context) { s.locked(ctx, "api_keys", time.Hour) })
			stop := s.load(8)
			return func() { unlock(); stop() }
		}},
}

// callsFail has the fault.also of FairpactErrorBudgetFast while Postgres is down.
var callsFail = map[string]string{
	"FairpactErrorBudgetSlow": "the slow window sees the same failures",
	"FairpactPostgresDown":    "the calls fail because Postgres is down",
	"FairpactWorkerBlind":     unhastened,
}

// outdated has the fault.also of a schema that is older than the binaries.
var outdated = map[string]string{
	"FairpactNotReady":        "the only process of a binary is not ready",
	"FairpactReplicaNotReady": "the process stays so",
	"FairpactSchemaOld":       "it says why",
}

func schemaSetBack(schema string) func(s *site) func() {
	return func(s *site) func() {
		newest := func(applied bool) {
			_, err := s.w.Pool.Exec(s.t.Context(), "UPDATE "+schema+".goose_db_version SET is_applied = $1 WHERE version_id = (SELECT max(version_id) FROM "+schema+".goose_db_version)", applied)
			e2e.Must(s.t, err)
		}
		newest(false)
		return func() { newest(true) }
	}
}

// guardBeside makes log-server keep its fork guard in a file. siteOf replaces {dir} by site.dir.
const guardBeside = "FAIRPACT_FORK_GUARD=file://{dir}/guard.json"

func (s *site) withoutPostgres() (back func()) {
	e2e.Must(s.t, s.stack.Postgres().Stop())
	return func() { e2e.Must(s.t, s.stack.Postgres().Restart(s.t.Context())) }
}

func (s *site) with(names []string, env ...string) (back func()) {
	for _, name := range names {
		s.restart(name, env...)
	}
	return func() {
		for _, name := range names {
			s.restart(name)
		}
	}
}

func unwitnessed(witnesses ...int) func(s *site) func() {
	return func(s *site) func() {
		answer := func(answers bool) {
			for _, n := range witnesses {
				s.stack.Witness(n, answers)
			}
		}
		answer(false)
		s.c.ComputedDeal()
		return func() { answer(true) }
	}
}

func unsigned(fault kmstest.Fault) func(s *site) func() {
	return func(s *site) func() {
		e2e.Must(s.t, s.kms.SetFault(fault))
		stop := s.load(1)
		return func() { e2e.Must(s.t, s.kms.SetFault(kmstest.None)); stop() }
	}
}

func gone(kind string) func(s *site) func() {
	return func(s *site) func() {
		e2e.Must(s.t, s.stack.Stop(kind))
		return func() { e2e.Must(s.t, s.stack.Start(s.t.Context(), kind)) }
	}
}

// undrawn creates a random.v1 deal in which the reveals and the beacon round are `ago` in the past.
// deadline-worker draws one minute after both, so `ago` must be at least a minute: then the draw is due.
func undrawn(ago time.Duration) func(s *site) func() {
	return func(s *site) func() {
		d, inTime := s.c.RevealedRandomDeal(s.stack.Chain(), e2e.After(time.Hour), e2e.After(2*time.Hour))
		if !inTime {
			s.t.Fatal("a two-party deal was not revealed within an hour")
		}
		s.w.RevealedEarlier(d, int(ago/time.Second))
		s.w.Exec(1, "UPDATE deals SET round_time = reveals_closed_at WHERE deal_id = $1", d.ID)
		return func() {
			s.restart(localstack.DeadlineWorker, "FAIRPACT_BEACON_RELAYS="+s.stack.BeaconURL())
			d.Certified(e2e.DefaultTimeout)
		}
	}
}

func (s *site) restart(name string, env ...string) {
	s.t.Helper()
	e2e.Must(s.t, s.stack.Restart(s.t.Context(), name, env...))
}

func (s *site) published() string {
	s.t.Helper()
	return e2e.Value[string](s.w, "SELECT cert_id FROM certificates WHERE leaf_index = 0")
}

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

var logTables = []string{"log_head", "leaves", "nodes", "tree_heads"}

func (s *site) backup() string {
	s.t.Helper()
	name := "backup_" + e2e.Value[string](s.w, "SELECT count(*)::text FROM pg_namespace")
	statements := []string{"CREATE SCHEMA " + name}
	for _, table := range logTables {
		statements = append(statements, "CREATE TABLE "+name+"."+table+" AS TABLE translog."+table)
	}
	(&e2e.RowEditor{W: s.w}).Exec(s.t, statements, false)
	return name
}

func (s *site) restore(name string) {
	s.t.Helper()
	var statements []string
	for _, table := range logTables {
		statements = append(statements, "DELETE FROM translog."+table, "INSERT INTO translog."+table+" SELECT * FROM "+name+"."+table)
	}
	(&e2e.RowEditor{W: s.w}).Exec(s.t, statements, false)
}
