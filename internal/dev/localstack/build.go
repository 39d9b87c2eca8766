package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root returns the top directory of the Fairpact checkout that contains the working directory.
// It returns an error if the working directory is not in a checkout.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(module), "module github.com/fairpact/fairpact\n") {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not in a checkout of Fairpact: change to a directory in a checkout")
		}
	}
}

// Build builds all binaries of the checkout into dir. args are passed to go build, for
// example "-tags=crashpoints" or "-race".
func Build(ctx context.Context, dir string, args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	all := append([]string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)}, args...)
	cmd := exec.CommandContext(ctx, "go", append(all, "./services/...")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the binaries: %w\n%s", err, out)
	}
	return nil
}
