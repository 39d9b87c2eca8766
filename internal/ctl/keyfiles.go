package ctl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairpact/fairpact/internal/platform/files"
)

// keyFilesCommand copies private keys in an init container. A group can read the files in a
// Secret volume, but signing.Open accepts a file:// key only if nobody except the owner can
// read it. The images have no shell that could copy the files.
type keyFilesCommand struct {
	From string `arg:"" help:"Folder of a Secret volume."`
	To   string `arg:"" help:"Folder in an in-memory volume, for the copies. Only the owner of a copy can read the copy."`
}

func (c keyFilesCommand) Run() error {
	entries, err := os.ReadDir(c.From)
	if err != nil {
		return err
	}
	copied := 0
	for _, file := range entries {
		if strings.HasPrefix(file.Name(), "..") { // the kubelet's own links and folders
			continue
		}
		from := filepath.Join(c.From, file.Name())
		content, err := os.ReadFile(from)
		if err == nil && len(content) == 0 {
			err = errors.New(from + " is empty: put the private key as PEM into the Secret")
		}
		if err == nil {
			err = files.Replace(filepath.Join(c.To, file.Name()), content, 0o600)
		}
		if err != nil {
			return err
		}
		copied++
	}
	if copied == 0 {
		return errors.New(c.From + " holds no file: put the private key as PEM into the Secret")
	}
	return nil
}
