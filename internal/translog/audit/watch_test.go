package audit_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairpact/fairpact/internal/translog/audit"
)

func (o *operator) head(t testing.TB, dir string) audit.Head {
	t.Helper()
	head := of(source(t, dir).Head(t.Context(), o.policy())).ok(t)
	return head
}

func TestWatchFollowsAGrowingLog(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	var seen audit.Head
	for _, size := range []int{0, 1, 1, 200, 256, 300, 1000, 1000} {
		dir := o.grow(t, size, "entry").folder(t)
		head, err := audit.Watch(t.Context(), source(t, dir), o.policy(), seen)
		if err != nil || head.Size != int64(size) {
			t.Fatalf("Watch from %d to %d leaves: %v, want the new head", seen.Size, size, err)
		}
		seen = head
	}
}

func (o *operator) requireFork(t *testing.T, err error, what string, notes ...[]byte) {
	t.Helper()
	found, ok := errors.AsType[*audit.Contradiction](err)
	if !ok || !strings.Contains(err.Error(), what) || len(found.Notes) != len(notes) {
		t.Fatalf("got %v, want a Contradiction that says %q and has %d checkpoints", err, what, len(notes))
	}
	for i, signed := range found.Notes {
		if _, err := audit.ReadHead(signed, o.policy()); err != nil || !bytes.Equal(signed, notes[i]) {
			t.Errorf("note %d of the evidence: %v, want the signed checkpoint", i, err)
		}
	}
}

// The operator shows each of two clients a different log. Each log is consistent. Only a client
// that has seen both logs can find the fork.
func TestForkIsFoundFromBothSides(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 500, "entry")
	other := o.fork(t, 400)
	alice, bob := o.grow(t, 600, "entry").folder(t), other.grow(t, 700, "another").folder(t)
	for _, dir := range []string{alice, bob} {
		if err := o.audit(t, dir); err != nil {
			t.Fatalf("one side of the fork is not a consistent log: %v", err)
		}
	}
	hers, his := o.head(t, alice), o.head(t, bob)

	_, err := audit.Watch(t.Context(), source(t, bob), o.policy(), hers)
	o.requireFork(t, err, "the log is forked: its first 600 leaves", hers.Note, his.Note)

	// Two clients compare heads of the same size.
	short := other.fork(t, 600)
	err = audit.Extends(t.Context(), source(t, alice), hers, o.head(t, short.folder(t)))
	o.requireFork(t, err, "the log is forked", short.signed(t), hers.Note)

	err = audit.Extends(t.Context(), source(t, alice), hers, his)
	o.requireFork(t, err, "went back from 700 to 600", his.Note, hers.Note)
}

// A policy may list several logs. Checkpoints of different logs do not prove a fork.
func TestTwoLogsAreNoFork(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 5, "entry")
	head := o.head(t, o.folder(t))
	for _, size := range []int64{3, 5, 7} {
		older := head
		older.Origin, older.Size = "log.example/another", size
		err := audit.Extends(t.Context(), source(t, o.folder(t)), head, older)
		if _, verdict := errors.AsType[*audit.Contradiction](err); err == nil || verdict {
			t.Errorf("checkpoints of two logs of %d leaves: %v, want an error that is not a Contradiction", size, err)
		}
	}
}

func TestRewrittenAndShrunkLogsAreFound(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 500, "entry")
	dir := o.folder(t)
	seen := o.head(t, dir)

	rewritten := o.fork(t, 3).grow(t, 500, "another")
	for size, what := range map[int]string{500: "is forked", 501: "is forked", 900: "is forked"} {
		there := rewritten.fork(t, 500).grow(t, size, "more").folder(t)
		_, err := audit.Watch(t.Context(), source(t, there), o.policy(), seen)
		o.requireFork(t, err, what, seen.Note, o.head(t, there).Note)
	}

	shrunk := o.fork(t, 499).folder(t)
	_, err := audit.Watch(t.Context(), source(t, shrunk), o.policy(), seen)
	o.requireFork(t, err, "went back from 500 to 499", seen.Note, o.head(t, shrunk).Note)

	write(t, dir, "tile/0/001.p/245", read(t, dir, "tile/0/001.p/244"))
	write(t, dir, "checkpoint", o.grow(t, 501, "entry").signed(t))
	_, err = audit.Watch(t.Context(), source(t, dir), o.policy(), seen)
	if _, ok := errors.AsType[*audit.Contradiction](err); !ok || !strings.Contains(err.Error(), "tile/0/001.p/245: it has 7808 bytes instead of 7840") {
		t.Errorf("a stale tile: %v, want a Contradiction that names it", err)
	}
}

func served(t *testing.T, dir string, limit int64) (url string, asked *atomic.Int64) {
	asked = &atomic.Int64{}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > limit {
			http.Error(w, "out of order", http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func TestMirrorIsALogAndResumes(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 20_000, "entry")
	dir, to := o.folder(t), filepath.Join(t.TempDir(), "mirror")

	url, _ := served(t, dir, 60)
	_, err := audit.Mirror(t.Context(), source(t, url), to, o.policy())
	if _, verdict := errors.AsType[*audit.Contradiction](err); err == nil || verdict {
		t.Fatalf("a server that stops half-way: %v, want an error that is not a Contradiction", err)
	}
	if _, err := os.Stat(filepath.Join(to, "checkpoint")); err == nil {
		t.Fatal("an unfinished mirror has a checkpoint")
	}

	url, asked := served(t, dir, 1<<30)
	head, err := audit.Mirror(t.Context(), source(t, url), to, o.policy())
	if err != nil || head.Size != 20_000 {
		t.Fatal(err)
	}
	files := int64(79 + 1 + 79 + 1) // of 20,000 leaves: tiles of level 0, tile of level 1, entry bundles, checkpoint
	if n := asked.Load(); n >= files {
		t.Errorf("%d requests for a mirror that was half done, want fewer than the %d files of the log", n, files)
	}
	mirror, _ := served(t, to, 1<<30)
	if err := o.audit(t, mirror); err != nil {
		t.Errorf("audit of the mirror: %v, want no error", err)
	}

	o.grow(t, 20_500, "entry").writeTo(t, dir)
	before := asked.Load()
	if _, err := audit.Mirror(t.Context(), source(t, url), to, o.policy()); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load() - before; n > 12 {
		t.Errorf("%d requests for 500 new leaves, want at most 12", n)
	}
	if err := o.audit(t, to); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"tile/0/078.p", "tile/entries/078.p"} {
		if _, err := os.Stat(filepath.Join(to, path)); err == nil {
			t.Errorf("the mirror still has %s, want it dropped", path)
		}
	}
}

// Mirror never writes a wrong file. The next run repairs a file that was damaged in the mirror.
func TestMirrorVerifiesBeforeItWrites(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 600, "entry")
	for _, path := range []string{"tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2", "tile/entries/001", "tile/entries/002.p/88"} {
		dir, to := o.folder(t), filepath.Join(t.TempDir(), "mirror")
		good := read(t, dir, path)
		bad := bytes.Clone(good)
		bad[40] ^= 1
		write(t, dir, path, bad)
		_, err := audit.Mirror(t.Context(), source(t, dir), to, o.policy())
		if _, ok := errors.AsType[*audit.Contradiction](err); !ok || !strings.Contains(err.Error(), path) {
			t.Errorf("mirror of a log with a wrong %s: %v, want a Contradiction that names it", path, err)
		}
		for _, name := range []string{path, "checkpoint"} {
			if _, err := os.Stat(filepath.Join(to, name)); err == nil {
				t.Errorf("%s is wrong and %s was written, want only proven files", path, name)
			}
		}

		write(t, to, path, bad)
		write(t, dir, path, good)
		if _, err := audit.Mirror(t.Context(), source(t, dir), to, o.policy()); err != nil {
			t.Errorf("mirror again over damaged files: %v, want no error", err)
		}
		if err := o.audit(t, to); err != nil {
			t.Errorf("the damaged mirror after the next run: %v, want no error", err)
		}
	}
}

func TestMirrorDoesNotFollowAFork(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 600, "entry")
	to := filepath.Join(t.TempDir(), "mirror")
	if _, err := audit.Mirror(t.Context(), source(t, o.folder(t)), to, o.policy()); err != nil {
		t.Fatal(err)
	}
	seen := read(t, to, "checkpoint")
	fork := o.fork(t, 300).grow(t, 900, "another").folder(t)
	_, err := audit.Mirror(t.Context(), source(t, fork), to, o.policy())
	o.requireFork(t, err, "the log is forked", seen, read(t, fork, "checkpoint"))
	if err := o.audit(t, to); err != nil || !bytes.Equal(seen, read(t, to, "checkpoint")) {
		t.Errorf("the mirror changed: %v, want it as before", err)
	}
}
