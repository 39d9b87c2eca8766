package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ldflags are the linker's flags for a version and a revision, which are so
// known where git is not. The Dockerfile has the same.
func ldflags(version, revision string) string {
	const pkg = "github.com/fairpact/fairpact/internal/version"
	return fmt.Sprintf("-s -w -buildid= -X %s.Version=%s -X %s.Revision=%s", pkg, version, pkg, revision)
}

// compile links the program of a folder of the checkout into a static file.
func (o options) compile(folder, file string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags(o.version, o.revision), "-o", file, ".")
	cmd.Dir = filepath.Join(o.root, folder)
	// Go's own defaults, whatever this machine has set: the same source is the same file.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+o.arch, "GOFLAGS=-mod=readonly",
		"GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", folder, err, out)
	}
	return nil
}
