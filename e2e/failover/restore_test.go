//go:build long

package failover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// `make drill` runs this test. The test follows charts/fairpact/runbooks/restore.md. The database is
// restored to a time before the last certificates, and the fork guard refuses to sign. fairpactctl
// restores the lost leaves from the parties' copies of the certificates, and the service continues.
func TestRestoreToAnEarlierMoment(t *testing.T) {
	t.Parallel()
	// Postgres runs archive_command in its data directory, so ../archive is beside that directory.
	primary, err := localservers.StartPostgres(t.Context(), localservers.Options{Settings: []string{
		"archive_mode=on", "archive_command=mkdir -p ../archive && cp %p ../archive/%f"}})
	e2e.Must(t, err)
	t.Cleanup(func() { e2e.Must(t, primary.Close()) })
	url, err := primary.EnsureDatabase(t.Context(), "fairpact")
	e2e.Must(t, err)
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
	certified := func() (d *e2e.CreatedDeal, copied []byte) {
		d = c.ComputedDeal()
		return d, d.Certified(e2e.DefaultTimeout)
	}
	var kept [][]byte // the parties' copies of the certificates
	_, before := certified()
	kept = append(kept, before)

	var backups [2]*localservers.Backup
	step("base backup", func() { backups[0], err = primary.BaseBackup(t.Context()); e2e.Must(t, err) })
	backups[1], err = primary.BaseBackup(t.Context())
	e2e.Must(t, err)
	t.Cleanup(func() { e2e.Must(t, backups[1].Close()) })
	_, archived := certified()
	kept = append(kept, archived)
	half := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	inputs := []e2e.Sealed{e2e.Seal(t, e2e.AnnsValues), e2e.Seal(t, e2e.BobsValues)}
	for i, in := range inputs {
		half.Commit(i, in)
	}
	withSeals := func() (d *e2e.CreatedDeal, commit func(party int)) {
		b := e2e.SplitBody(time.Hour, 2*time.Hour)
		d = c.Create(b)
		return d, func(party int) {
			c.Want(200, "POST", d.Path("/commit"), d.Tokens[party], inputs[party].Timelocked(stack.Chain(), d, party, b["commit_deadline"].(int64)))
		}
	}
	torn, commit := withSeals() // the closing of its commitments is lost, but the deal is not
	commit(0)
	moment := e2e.Value[string](e2e.OpenDB(t, stack), "SELECT clock_timestamp()::text")
	for i, in := range inputs {
		half.Reveal(i, in)
	}
	kept = append(kept, half.Certified(e2e.DefaultTimeout))
	commit(1)
	for i, in := range inputs {
		torn.Reveal(i, in)
	}
	e2e.Eventually(t, "the bundle has the closing", e2e.DefaultTimeout, func() bool {
		a := c.Do("GET", torn.Path("/bundle"), torn.Tokens[0], nil)
		kept = append(kept[:3], a.Body)
		return a.Status == 200 && bytes.Contains(a.Body, []byte(`"closing":`))
	})
	lost, copied := certified()
	kept = append(kept, copied)
	head := c.Want(200, "GET", "/v1/log/tree-head", "", nil).Body
	keys := c.Want(200, "GET", "/v1/pubkeys", "", nil).Body
	w := e2e.OpenDB(t, stack)
	segment := e2e.Value[string](w, "SELECT pg_walfile_name(pg_switch_wal())")
	e2e.Eventually(t, "the write-ahead log is archived", e2e.DefaultTimeout, func() bool {
		return e2e.Value[bool](w, "SELECT coalesce(last_archived_wal >= $1, false) FROM pg_stat_archiver", segment)
	})
	w.Pool.Close()
	primary.Kill()

	fetch := "cp " + filepath.Join(filepath.Dir(primary.DataDir()), "archive") + "/%f %p"
	restore := func(b *localservers.Backup) *localservers.Postgres {
		p, err := b.Restore(t.Context(), localservers.Options{Port: primary.Port()}, fetch, moment)
		e2e.Must(t, err)
		t.Cleanup(func() { e2e.Must(t, p.Close()) })
		return p
	}

	// A careless operator restores the database while all processes run. The fork guard refuses the
	// new tree head, because the leaf of a new deal takes the index of a lost leaf.
	careless := restore(backups[0])
	e2e.Must(t, answers(t.Context(), c))
	unsigned := c.ComputedDeal()
	e2e.Eventually(t, "the fork guard refuses, and the log says so", e2e.DefaultTimeout, func() bool {
		text, err := os.ReadFile(stack.Log(localstack.LogServer))
		e2e.Must(t, err)
		return bytes.Contains(text, []byte("the fork guard refuses"))
	})
	c.Refused(409, "CERT_NOT_READY", "GET", unsigned.Path("/certificate"), unsigned.Tokens[0], nil)
	files := []string{"certificate", "return", "--keys", e2e.File(t, keys), "--tree-head", e2e.File(t, head)}
	var copies []string
	for _, certificate := range kept {
		copies = append(copies, e2e.File(t, certificate))
	}
	if said, err := stack.Fairpactctl(t.Context(), append(files, copies...)...); err == nil {
		t.Fatalf("certificate return accepted leaves into a log with other leaves: %s", said)
	}

	step("stop deal-api and deadline-worker", func() {
		e2e.Must(t, stack.Stop(localstack.DealAPI))
		e2e.Must(t, stack.Stop(localstack.DeadlineWorker))
	})
	e2e.Must(t, careless.Close())
	var restored *localservers.Postgres
	step("restore to the moment, same address", func() { restored = restore(backups[1]) })
	e2e.Must(t, stack.Redis().Restart(t.Context()))
	if said, err := stack.Fairpactctl(t.Context(), append(files, copies[:len(copies)-1]...)...); err == nil {
		t.Fatalf("certificate return accepted the leaves without the last one: %s", said)
	}
	step("fairpactctl certificate return", func() {
		said, err := stack.Fairpactctl(t.Context(), append(files, copies...)...)
		e2e.Must(t, err)
		t.Logf("%s", bytes.TrimSpace([]byte(said)))
	})
	step("start log-server, which signs the next head", func() { e2e.Must(t, stack.Restart(t.Context(), localstack.LogServer)) })
	adopt := []string{"certificate", "adopt", "--keys", e2e.File(t, keys), "--tree-head", e2e.File(t, head), "--secret-file", filepath.Join(stack.Dir(), "server-secret")}
	step("fairpactctl certificate adopt, for each deal", func() {
		for i, file := range copies {
			said, err := stack.Fairpactctl(t.Context(), append(adopt, file)...)
			if gone := i == len(copies)-1; (err != nil) != gone || gone && !bytes.Contains([]byte(said), []byte("the database has no deal "+lost.ID)) {
				t.Errorf("certificate adopt of copy %d: %v, want an error (no deal %s): %v\n%s", i, err, lost.ID, gone, said)
			}
		}
	})
	step("start deal-api and deadline-worker", func() {
		e2e.Must(t, stack.Start(t.Context(), localstack.DealAPI))
		e2e.Must(t, stack.Start(t.Context(), localstack.DeadlineWorker))
	})
	step("a new deal to its certificate", func() { certified() })

	half.Certified(e2e.DefaultTimeout)
	if v := half.View(); v.State != "COMPUTED" {
		t.Errorf("the deal that was revealed after the moment is %s, want COMPUTED", v.State)
	}
	c.Refused(401, "INVALID_CREDENTIAL", "GET", lost.Path(""), lost.Tokens[0], nil) // the restored database does not have this deal
	if v := torn.View(); v.State != "COMPUTED" {
		t.Errorf("the deal with seals is %s, want COMPUTED", v.State)
	}
	for i, certificate := range kept[:3] {
		if r := c.Verify(e2e.Decoded(t, certificate)["cert_id"].(string)); !r.Valid {
			t.Errorf("certificate %d is reported %+v, want valid", i, r)
		}
	}
	if said, err := stack.Fairpactctl(t.Context(), "verify", copies[4], "--keys", e2e.File(t, keys), "--tree-head", e2e.File(t, head)); err != nil {
		t.Errorf("fairpactctl verify of the lost deal's certificate: %v\n%s", err, said)
	}
	conn, err := pgx.Connect(t.Context(), restored.URL("fairpact"))
	e2e.Must(t, err)
	defer conn.Close(t.Context())
	var deals, leaves int
	e2e.Must(t, conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM deals), (SELECT count(*) FROM translog.leaves)").Scan(&deals, &leaves))
	if deals != 5 || leaves != 7 {
		t.Errorf("%d deals and %d leaves, want 5 and 7", deals, leaves)
	}
	e2e.Eventually(t, "the worker gives up the closing of a deal without its commitments", e2e.DefaultTimeout, func() bool {
		return e2e.OpenDB(t, stack).Number("SELECT coalesce(closing_leaf, 0) FROM deals WHERE deal_id = $1", torn.ID) == -1
	})

	_, commit = withSeals() // its closing is not a thief's leaf either
	commit(0)
	commit(1)

	// One of the returned leaves is of a deal that the database lost, so it has no certificate. The query for the
	// leaves of a thief must not list it: the operator would disown genuine certificates.
	thief, err := signing.Open(t.Context(), "dev://"+filepath.Join(stack.Dir(), "dev-key.pem"))
	e2e.Must(t, err)
	forged, err := e2e.Forge(t, stack, thief, 1)
	e2e.Must(t, err)
	if listed := e2e.OpenDB(t, stack).Column(e2e.ForeignLeaves(t)); fmt.Sprint(listed) != fmt.Sprintf("[%d]", forged) {
		t.Errorf("the query of stolen-key.md lists the leaves %v, want only the thief's leaf %d", listed, forged)
	}
}
