// Package files writes files that are whole after a crash.
package files

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes a file atomically: at any time, also after a crash, the path has either the
// old or the new content. Replace syncs the file and its directory.
//
// Replace first writes the temporary file .NAME.new beside the file. The name is fixed, so that
// the next call reuses the file that a crash left. Two processes may replace the same file, for
// example two overlapping runs of `fairpactctl log mirror`, so a lock guards the temporary file.
func Replace(path string, content []byte, mode os.FileMode) error {
	return write(path, content, mode, func(string) (*os.File, error) {
		return lockNew(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new"))
	}, os.Rename)
}

// Create is like Replace, but the error wraps fs.ErrExist if the file exists. Its temporary file
// has a random name: after a crash it may be a second link to the created file, which no later
// call may overwrite.
func Create(path string, content []byte, mode os.FileMode) error {
	return write(path, content, mode, func(dir string) (*os.File, error) { return os.CreateTemp(dir, ".new-*") }, func(from, to string) error {
		err := os.Link(from, to) // a link fails if the path exists
		os.Remove(from)
		return err
	})
}

// lockNew opens an empty temporary file and locks it until it is closed.
func lockNew(name string) (*os.File, error) {
	for {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(&os.PathError{Op: "flock", Path: name, Err: err}, file.Close())
		}
		// The process that had the lock before may have renamed or removed the file. Then try again.
		locked, err := file.Stat()
		named, gone := os.Lstat(name)
		same := err == nil && gone == nil && os.SameFile(locked, named)
		if same {
			err = file.Truncate(0)
		}
		if same && err == nil {
			return file, nil
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
}

func write(path string, content []byte, mode os.FileMode, open func(dir string) (*os.File, error), place func(from, to string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := open(dir.Name())
	if err != nil {
		return err
	}
	defer file.Close()     // unlocks the file, so the removal must come first
	err = file.Chmod(mode) // before the write, because the content may be a secret
	if err == nil {
		_, err = file.Write(content)
	}
	if err = errors.Join(err, file.Sync()); err == nil {
		err = place(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return err
	}
	return dir.Sync()
}
