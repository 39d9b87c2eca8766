package ops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

type roller struct {
	t      *testing.T
	stack  *localstack.Stack
	second string // the folder with the files of the second deal-api
	ctl    *e2e.Ctl
}

// give copies a file of the stack to the second deal-api.
func (r roller) give(name string) {
	r.t.Helper()
	e2e.Must(r.t, os.WriteFile(filepath.Join(r.second, name), []byte(r.read(name)+"\n"), 0o600))
}

// until waits until fairpactctl secret prints the text.
func (r roller) until(text string, args ...string) {
	r.t.Helper()
	e2e.Eventually(r.t, "fairpactctl prints "+text, 2*e2e.DefaultTimeout, func() bool {
		_, out, errs := r.ctl.Try(append([]string{"secret"}, args...)...)
		return strings.Contains(out+errs, text)
	})
}

func (r roller) file(name string) string { return filepath.Join(r.stack.Dir(), name) }

func (r roller) write(name, text string) {
	r.t.Helper()
	e2e.Must(r.t, os.WriteFile(r.file(name), []byte(text), 0o600))
}

func (r roller) read(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(r.file(name))
	e2e.Must(r.t, err)
	return strings.TrimSpace(string(text))
}

func (r roller) secret(code int, args ...string) string {
	r.t.Helper()
	out, errs := r.ctl.Run(code, append([]string{"secret"}, args...)...)
	return out + errs
}

func (r roller) says(what, text string) {
	r.t.Helper()
	if !strings.Contains(text, what) {
		r.t.Errorf("fairpactctl does not print %q:\n%s", what, text)
	}
}

// Both secrets are rotated without a restart: each process takes over its changed file. The second
// deal-api has files of its own, so that it can lack a change.
func TestRotateSecrets(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	r := roller{t: t, second: own, ctl: e2e.NewCtl(t, "")}
	r.stack = e2e.Own(t, func(o *localstack.Options) {
		o.Replicas = map[string]int{localstack.DealAPI: 2}
	})
	for _, name := range []string{"server-secret", "append-secret"} {
		r.give(name)
	}
	e2e.Must(t, r.stack.Restart(t.Context(), e2e.SecondAPI, "FAIRPACT_SERVER_SECRET_FILE="+filepath.Join(own, "server-secret"), "FAIRPACT_APPEND_SECRET_FILE="+filepath.Join(own, "append-secret")))
	r.appendSecret()
	r.serverSecret()
}

// serverSecret rotates the server secret and requires that no deal, no input, and no response that is
// stored for an Idempotency-Key is lost. fairpactctl must refuse every step that comes too early. At
// the end, `fairpactctl secret adopt` replaces a lost secret.
func (r roller) serverSecret() {
	t := r.t
	r.ctl.Env = append(r.ctl.Env, "DATABASE_URL="+r.stack.DatabaseURL(), "FAIRPACT_SERVER_SECRET_FILE="+r.file("server-secret"))
	db := e2e.OpenDB(t, r.stack)
	one, two := e2e.NewClient(t, r.stack.BaseURL()), e2e.NewClient(t, r.stack.URL(e2e.SecondAPI))
	at := func(c *e2e.Client, d *e2e.CreatedDeal) *e2e.CreatedDeal { there := *d; there.C = c; return &there }
	ann, bob := e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)
	begun := func(c *e2e.Client) *e2e.CreatedDeal {
		d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		d.Commit(0, ann)
		d.Commit(1, bob)
		d.Reveal(0, ann)
		return d
	}
	open := e2e.SplitBody(time.Hour, 2*time.Hour)
	open["mode"] = "open"
	ended := one.Create(open)
	ended.Play(e2e.AnnsValues, e2e.BobsValues)
	ended.Certified(e2e.DefaultTimeout)
	before, key := begun(one), one.Key()
	creation := one.NewIdempotentPost("/v1/deals", key, e2e.SplitBody(time.Hour, 2*time.Hour))
	created := creation.Want(201)
	old := r.read("server-secret")

	r.says("is in force already", r.secret(1, "rotate"))
	both := r.secret(0, "add")
	next, _, _ := strings.Cut(both, "\n")
	if !strings.Contains(both, old) || next == old {
		t.Fatal("fairpactctl secret add does not keep the old secret")
	}

	// fairpactctl refuses to rotate until every process has the new secret. A process without the
	// new secret could not decrypt what the other processes encrypt with it.
	r.write("server-secret", both)
	r.until("1 of 3 processes lack the set of server secrets", "check")
	r.says("1 of 3 processes lack the set of server secrets", r.secret(1, "rotate"))
	between := begun(one) // a process with both secrets still encrypts with the old one
	at(two, between).Reveal(1, bob)
	between.Certified(e2e.DefaultTimeout)
	r.give("server-secret")
	r.until("with fairpactctl secret rotate", "check")
	during := begun(two)
	r.says("is in force; keep", r.secret(0, "rotate"))

	at(two, before).Reveal(1, bob)
	during.Reveal(1, bob)
	for _, d := range []*e2e.CreatedDeal{before, during} {
		d.Certified(e2e.DefaultTimeout)
	}
	for _, c := range []*e2e.Client{two, one} {
		creation.C = c
		creation.Replays(created)
	}
	after := begun(one)
	r.says("wait", r.secret(0, "check"))

	// Stored data still needs the former secret. So fairpactctl refuses to adopt a third secret, and a
	// process starts only with both secrets.
	other := filepath.Join(t.TempDir(), "server-secret")
	e2e.Must(t, os.WriteFile(other, []byte(strings.Repeat("ab", 32)), 0o600))
	r.says("there is nothing to adopt", r.secret(1, "adopt"))
	r.says("1 unfinished deals and 0 pending certificates need the former secret", r.secret(1, "adopt", "--secret-file", other))
	for _, text := range []string{next, old, strings.Repeat("ab", 32)} {
		r.write("server-secret", text+"\n") // deal-api runs on with both secrets
		r.give("server-secret")
		for _, name := range []string{e2e.SecondAPI, localstack.DeadlineWorker} {
			if err := r.stack.Restart(t.Context(), name); err == nil {
				t.Fatalf("%s starts without a secret that is needed", name)
			}
			if said, err := os.ReadFile(r.stack.Log(name)); err != nil || !strings.Contains(string(said), "add the missing secret") {
				t.Errorf("%s does not log what to do: %v", name, err)
			}
		}
	}
	r.write("server-secret", both)
	r.give("server-secret")
	for _, name := range []string{e2e.SecondAPI, localstack.DeadlineWorker} {
		e2e.Must(t, r.stack.Start(t.Context(), name))
	}

	// Move the stored times back by more than a day, the lifetime of a replay. The replays from before
	// the rotation then count as expired, so the worker can finish the rotation.
	for _, statement := range []string{"UPDATE server_secret SET since = since - 86500", "UPDATE idempotency SET expires_at = expires_at - 86500"} {
		if _, err := db.Pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Eventually(t, "the former secret may go", 2*e2e.DefaultTimeout, func() bool {
		return db.Number("SELECT coalesce(cardinality(former), -1) FROM server_secret") == 0
	})
	r.says("remove all lines but the first", r.secret(0, "check"))
	r.write("server-secret", next+"\n")
	r.give("server-secret")
	r.until("3 run (1 deadline-worker, 2 deal-api), all with", "check")
	at(two, after).Reveal(1, bob)
	after.Certified(e2e.DefaultTimeout)
	two.Want(200, "GET", ended.Path("/inputs"), ended.Tokens[0], nil)
	r.says("nothing: one secret is in force", r.secret(0, "check"))
	db.Converged()
	e2e.Invariants(t, r.stack)
	for _, name := range []string{localstack.DealAPI, e2e.SecondAPI, localstack.DeadlineWorker} {
		if said, err := os.ReadFile(r.stack.Log(name)); err != nil || strings.Contains(string(said), old) || strings.Contains(string(said), next) {
			t.Errorf("%s logs a server secret: %v", name, err)
		}
	}

	// Simulate the loss of the secret while no deal is in progress: fairpactctl adopts another secret,
	// and a new deal succeeds.
	for _, name := range []string{localstack.DealAPI, e2e.SecondAPI, localstack.DeadlineWorker} {
		e2e.Must(t, r.stack.Stop(name))
	}
	r.secret(0, "adopt", "--secret-file", other)
	r.write("server-secret", strings.Repeat("ab", 32))
	e2e.Must(t, r.stack.Start(t.Context(), localstack.DealAPI))
	again := e2e.NewClient(t, r.stack.BaseURL()).ComputedDeal()
	again.Certified(e2e.DefaultTimeout)
}

// appendSecret rotates the append secret. log-server accepts both secrets until all callers send
// the new one. After the rotation, log-server refuses the former secret.
func (r roller) appendSecret() {
	t := r.t
	old, next := r.read("append-secret"), strings.Repeat("cd", 32)
	one, two := e2e.NewClient(t, r.stack.BaseURL()), e2e.NewClient(t, r.stack.URL(e2e.SecondAPI))
	reloads := 0
	reloaded := func(names ...string) {
		reloads++
		for _, name := range names {
			e2e.Eventually(t, name+" has the append secrets", 2*e2e.DefaultTimeout, func() bool {
				said, err := os.ReadFile(r.stack.Log(name))
				return err == nil && strings.Count(string(said), `"msg":"file reloaded","setting":"FAIRPACT_APPEND_SECRET_FILE"`) >= reloads
			})
		}
		for _, c := range []*e2e.Client{one, two} {
			c.ComputedDeal().Certified(e2e.DefaultTimeout)
		}
	}
	for _, file := range []string{old + "\n" + next + "\n", next + "\n" + old + "\n"} {
		r.write("append-secret", file)
		r.give("append-secret")
		reloaded(localstack.DealAPI, localstack.LogServer, e2e.SecondAPI, localstack.DeadlineWorker)
	}
	// A deal-api that still sends the former secret gets no certificate once log-server refuses it.
	e2e.Must(t, os.WriteFile(filepath.Join(r.second, "append-secret"), []byte(old+"\n"), 0o600))
	reloaded(e2e.SecondAPI)
	r.write("append-secret", next+"\n")
	e2e.Eventually(t, "log-server refuses the former append secret", 2*e2e.DefaultTimeout, func() bool {
		d := two.ComputedDeal()
		return two.Do("GET", d.Path("/certificate"), d.Tokens[0], nil).Code() == "CERT_NOT_READY"
	})
	r.give("append-secret")
	reloaded(e2e.SecondAPI)
	e2e.OpenDB(t, r.stack).Converged()
}
