package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairpact/fairpact/internal/rules/canon"
)

const maxFile = 64 << 20 // the most bytes that read accepts

func (t *terminal) read(path string) ([]byte, error) {
	in := t.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: give a smaller file", path, maxFile)
	}
	return data, err
}

func (t *terminal) tree(path string) (any, error) {
	data, err := t.read(path)
	if err != nil {
		return nil, err
	}
	v, err := canon.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func (t *terminal) object(path string) (map[string]any, error) {
	v, err := t.tree(path)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", path)
	}
	return o, nil
}

// inputLevels is the number of JSON levels around an input in a file with an array of
// {input, salt}: the array and the object. The depth limit of the file is inputLevels higher
// than that of an input.
const inputLevels = 2

func (t *terminal) inputs(path string) ([]any, error) {
	data, err := t.read(path)
	if err != nil {
		return nil, err
	}
	v, err := canon.ParseWithin(data, inputLevels)
	rows, ok := v.([]any)
	if err == nil && !ok {
		err = errors.New("not a JSON array of {input, salt}")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

func keep(path string, content []byte) error {
	return createSecretFile(path, func() ([]byte, error) { return content, nil })
}

// createSecretFile calls `produce` and writes the result to a new file that only the file's owner may
// read. It creates the file before the call, because `produce` obtains a secret, which would be
// lost if the file could not be created. If `produce` fails, createSecretFile removes the file. createSecretFile
// refuses an existing file, which may hold the only copy of a secret.
func createSecretFile(path string, produce func() ([]byte, error)) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists and may hold the only copy of a salt or token: name another file", path)
	}
	if err != nil {
		return err
	}
	content, err := produce()
	if err != nil {
		file.Close()
		os.Remove(path)
		return err
	}
	return fill(file, content)
}

// replace writes a file atomically.
func replace(path string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // does nothing after a successful rename
	if err := errors.Join(file.Chmod(mode), fill(file, content)); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func fill(file *os.File, content []byte) error {
	_, err := file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// secretOf returns a credential: `value`, which is from a flag or the environment, or else the
// first line of the file at path.
func (t *terminal) secretOf(value, path string) (string, error) {
	if value != "" || path == "" {
		return value, nil
	}
	data, err := t.read(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("the first line of %s is empty: write the credential there", path)
	}
	return line, nil
}
