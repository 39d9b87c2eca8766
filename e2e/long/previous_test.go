//go:build long

package long

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/localstack"
	"github.com/fairpact/fairpact/internal/signing"
)

// previousRelease gives the directory of the previous release's binaries. They
// are built once for a checkout, without the race detector, and without the path
// of their source, so that Go's cache has them the next time.
func previousRelease(t *testing.T) string {
	t.Helper()
	root, err := localstack.Root()
	if err != nil {
		t.Fatal(err)
	}
	// It moves with every release.
	text, err := os.ReadFile(e2e.Repo("e2e/testdata/previous-release.txt"))
	if err != nil {
		t.Fatal(err)
	}
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
	// The checkout may be another user's, which is no reason not to read it.
	git := func(args ...string) error {
		return run(root, "git", append([]string{"-c", "safe.directory=" + root}, args...)...)
	}
	if err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("NOT PROVEN here: that this release and the one before (%s) serve side by side on one database, and that an upgrade and a rollback lose nothing. That commit is not in this checkout's history; fetch all of it (git fetch --unshallow): %v", commit, err)
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	forget(t, filepath.Dir(kept))
	built, err := os.MkdirTemp(filepath.Dir(kept), "building-")
	if err != nil {
		t.Fatal(err)
	}
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
	// Another test process may have been faster.
	if _, found := os.Stat(kept); found != nil {
		t.Fatal(err)
	}
	t.Logf("built the previous release in %s", time.Since(began).Round(time.Millisecond))
	return kept
}

// forget removes the binaries of releases before the previous one, and what is
// left of builds that were killed.
func forget(t *testing.T, previous string) {
	t.Helper()
	all, err := os.ReadDir(previous)
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range all {
		// A build of another test process may be under way.
		if info, err := old.Info(); strings.HasPrefix(old.Name(), "building-") && (err != nil || time.Since(info.ModTime()) < time.Hour) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(previous, old.Name())); err != nil {
			t.Error(err)
		}
	}
}

// stepBound is what one step of an upgrade, or one deal beside it, may take.
const stepBound = 2 * e2e.Patience

// upgrade is a stack of two replicas of each binary under a stream of deals,
// while its binaries are exchanged one process after the other.
type upgrade struct {
	t      *testing.T
	stack  *localstack.Stack
	w      e2e.Witness
	s      *e2e.Stubborn
	played atomic.Int64

	mu  sync.Mutex
	all []*e2e.Soaked
}

// A release replaces the previous one and is rolled back, under load and in the
// order of a cluster: the migration first, then process by process. In between
// the two versions serve side by side on one database, one Redis and one log. No
// request fails twice, what one version answered the other replays, and a deal
// may go through both.
func TestPreviousReleaseForwardAndBack(t *testing.T) {
	t.Parallel()
	old := previousRelease(t)
	// The surface that the answers of other tests are held to is this release's.
	e2e.Published(t, e2e.NewClient(t, e2e.Shared(t).BaseURL()))
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.Bin = old
		o.Replicas = map[string]int{localstack.DealAPI: 2, localstack.LogServer: 2, localstack.DeadlineWorker: 2}
	})
	u := &upgrade{t: t, stack: stack, w: e2e.Database(t, stack),
		s: &e2e.Stubborn{Doors: []*e2e.Client{e2e.NewClient(t, stack.URL(localstack.DealAPI)), e2e.NewClient(t, stack.URL(e2e.SecondAPI))}}}
	first := []string{localstack.LogServer, localstack.DealAPI, localstack.DeadlineWorker}
	second := []string{e2e.SecondLog, e2e.SecondAPI, e2e.SecondWorker}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Each step has a bound of its own, so that what fails is what took too long.
	bounded := func() context.Context {
		ctx, done := context.WithTimeout(ctx, stepBound)
		t.Cleanup(done)
		return ctx
	}
	u.roll(ctx, old, second...) // they are told of the second log
	over := make(chan struct{})
	stream := u.stream(ctx, over)
	stage := func(name string) {
		t.Helper()
		before := u.played.Load()
		e2e.Eventually(t, "deals go on: "+name, stepBound, func() bool { return u.played.Load() >= before+20 || t.Failed() })
		if t.Failed() {
			close(over)
			stream.Wait()
			t.FailNow()
		}
	}

	stage("the previous release on its own schema")
	u.migrate(bounded(), e2e.Bin)
	stage("the previous release on the new schema")
	there := u.begun(bounded())
	u.roll(ctx, e2e.Bin, first...)
	u.exchanged(bounded())
	u.committed(bounded(), u.s.Doors[0], there[1])
	u.roll(ctx, e2e.Bin, second...)
	stage("the new release")
	u.finished(bounded(), there)

	back := u.begun(bounded())
	version := u.versions()
	u.migrate(bounded(), old)
	if now := u.versions(); now != version {
		t.Errorf("the previous release's migration took the schema from %s to %s", version, now)
	}
	u.roll(ctx, old, first...)
	u.exchanged(bounded())
	u.committed(bounded(), u.s.Doors[0], back[1])
	u.roll(ctx, old, second...)
	stage("the previous release again, on the new schema")
	u.finished(bounded(), back)
	close(over)
	stream.Wait()

	if worst := u.s.Worst.Load(); worst > 1 {
		t.Errorf("a request failed %d times in a row; a client's one retry must do", worst)
	}
	u.w.Converged()
	u.migrate(bounded(), e2e.Bin) // tags the leaves of the previous release
	keys, err := u.keys(bounded())
	if err != nil {
		t.Fatal(err)
	}
	e2e.InvariantsUnder(t, stack, keys)
	for i := 0; i < len(u.all); i += 10 {
		u.all[i].Ctx = bounded()
		if err := u.all[i].Ended(); err != nil {
			t.Errorf("deal %s: %v", u.all[i].Id, err)
		}
	}
	t.Logf("%d deals, %d requests, the worst failed %d times; schema %s", len(u.all), u.s.Attempts.Load(), u.s.Worst.Load(), version)
}

// migrate runs a release's migration.
func (u *upgrade) migrate(ctx context.Context, bin string) {
	u.t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "fairpactctl"), "migrate")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+u.stack.DatabaseURL())
	if out, err := cmd.CombinedOutput(); err != nil {
		u.t.Fatalf("fairpactctl migrate: %v\n%s", err, out)
	}
}

// versions are the newest migrations of all schemas.
func (u *upgrade) versions() string {
	u.t.Helper()
	var all []string
	for _, schema := range u.w.Column(`SELECT quote_ident(schemaname) FROM pg_tables WHERE tablename = 'goose_db_version' ORDER BY 1`) {
		all = append(all, fmt.Sprint(schema, " ", u.w.Number(`SELECT max(version_id) FROM `+schema+`.goose_db_version`)))
	}
	return strings.Join(all, ", ")
}

// roll replaces processes one after the other.
func (u *upgrade) roll(ctx context.Context, bin string, names ...string) {
	u.t.Helper()
	for _, name := range names {
		var env []string
		if name == e2e.SecondAPI || name == e2e.SecondWorker {
			env = e2e.SecondLogOf(u.stack)
		}
		u.stack.Exchange(name, bin)
		if err := u.stack.Restart(ctx, name, env...); err != nil {
			u.t.Fatal(err)
		}
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", u.stack.PID(name))); err != nil || filepath.Dir(at) != bin {
			u.t.Fatalf("%s runs %s, want the one in %s: %v", name, at, bin, err)
		}
	}
}

// stream plays deals of every kind through both deal-apis until over.
func (u *upgrade) stream(ctx context.Context, over chan struct{}) *sync.WaitGroup {
	var players sync.WaitGroup
	var number atomic.Int64
	for range 4 {
		players.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				deal, done := context.WithTimeout(ctx, stepBound)
				_, err := u.play(deal, u.s, int(number.Add(1)))
				done()
				if err != nil {
					u.t.Error(err)
					return
				}
			}
		})
	}
	return &players
}

// play plays a deal of the n-th kind and has its certificate verified.
func (u *upgrade) play(ctx context.Context, s *e2e.Stubborn, n int) (*e2e.Soaked, error) {
	d := &e2e.Soaked{T: u.t, S: s, Ctx: ctx, Past: u.stack.Chain().RoundAt(time.Now().Unix()) - 10}
	err := d.Play(n)
	if err == nil && d.States[0] == "COMPUTED" {
		err = d.Valid()
	}
	u.mu.Lock()
	u.all = append(u.all, d)
	u.mu.Unlock()
	u.played.Add(1)
	if err != nil {
		err = fmt.Errorf("deal %s: %w", d.Id, err)
	}
	return d, err
}

// exchanged is for the time when the two deal-apis are of two versions: all that
// was answered before, and what each of them answers now, is the same from the
// other one, whether it comes from Redis or from the database.
func (u *upgrade) exchanged(ctx context.Context) {
	u.t.Helper()
	var before, now []*e2e.Soaked
	u.mu.Lock()
	for _, d := range u.all[max(0, len(u.all)-20):] {
		if d.States != nil && (d.States[0] == "COMPUTED" || d.States[0] == "CANCELLED") {
			before = append(before, d)
		}
	}
	u.mu.Unlock()
	for _, door := range u.s.Doors {
		for _, kind := range []int{0, 2, 3, 8} {
			d, err := u.play(ctx, &e2e.Stubborn{Doors: []*e2e.Client{door}}, kind)
			if err != nil {
				u.t.Fatal(err)
			}
			now = append(now, d)
		}
	}
	for range 2 {
		for i, d := range append(before, now...) {
			for _, door := range u.s.Doors {
				there := *d
				there.Ctx, there.S = ctx, &e2e.Stubborn{Doors: []*e2e.Client{door}}
				if err := there.Ended(); err != nil {
					u.t.Errorf("deal %d, %s, at %s: %v", i, d.Id, door.Base, err)
				}
			}
		}
		if err := e2e.Cache(u.t, u.stack).FlushAll(ctx).Err(); err != nil {
			u.t.Fatal(err)
		}
	}
}

// begun begins two deals: all have committed to the first, nobody to the second.
func (u *upgrade) begun(ctx context.Context) []*e2e.Soaked {
	u.t.Helper()
	var both []*e2e.Soaked
	for range 2 {
		d := &e2e.Soaked{T: u.t, S: u.s, Ctx: ctx, States: []string{"COMPUTED"}}
		if err := d.Create(e2e.SplitBody(time.Hour, 2*time.Hour), e2e.AnnsValues, e2e.BobsValues); err != nil {
			u.t.Fatal(err)
		}
		both = append(both, d)
	}
	u.committed(ctx, u.s.Doors[0], both[0])
	return both
}

// committed has everybody commit at one deal-api.
func (u *upgrade) committed(ctx context.Context, door *e2e.Client, d *e2e.Soaked) {
	u.t.Helper()
	there := *d
	there.Ctx, there.S = ctx, &e2e.Stubborn{Doors: []*e2e.Client{door}}
	if err := there.Acts("commit", len(d.Inputs)); err != nil {
		u.t.Fatal(err)
	}
	d.Promises = there.Promises
}

// finished ends deals that the other version began.
func (u *upgrade) finished(ctx context.Context, all []*e2e.Soaked) {
	u.t.Helper()
	for _, d := range all {
		d.Ctx = ctx
		err := d.Acts("reveal", len(d.Inputs))
		if err == nil {
			err = d.Certified()
		}
		if err == nil {
			err = errors.Join(d.Valid(), d.Ended())
		}
		if err != nil {
			u.t.Errorf("deal %s, begun by the other version: %v", d.Id, err)
		}
	}
}

// keys are those that /v1/status publishes.
func (u *upgrade) keys(ctx context.Context) (*signing.KeySet, error) {
	a, err := insist(ctx, u.s.Doors[0], "/v1/status")
	if err != nil {
		return nil, err
	}
	var status e2e.KeysOfStatus
	if err := json.Unmarshal(a.Body, &status); err != nil {
		return nil, err
	}
	return status.Keys()
}
