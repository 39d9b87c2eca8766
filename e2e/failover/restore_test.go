//go:build long

package failover

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localservers"
	"github.com/fairpact/fairpact/internal/localstack"
)

// The recovery drill of runbooks/restore.md: the database is restored to a moment
// before the last certificates. The fork guard refuses to go on; the certificates
// come back from the parties' copies, and the service resumes.
func TestRestoreToAnEarlierMoment(t *testing.T) {
	t.Parallel()
	// The archive lies beside the data: archive_command runs there.
	primary, err := localservers.StartPostgres(t.Context(), localservers.Options{Settings: []string{
		"archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f"}})
	must(t, err)
	t.Cleanup(func() { must(t, primary.Close()) })
	url, err := primary.EnsureDatabase(t.Context(), "fairpact")
	must(t, err)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.DatabaseURL, o.Env[localstack.LogServer] = url, guarded(t)
	})
	c := e2e.NewClient(t, stack.BaseURL())
	step := func(what string, do func()) {
		t.Helper()
		begun := time.Now()
		do()
		t.Logf("%-58s %6.1f s", what, time.Since(begun).Seconds())
	}
	certified := func() (d *e2e.Dealt, copied []byte) {
		d = c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		d.Play(e2e.AnnsValues, e2e.BobsValues)
		return d, d.Certified(e2e.Patience)
	}
	var kept [][]byte // the certificates, as parties have them
	_, before := certified()
	kept = append(kept, before)

	var backups [2]*localservers.Backup
	step("base backup", func() { backups[0], err = primary.BaseBackup(t.Context()); must(t, err) })
	backups[1], err = primary.BaseBackup(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, backups[1].Close()) })
	_, archived := certified()
	kept = append(kept, archived)
	half := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour)) // all commit before the moment and reveal after it
	inputs := []e2e.Sealed{e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)}
	for i, in := range inputs {
		half.Commit(i, in)
	}
	moment := e2e.Value[string](e2e.Database(t, stack), "SELECT clock_timestamp()::text")
	for i, in := range inputs {
		half.Reveal(i, in)
	}
	kept = append(kept, half.Certified(e2e.Patience))
	lost, copied := certified()
	kept = append(kept, copied)
	head := c.Want(200, "GET", "/v1/log/tree-head", "", nil).Body
	keys := c.Want(200, "GET", "/v1/pubkeys", "", nil).Body
	w := e2e.Database(t, stack)
	segment := e2e.Value[string](w, "SELECT pg_walfile_name(pg_switch_wal())")
	e2e.Eventually(t, "the write-ahead log is archived", e2e.Patience, func() bool {
		return e2e.Value[bool](w, "SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver", segment)
	})
	w.Pool.Close()
	primary.Kill()

	fetch := "cp " + filepath.Join(filepath.Dir(primary.DataDir()), "archive") + "/%f %p"
	restore := func(b *localservers.Backup) *localservers.Postgres {
		p, err := b.Restore(t.Context(), localservers.Options{Port: primary.Port()}, fetch, moment)
		must(t, err)
		t.Cleanup(func() { must(t, p.Close()) })
		return p
	}

	// The database comes back while all is running: the guard refuses, and the leaf
	// of a new deal takes the place of a lost one.
	careless := restore(backups[0])
	must(t, answers(t.Context(), c))
	unsigned := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	unsigned.Play(e2e.AnnsValues, e2e.BobsValues)
	e2e.Eventually(t, "the fork guard refuses, and the log says so", e2e.Patience, func() bool {
		text, err := os.ReadFile(stack.Log(localstack.LogServer))
		must(t, err)
		return bytes.Contains(text, []byte("the fork guard refuses"))
	})
	c.Refused(409, "CERT_NOT_READY", "GET", unsigned.Path("/certificate"), unsigned.Tokens[0], nil)
	files := []string{"certificate", "return", "--keys", e2e.File(t, keys), "--tree-head", e2e.File(t, head)}
	var copies []string
	for _, certificate := range kept {
		copies = append(copies, e2e.File(t, certificate))
	}
	if said, err := stack.Fairpactctl(t.Context(), append(files, copies...)...); err == nil {
		t.Fatalf("leaves came back into a log that went on: %s", said)
	}

	// As the runbook says it.
	step("stop deal-api and deadline-worker", func() {
		must(t, stack.Stop(localstack.DealAPI))
		must(t, stack.Stop(localstack.DeadlineWorker))
	})
	must(t, careless.Close())
	var restored *localservers.Postgres
	step("restore to the moment, same address", func() { restored = restore(backups[1]) })
	must(t, stack.Redis().Restart(t.Context()))
	if said, err := stack.Fairpactctl(t.Context(), append(files, copies[:len(copies)-1]...)...); err == nil {
		t.Fatalf("the log took leaves without the last one: %s", said)
	}
	step("fairpactctl certificate return", func() {
		said, err := stack.Fairpactctl(t.Context(), append(files, copies...)...)
		must(t, err)
		t.Logf("%s", bytes.TrimSpace([]byte(said)))
	})
	step("start log-server, which signs the next head", func() { must(t, stack.Restart(t.Context(), localstack.LogServer)) })
	adopt := []string{"certificate", "adopt", "--keys", e2e.File(t, keys), "--tree-head", e2e.File(t, head), "--secret-file", filepath.Join(stack.Dir(), "server-secret")}
	step("fairpactctl certificate adopt, for each deal", func() {
		for i, file := range copies {
			said, err := stack.Fairpactctl(t.Context(), append(adopt, file)...)
			if gone := i == len(copies)-1; (err != nil) != gone || gone && !bytes.Contains([]byte(said), []byte("the database has no deal "+lost.ID)) {
				t.Errorf("adopt %d: %v\n%s", i, err, said)
			}
		}
	})
	step("start deal-api and deadline-worker", func() {
		must(t, stack.Start(t.Context(), localstack.DealAPI))
		must(t, stack.Start(t.Context(), localstack.DeadlineWorker))
	})
	step("a new deal to its certificate", func() { certified() })

	half.Certified(e2e.Patience)
	if v := half.View(); v.State != "COMPUTED" {
		t.Errorf("the deal that was revealed after the moment is %s", v.State)
	}
	c.Refused(401, "INVALID_CREDENTIAL", "GET", lost.Path(""), lost.Tokens[0], nil) // its deal is gone for good
	for i, certificate := range kept[:3] {
		if r := c.Verify(e2e.Decoded(t, certificate)["cert_id"].(string)); !r.Valid {
			t.Errorf("certificate %d: %+v", i, r)
		}
	}
	// The certificate of the lost deal verifies as before, from the party's copy.
	if said, err := stack.Fairpactctl(t.Context(), "verify", copies[3], "--keys", e2e.File(t, keys), "--tree-head", e2e.File(t, head)); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	conn, err := pgx.Connect(t.Context(), restored.URL("fairpact"))
	must(t, err)
	defer conn.Close(t.Context())
	var deals, leaves int
	must(t, conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM deals), (SELECT count(*) FROM translog.leaves)").Scan(&deals, &leaves))
	if deals != 4 || leaves != 5 {
		t.Errorf("%d deals and %d leaves, want 4 and 5", deals, leaves)
	}
}
