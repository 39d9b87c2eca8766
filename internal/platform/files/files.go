// Package files writes files that are whole after a crash.
package files

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file atomically: at any time, also after a crash, the path has either the
// old or the new content. Replace syncs the file and its directory.
func Replace(path string, content []byte, mode os.FileMode) error {
	return write(path, content, mode, os.Rename)
}

// Create is like Replace, but the error wraps fs.ErrExist if the file exists.
func Create(path string, content []byte, mode os.FileMode) error {
	return write(path, content, mode, os.Link) // a link fails if the path exists
}

func write(path string, content []byte, mode os.FileMode, place func(from, to string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := os.CreateTemp(dir.Name(), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // no effect after a rename
	_, err = file.Write(content)
	if err := errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := place(file.Name(), path); err != nil {
		return err
	}
	return dir.Sync()
}
