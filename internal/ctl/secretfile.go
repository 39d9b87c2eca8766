package ctl

import (
	"errors"
	"fmt"
	"os"

	"github.com/fairpact/fairpact/internal/platform/files"
)

// createSecretFile calls `produce` and writes the result to a new file that only the file's owner
// may read. It creates the file before the call, because `produce` obtains a secret, which would be
// lost if the file could not be created. It refuses an existing file, which may hold the only copy
// of a secret.
func createSecretFile(path string, produce func() ([]byte, error)) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists and may hold the only copy of a salt or token: name another file", path)
	}
	if err != nil {
		return err
	}
	_ = file.Close()
	content, err := produce()
	if err != nil {
		os.Remove(path)
		return err
	}
	return files.Replace(path, content, 0o600)
}
