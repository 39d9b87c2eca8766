package localservers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const throwawayPrefix = "fairpact-server-"

// serverDir is where one server keeps its files. A throwaway one is locked
// while its process lives, so that a later process can tell and remove what a
// killed one left.
type serverDir struct {
	path string
	lock *os.File // nil: not a throwaway
}

func openServerDir(o Options, kind string, acct account) (*serverDir, error) {
	if o.Dir == "" {
		return newThrowaway(kind, acct)
	}
	path, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, err
	}
	if err := acct.own(path); err != nil {
		return nil, err
	}
	if err := acct.canEnter(path); err != nil {
		return nil, fmt.Errorf("%s server: %w; choose a directory it can", kind, err)
	}
	return &serverDir{path: path}, nil
}

func newThrowaway(kind string, acct account) (*serverDir, error) {
	base, err := tempBase(acct)
	if err != nil {
		return nil, err
	}
	sweep(base)
	for {
		path, err := os.MkdirTemp(base, throwawayPrefix+kind+"-")
		if err != nil {
			return nil, err
		}
		lock, err := lockDir(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EWOULDBLOCK) {
			continue // a sweeper took it for an orphan between the two steps
		}
		if err == nil {
			err = acct.own(path)
		}
		if err != nil {
			os.Remove(path)
			return nil, err
		}
		return &serverDir{path, lock}, nil
	}
}

// A throwaway holds 40 MB in a thousand files when it is empty, and Postgres lets
// its log grow to 1 GB. In memory it starts in half the time.
const (
	memory     = "/dev/shm"
	memoryFree = 2 << 30
)

// tempBases are the directories that may hold a throwaway, the best first.
func tempBases() []string {
	bases := []string{os.TempDir(), "/tmp", "/var/tmp"}
	var fs syscall.Statfs_t
	const tmpfs = 0x01021994 // TMPFS_MAGIC of statfs(2)
	if err := syscall.Statfs(memory, &fs); err == nil && fs.Type == tmpfs && fs.Bavail*uint64(fs.Bsize) >= memoryFree {
		bases = append([]string{memory}, bases...)
	}
	return bases
}

// tempBase is the first temporary directory that the account can enter.
func tempBase(acct account) (string, error) {
	var errs []error
	for _, base := range tempBases() {
		err := acct.canEnter(base)
		if err == nil {
			return base, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// lockDir locks a directory and makes sure that it is still the one at path.
func lockDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	opened, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	now, err := os.Lstat(path)
	if err != nil || !os.SameFile(opened, now) {
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// sweep removes throwaway directories whose process is gone. What it may not
// open belongs to someone else.
func sweep(base string) {
	found, _ := filepath.Glob(filepath.Join(base, throwawayPrefix+"*-*"))
	for _, path := range found {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		if lock, err := lockDir(path); err == nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}

// remove removes a throwaway directory and keeps any other.
func (d *serverDir) remove() error {
	if d.lock == nil {
		return nil
	}
	err := os.RemoveAll(d.path)
	d.lock.Close()
	return err
}

func (d *serverDir) join(name string) string { return filepath.Join(d.path, name) }

// openLog opens a log for appending and says at which offset it stands.
func openLog(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, end, nil
}

// logSince gives what was logged after offset, its last 4 KiB.
func logSince(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil && end-offset > 4096 {
		offset = end - 4096
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return ""
	}
	var b bytes.Buffer
	_, _ = io.Copy(&b, f)
	return strings.TrimSpace(b.String())
}
