package audit_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairpact/fairpact/internal/translog/audit"
)

func TestAuditAcceptsALogOfAnySize(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, size := range []int{0, 1, 2, 255, 256, 257, 511, 512, 8192, 65535, 65536, 65537} {
		o.grow(t, size, "entry")
		if err := o.audit(t, o.folder(t)); err != nil {
			t.Errorf("audit of a good log of %d leaves: %v, want no error", size, err)
		}
	}
}

// The leaves with a mark are in the order of the log, whichever bundle is read first.
func TestAuditFindsMarkedLeaves(t *testing.T) {
	t.Parallel()
	o, mark := newOperator(t), []byte("deal mark")
	var want []int64
	for _, at := range []int{0, 255, 256, 9000, 9299} {
		o.grow(t, at, "entry").append(t, append(slices.Clone(mark), byte(at)))
		want = append(want, int64(at))
	}
	s := source(t, o.folder(t))
	head := of(s.Head(t.Context(), o.policy())).ok(t)
	var got []int64
	for _, leaf := range of(audit.Audit(t.Context(), s, head, mark)).ok(t) {
		got = append(got, leaf.Index)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the leaves %v have the mark, want %v", got, want)
	}
	if none := of(audit.Audit(t.Context(), s, head, nil)).ok(t); len(none) != 0 {
		t.Errorf("without a mark: %v, want no leaves", none)
	}
}

// large is a tree size with a full tile of level 1 and partial tiles of levels 0, 1 and 2.
const large = 70_000

func TestAuditNamesTheWrongFiles(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, large, "entry")
	dir := o.folder(t)
	flip := func(path string, at int) func() {
		return func() {
			data := read(t, dir, path)
			data[at] ^= 1
			write(t, dir, path, data)
		}
	}
	cut := func(path string) func() {
		return func() { data := read(t, dir, path); write(t, dir, path, data[:len(data)-1]) }
	}
	swap := func(a, b string) func() {
		return func() { x, y := read(t, dir, a), read(t, dir, b); write(t, dir, a, y); write(t, dir, b, x) }
	}
	both := func(all ...func()) func() {
		return func() {
			for _, one := range all {
				one()
			}
		}
	}
	for name, c := range map[string]struct {
		damage func()
		want   []string
	}{
		"a bit of an entry":                 {flip("tile/entries/007", 2), []string{"tile/entries/007"}},
		"a bit of the last entry":           {flip("tile/entries/273.p/112", 3), []string{"tile/entries/273.p/112"}},
		"a bit of a length":                 {flip("tile/entries/007", 1), []string{"tile/entries/007"}},
		"a bit of a leaf hash":              {flip("tile/0/100", 8191), []string{"tile/0/100"}},
		"a bit of the partial tile":         {flip("tile/0/273.p/112", 0), []string{"checkpoint"}},
		"a bit of level 1":                  {flip("tile/1/000", 33), []string{"tile/1/000"}},
		"a bit of the partial level 1":      {flip("tile/1/001.p/17", 40), []string{"checkpoint"}},
		"a bit of level 2":                  {flip("tile/2/000.p/1", 5), []string{"checkpoint"}},
		"a cut entry bundle":                {cut("tile/entries/272"), []string{"tile/entries/272"}},
		"a cut partial entry bundle":        {cut("tile/entries/273.p/112"), []string{"tile/entries/273.p/112"}},
		"a cut tile":                        {cut("tile/0/000"), []string{"tile/0/000"}},
		"a cut partial tile":                {cut("tile/1/001.p/17"), []string{"tile/1/001.p/17"}},
		"two tiles exchanged":               {swap("tile/0/003", "tile/0/004"), []string{"tile/0/003", "tile/0/004"}},
		"two entry bundles exchanged":       {swap("tile/entries/003", "tile/entries/004"), []string{"tile/entries/003", "tile/entries/004"}},
		"tiles and their entries exchanged": {both(swap("tile/0/003", "tile/0/004"), swap("tile/entries/003", "tile/entries/004")), []string{"tile/0/003", "tile/0/004"}},
		"two damages":                       {both(flip("tile/entries/007", 2), flip("tile/1/000", 8191)), []string{"tile/1/000"}},
		"a damage below another tile":       {both(flip("tile/entries/007", 2), flip("tile/0/100", 40)), []string{"tile/0/100", "tile/entries/007"}},
	} {
		c.damage()
		err := o.audit(t, dir)
		found, ok := errors.AsType[*audit.Contradiction](err)
		var paths []string
		if ok {
			for _, f := range found.Findings {
				paths = append(paths, f.Path)
			}
		}
		slices.Sort(paths)
		if !slices.Equal(paths, c.want) {
			t.Errorf("%s: found %v, want %v (%v)", name, paths, c.want, err)
		}
		o.writeTo(t, dir)
	}
}

func TestAuditHasNoVerdictOnAMissingFile(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 600, "entry")
	for _, path := range []string{"checkpoint", "tile/0/001", "tile/entries/001", "tile/1/000.p/2", "tile/0/002.p/88"} {
		dir := o.folder(t)
		check(t, os.Remove(filepath.Join(dir, path)))
		err := o.audit(t, dir)
		if _, verdict := errors.AsType[*audit.Contradiction](err); verdict || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s: %v, want fs.ErrNotExist and no Contradiction", path, err)
		}
	}
}

func TestFullTileReplacesAPartialOne(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 300, "entry")
	old := o.signed(t)
	dir := o.grow(t, 600, "entry").folder(t)
	write(t, dir, "checkpoint", old)
	if err := o.audit(t, dir); err == nil || !strings.Contains(err.Error(), "tile/1/000.p/1") {
		t.Fatalf("without the partial tile of level 1: %v, want an error that names tile/1/000.p/1", err)
	}
	write(t, dir, "tile/1/000.p/1", read(t, dir, "tile/1/000.p/2")[:32])
	if err := o.audit(t, dir); err != nil {
		t.Error(err)
	}
}

func TestAuditRefusesAForgedCheckpoint(t *testing.T) {
	t.Parallel()
	o := newOperator(t).grow(t, 600, "entry")
	dir := o.folder(t)
	write(t, dir, "checkpoint", o.fork(t, 599).grow(t, 600, "another").signed(t))
	err := o.audit(t, dir)
	found, ok := errors.AsType[*audit.Contradiction](err)
	if !ok || found.Findings[0].Path != "checkpoint" || len(found.Notes) != 1 || !strings.Contains(err.Error(), "its root does not match the partial tiles (tile/1/000.p/2, tile/0/002.p/88)") {
		t.Errorf("audit under a root of another tree: %v, want a Contradiction with the checkpoint", err)
	}

	for name, text := range map[string]string{
		"another key":    string(newOperator(t).grow(t, 600, "entry").signed(t)),
		"a changed size": strings.Replace(string(o.signed(t)), "600", "599", 1),
		"a web page":     "<!doctype html><title>Sign in</title>",
		"nothing":        "",
	} {
		write(t, dir, "checkpoint", []byte(text))
		err := o.audit(t, dir)
		if _, verdict := errors.AsType[*audit.Contradiction](err); err == nil || verdict {
			t.Errorf("%s: %v, want an error that is not a Contradiction", name, err)
		}
	}
}
