package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestWholeFilesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	has := func(want string, mode os.FileMode) {
		t.Helper()
		content, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(content) != want || info.Mode() != mode {
			t.Errorf("the file has %q, %v (%v), want %q and mode %v", content, info, err, want, mode)
		}
	}
	if err := Create(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	has("old", 0o600)
	if err := Create(path, []byte("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create of an existing file: %v, want fs.ErrExist", err)
	}
	has("old", 0o600)
	if err := Replace(path, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	has("new", 0o644)
	if err := Replace(filepath.Join(dir, "none", "key"), nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Replace in a missing directory: %v, want fs.ErrNotExist", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory holds %v, want only the file", left)
	}
}
