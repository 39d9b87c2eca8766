package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that a group can read in the Secret volume become readable by their owner only. An
// init container may run twice.
func TestKeyFiles(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	volume := filepath.Join(from, "..data")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one.pem", "two.pem"} {
		if err := errors.Join(os.WriteFile(filepath.Join(volume, name), []byte(name), 0o440), os.Symlink(filepath.Join("..data", name), filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if r := run(t, "", "key-files", from, to); r.code != ExitOK || r.out+r.err != "" {
			t.Fatalf("%+v", r)
		}
	}
	left, err := os.ReadDir(to)
	if err != nil || len(left) != 2 {
		t.Errorf("%v %v, want two files", left, err)
	}
	for _, file := range left {
		text, err := os.ReadFile(filepath.Join(to, file.Name()))
		if info, bad := file.Info(); err != nil || bad != nil || string(text) != file.Name() || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q %v %v %v", file.Name(), text, info, err, bad)
		}
	}
	if r := run(t, "", "key-files", filepath.Dir(write(t, "empty.pem", "")), to); r.code != ExitUsage || !strings.Contains(r.err, "is empty") {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "key-files", t.TempDir(), to); r.code != ExitUsage || !strings.Contains(r.err, "holds no file") {
		t.Errorf("%+v", r)
	}
}
