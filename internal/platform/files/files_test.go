package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// A crash leaves the temporary file. The next Replace must reuse it, and not keep its content or
// its mode.
func TestReplaceReusesTheFileThatACrashLeft(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(filepath.Join(dir, ".key.new"), []byte("a longer old content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, _ := os.Stat(path)
	if content, err := os.ReadFile(path); err != nil || string(content) != "new" || info.Mode() != 0o600 {
		t.Errorf("the file has %q, %v (%v), want \"new\" and mode 0600", content, info, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory holds %v, want only the file", left)
	}
}

func TestReplaceFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("kept"), 0o600), os.Symlink(victim, filepath.Join(dir, ".key.new"))); err != nil {
		t.Fatal(err)
	}
	err := Replace(filepath.Join(dir, "key"), []byte("new"), 0o644)
	if content, _ := os.ReadFile(victim); err == nil || string(content) != "kept" {
		t.Errorf("Replace over a link: error %v, and the link's target has %q; want an error and \"kept\"", err, content)
	}
}

func TestWritersAtTheSameTimeLeaveAWholeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var all sync.WaitGroup
	for i := range 8 {
		content := strings.Repeat(string(rune('a'+i)), 1000*(i+1))
		all.Go(func() {
			for range 20 {
				if err := Replace(path, []byte(content), 0o644); err != nil {
					t.Error(err)
				}
				read, err := os.ReadFile(path)
				if err != nil || len(read) == 0 || len(read) != 1000*int(read[0]-'a'+1) || strings.Trim(string(read), string(read[:1])) != "" {
					t.Errorf("read %d bytes (%v), want the whole content of one writer", len(read), err)
				}
			}
		})
	}
	all.Wait()
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory holds %v, want only the file", left)
	}
}
