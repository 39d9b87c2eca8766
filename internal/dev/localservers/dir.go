package localservers

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const throwawayPrefix = "fairpact-server-"

// serverDir is the directory of a server. A throwaway directory is removed when the server is
// closed. Until then, the process that created the directory holds a lock on it. If that process
// is killed, a later process removes the directory (sweep).
type serverDir struct {
	path string
	lock *os.File // nil if the directory is kept
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
	return &serverDir{path: path}, acct.own(path)
}

func newThrowaway(kind string, acct account) (*serverDir, error) {
	base := tempBase(acct)
	sweep(base)
	path, err := os.MkdirTemp(base, throwawayPrefix+kind+"-")
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(path)
	if err == nil {
		err = acct.own(path)
	}
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	return &serverDir{path, lock}, nil
}

// Postgres starts twice as fast with its directory in memory as with its directory on disk. A new
// directory takes 40 MB, and the write-ahead log in it may grow to 1 GB.
const (
	memory     = "/dev/shm"
	memoryFree = 2 << 30 // bytes
)

// tempBase returns the parent of throwaway directories: in memory if there is enough space,
// and otherwise a directory that the account can enter.
func tempBase(acct account) string {
	var fs syscall.Statfs_t
	const tmpfs = 0x01021994 // TMPFS_MAGIC of statfs(2)
	if err := syscall.Statfs(memory, &fs); err == nil && fs.Type == tmpfs && fs.Bavail*uint64(fs.Bsize) >= memoryFree {
		return memory
	}
	if acct.cred != nil {
		return "/tmp" // another user may not be able to enter root's TMPDIR
	}
	return os.TempDir()
}

func lockDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// settled is the age from which an unlocked throwaway directory counts as abandoned. The
// process that created a younger directory may not have locked it yet.
const settled = time.Minute

// sweep removes throwaway directories whose process has ended. It skips directories that it
// cannot open, such as those of other users.
func sweep(base string) {
	found, _ := filepath.Glob(filepath.Join(base, throwawayPrefix+"*-*"))
	for _, path := range found {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() || time.Since(info.ModTime()) < settled {
			continue
		}
		if lock, err := lockDir(path); err == nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}

func (d *serverDir) remove() error {
	if d.lock == nil {
		return nil
	}
	err := os.RemoveAll(d.path)
	d.lock.Close()
	return err
}

func (d *serverDir) join(name string) string { return filepath.Join(d.path, name) }
