package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A group can read the files of a Secret volume. Only the owner may read the copies that key-files
// makes. key-files may run twice, because an init container may restart.
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
			t.Fatalf("key-files: %+v, want exit code 0 without output", r)
		}
	}
	left, err := os.ReadDir(to)
	if err != nil || len(left) != 2 {
		t.Errorf("the target holds %v (error %v), want two files", left, err)
	}
	for _, file := range left {
		text, err := os.ReadFile(filepath.Join(to, file.Name()))
		if info, bad := file.Info(); err != nil || bad != nil || string(text) != file.Name() || info.Mode().Perm() != 0o600 {
			t.Errorf("%s holds %q with %v (errors %v, %v), want its name and mode 0600", file.Name(), text, info, err, bad)
		}
	}
	if r := run(t, "", "key-files", filepath.Dir(write(t, "empty.pem", "")), to); r.code != ExitUsage || !strings.Contains(r.err, "is empty") {
		t.Errorf("key-files of an empty file: %+v, want exit code %d", r, ExitUsage)
	}
	if r := run(t, "", "key-files", t.TempDir(), to); r.code != ExitUsage || !strings.Contains(r.err, "holds no file") {
		t.Errorf("key-files of an empty folder: %+v, want exit code %d", r, ExitUsage)
	}
}
