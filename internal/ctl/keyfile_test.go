package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a Secret volume gives to a group ends up with its owner alone, again
// and again, for an init container may run twice.
func TestKeyFile(t *testing.T) {
	from := write(t, "secret.pem", "first")
	if err := os.Chmod(from, 0o440); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "key.pem")
	for range 2 {
		if r := run(t, "", "key-file", from, to); r.code != ExitOK || r.out+r.err != "" {
			t.Fatalf("%+v", r)
		}
	}
	text, err := os.ReadFile(to)
	info, statErr := os.Stat(to)
	if err != nil || statErr != nil || string(text) != "first" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q %v %v %v", text, info, err, statErr)
	}
	if left, _ := os.ReadDir(filepath.Dir(to)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if r := run(t, "", "key-file", write(t, "empty.pem", ""), to); r.code != ExitUsage || !strings.Contains(r.err, "is empty") {
		t.Errorf("%+v", r)
	}
}
