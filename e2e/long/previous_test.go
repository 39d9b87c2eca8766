//go:build long

package long

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
	"github.com/fairpact/fairpact/internal/rules/keys"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// previousRelease returns the directory of the previous release's binaries. The first call in a
// checkout builds the binaries, without the race detector. The source is in a new temporary
// directory. Because of -trimpath, Go's build cache ignores the path of that directory.
func previousRelease(t *testing.T) string {
	t.Helper()
	root, err := localstack.Root()
	e2e.Must(t, err)
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/previous-release.txt"))
	e2e.Must(t, err)
	commit := strings.TrimSpace(string(text))
	kept := filepath.Join(root, "bin", "previous", commit)
	if _, err := os.Stat(kept); err == nil {
		return kept
	}
	run := func(dir, name string, args ...string) error {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, args[0], err, out)
		}
		return nil
	}
	// Git refuses a checkout that another user owns, unless safe.directory names the checkout.
	git := func(args ...string) error {
		return run(root, "git", append([]string{"-c", "safe.directory=" + root}, args...)...)
	}
	if err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Fatalf("the commit %s of e2e/testdata/previous-release.txt is not in this checkout's history, so the upgrade from the previous release cannot be tested: run git fetch --unshallow (%v)", commit, err)
	}
	e2e.Must(t, os.MkdirAll(filepath.Dir(kept), 0o755))
	built, err := os.MkdirTemp(filepath.Dir(kept), "building-")
	e2e.Must(t, err)
	defer os.RemoveAll(built)
	source, began := t.TempDir(), time.Now()
	archive := filepath.Join(source, "source.tar")
	err = git("archive", "--format=tar", "-o", archive, commit, "go.mod", "go.sum", "internal", "services")
	if err == nil {
		err = run(source, "tar", "-xf", archive)
	}
	if err == nil {
		err = run(source, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", built+string(filepath.Separator), "./services/...")
	}
	if err == nil {
		err = os.Chmod(built, 0o755)
	}
	if err == nil {
		err = os.Rename(built, kept)
	}
	// The rename fails if another test process has already built the release. This test then uses
	// that build.
	if _, found := os.Stat(kept); found != nil {
		t.Fatal(err)
	}
	t.Logf("built the previous release in %s", time.Since(began).Round(time.Millisecond))
	return kept
}

const stepBound = 2 * e2e.DefaultTimeout

type upgrade struct {
	t     *testing.T
	stack *localstack.Stack
	w     e2e.DB
	doors []*e2e.Client
	s     *e2e.Stream
}

// This release replaces the previous release under load, and is then rolled back. As in a cluster,
// the migration runs first, and then the processes are replaced one by one. Both releases share one
// database, one Redis and one log. No request fails twice. Each release replays the responses of the
// other release, and ends the deals that the other release began.
func TestPreviousReleaseForwardAndBack(t *testing.T) {
	t.Parallel()
	old := previousRelease(t)
	// All tests check responses against the first OpenAPI document that Published reads. Call Published
	// now, so that this document comes from this release and not from the previous release.
	e2e.Published(t, e2e.NewClient(t, e2e.Shared(t).BaseURL()))
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Bin = old
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})
	u := &upgrade{t: t, stack: stack, w: e2e.OpenDB(t, stack),
		doors: []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}}
	first := []string{localstack.LogServer, localstack.DealAPI, localstack.DeadlineWorker}
	second := []string{e2e.SecondLog, e2e.SecondAPI, e2e.SecondWorker}
	ctx, cancel := context.WithTimeout(t.Context(), 10*e2e.DefaultTimeout)
	defer cancel()
	// Each step has its own time limit, so that the slow step is the one that fails.
	bounded := func() context.Context {
		ctx, done := context.WithTimeout(ctx, stepBound)
		t.Cleanup(done)
		return ctx
	}
	u.roll(ctx, old, second...) // connects the second deal-api and worker to the second log-server
	u.s = e2e.StartStream(ctx, t, stack, u.doors...)
	stage := func(name string) {
		t.Helper()
		if err := u.s.Passes(bounded(), 200); err != nil || t.Failed() {
			t.Fatalf("during %q: %v", name, err)
		}
	}

	stage("the previous release on its own schema")
	u.migrate(bounded(), e2e.Bin)
	stage("the previous release on the new schema")
	there := u.begun(bounded())
	u.roll(ctx, e2e.Bin, first...)
	u.exchanged(bounded())
	u.committed(bounded(), u.doors[0], there[1])
	u.roll(ctx, e2e.Bin, second...)
	stage("the new release")
	u.finishDeals(bounded(), there)

	back := u.begun(bounded())
	version := u.versions()
	u.migrate(bounded(), old)
	if now := u.versions(); now != version {
		t.Errorf("the previous release's migration changed the schema from %s to %s, want no change", version, now)
	}
	u.roll(ctx, old, first...)
	u.exchanged(bounded())
	u.committed(bounded(), u.doors[0], back[1])
	u.roll(ctx, old, second...)
	stage("the previous release again, on the new schema")
	u.finishDeals(bounded(), back)
	all := u.s.Stop()
	if worst := u.s.MaxFailures.Load(); worst > 1 {
		t.Errorf("a request failed %d times in a row, want at most once: a client retries once", worst)
	}
	u.w.Converged()
	u.migrate(bounded(), e2e.Bin)
	keys, err := u.keys(bounded())
	e2e.Must(t, err)
	e2e.InvariantsUnder(t, stack, keys)
	for i := 0; i < len(all); i += 3 {
		if err := all[i].Ended(); err != nil {
			t.Errorf("deal %s: %v", all[i].Id, err)
		}
	}
	t.Logf("%d deals, %d requests, the worst failed %d times; schema %s", len(all), u.s.Attempts.Load(), u.s.MaxFailures.Load(), version)
}

func (u *upgrade) migrate(ctx context.Context, bin string) {
	u.t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "fairpactctl"), "migrate")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+u.stack.DatabaseURL())
	if out, err := cmd.CombinedOutput(); err != nil {
		u.t.Fatalf("fairpactctl migrate: %v\n%s", err, out)
	}
}

func (u *upgrade) versions() string {
	u.t.Helper()
	var all []string
	for _, schema := range u.w.Column(`SELECT quote_ident(schemaname) FROM pg_tables WHERE tablename = 'goose_db_version' ORDER BY 1`) {
		all = append(all, fmt.Sprint(schema, " ", u.w.Number(`SELECT max(version_id) FROM `+schema+`.goose_db_version`)))
	}
	return strings.Join(all, ", ")
}

func (u *upgrade) roll(ctx context.Context, bin string, names ...string) {
	u.t.Helper()
	for _, name := range names {
		var env []string
		if name == e2e.SecondAPI || name == e2e.SecondWorker {
			env = e2e.SecondLogEnv(u.stack)
		}
		u.stack.Exchange(name, bin)
		e2e.Must(u.t, u.stack.Restart(ctx, name, env...))
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", u.stack.PID(name))); err != nil || filepath.Dir(at) != bin {
			u.t.Fatalf("%s runs %s, want the binary in %s: %v", name, at, bin, err)
		}
	}
}

// exchanged checks replays while the two deal-apis run different releases. Each deal-api must
// replay the responses of the other deal-api, first with Redis and then from the database alone.
func (u *upgrade) exchanged(ctx context.Context) {
	u.t.Helper()
	var deals []*e2e.LoadDeal
	played := u.s.Played()
	for _, d := range played[max(0, len(played)-20):] {
		if d.States != nil && (d.States[0] == "COMPUTED" || d.States[0] == "CANCELLED") {
			deals = append(deals, d)
		}
	}
	for _, door := range u.doors {
		for _, kind := range []int{0, 2, 3, 8} {
			d := &e2e.LoadDeal{T: u.t, S: &e2e.RetryingClient{Clients: []*e2e.Client{door}}, Ctx: ctx, Past: u.stack.Chain().RoundAt(time.Now().Unix()) - 10}
			if err := d.Play(kind); err != nil {
				u.t.Fatalf("deal %s of kind %d, at %s: %v", d.Id, kind, door.Base, err)
			}
			deals = append(deals, d)
		}
	}
	for range 2 {
		for i, d := range deals {
			for _, door := range u.doors {
				there := *d
				there.Ctx, there.S = ctx, &e2e.RetryingClient{Clients: []*e2e.Client{door}}
				if err := there.Ended(); err != nil {
					u.t.Errorf("deal %d (%s), repeated at %s: %v", i, d.Id, door.Base, err)
				}
			}
		}
		e2e.Must(u.t, e2e.Cache(u.t, u.stack).FlushAll(ctx).Err())
	}
}

// begun creates two deals. The parties of only the first deal commit.
func (u *upgrade) begun(ctx context.Context) []*e2e.LoadDeal {
	u.t.Helper()
	var both []*e2e.LoadDeal
	for range 2 {
		d := &e2e.LoadDeal{T: u.t, S: u.s.RetryingClient, Ctx: ctx, States: []string{"COMPUTED"}}
		e2e.Must(u.t, d.Create(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.AnnsValues, e2e.BobsValues))
		both = append(both, d)
	}
	u.committed(ctx, u.doors[0], both[0])
	return both
}

func (u *upgrade) committed(ctx context.Context, door *e2e.Client, d *e2e.LoadDeal) {
	u.t.Helper()
	there := *d
	there.Ctx, there.S = ctx, &e2e.RetryingClient{Clients: []*e2e.Client{door}}
	e2e.Must(u.t, there.Acts("commit", len(d.Inputs)))
	d.Calls = there.Calls
}

func (u *upgrade) finishDeals(ctx context.Context, all []*e2e.LoadDeal) {
	u.t.Helper()
	for _, d := range all {
		d.Ctx = ctx
		err := d.Acts("reveal", len(d.Inputs))
		if err == nil {
			err = d.Certified()
		}
		if err == nil {
			err = d.Ended()
		}
		if err != nil {
			u.t.Errorf("deal %s, begun by the other version: %v", d.Id, err)
		}
	}
}

func (u *upgrade) keys(ctx context.Context) (keys.List, error) {
	a, err := insist(ctx, u.doors[0], "/v1/status")
	if err != nil {
		return nil, err
	}
	var status e2e.KeysOfStatus
	if err := json.Unmarshal(a.Body, &status); err != nil {
		return nil, err
	}
	return status.Keys(), nil
}
