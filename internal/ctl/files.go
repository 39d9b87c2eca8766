package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairpact/fairpact/internal/canon"
)

const maxFile = 64 << 20 // bytes

// read returns the content of a file, or of standard input for "-".
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
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, err
}

// tree reads strict JSON.
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

// object reads a strict JSON object.
func (t *terminal) object(path string) (map[string]any, error) {
	v, err := t.tree(path)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: not a JSON object", path)
	}
	return o, nil
}

// inputs reads an array of {input, salt}. It parses each input separately, because the
// limit of depth is that of a revealed input, without the two levels around it.
func (t *terminal) inputs(path string) ([]any, error) {
	data, err := t.read(path)
	if err != nil {
		return nil, err
	}
	wrong := func(err error) ([]any, error) { return nil, fmt.Errorf("%s: %w", path, err) }
	var rows []jsontext.Value
	if err := json.Unmarshal(data, &rows); err != nil || rows == nil {
		if _, parse := canon.Parse(data); parse != nil {
			return wrong(parse)
		}
		return wrong(errors.New("not a JSON array of {input, salt}"))
	}
	all := make([]any, len(rows))
	for i, row := range rows {
		if row.Kind() != '{' {
			if all[i], err = canon.Parse(row); err != nil {
				return wrong(err)
			}
			continue
		}
		var members map[string]jsontext.Value
		if err := json.Unmarshal(row, &members); err != nil {
			return wrong(errors.New("not strict JSON"))
		}
		tree := map[string]any{}
		for name, v := range members {
			if tree[name], err = canon.Parse(v); err != nil {
				return wrong(err)
			}
		}
		all[i] = tree
	}
	return all, nil
}

// keep writes and syncs a new file that only its owner may read. It refuses an existing
// file, which may hold the only copy of a secret.
func keep(path string, content []byte) error {
	file, err := reserve(path)
	if err != nil {
		return err
	}
	return fill(file, content)
}

// reserve creates the file before the service is asked for the secret that goes into it.
func reserve(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s exists and may hold the only copy of a salt or token: name another file", path)
	}
	return file, err
}

func fill(file *os.File, content []byte) error {
	_, err := io.Copy(file, bytes.NewReader(content))
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// discard removes a reserved file that is still empty.
func discard(file *os.File) {
	file.Close()
	os.Remove(file.Name())
}

// secretOf returns a credential from its flag or environment variable, or the first line of
// its file. It returns "" if neither is given.
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
		return "", fmt.Errorf("%s: the first line holds no credential", path)
	}
	return line, nil
}
