package ctl

import (
	"errors"
	"os"
	"path/filepath"
)

// keyFileCommand is for an init container. A Secret volume gives its files to a
// group, and a file:// key that others than its owner can open is refused; the
// images have no shell that could copy it.
type keyFileCommand struct {
	From string `arg:"" help:"File to read, as a Secret volume holds it."`
	To   string `arg:"" help:"File to make or replace, for its owner alone, in an in-memory volume."`
}

func (keyFileCommand) Help() string {
	return `Examples:

    fairpactctl key-file /secret/key.pem /key/key.pem`
}

func (c keyFileCommand) Run() error {
	content, err := os.ReadFile(c.From)
	if err != nil {
		return err
	}
	if len(content) == 0 {
		return errors.New(c.From + " is empty: put the private key, in PEM, into the Secret")
	}
	file, err := os.CreateTemp(filepath.Dir(c.To), ".key-*") // 0600
	if err != nil {
		return err
	}
	if err := fill(file, content); err != nil {
		os.Remove(file.Name())
		return err
	}
	return os.Rename(file.Name(), c.To)
}
