package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compile links one static binary. Version and revision go in by the linker,
// so that they are there where git is not; everything else that could differ
// between two machines stays out.
func (o options) compile(source, file string) error {
	dir, pkg := o.root, "./"+source
	if inner, ok := strings.CutPrefix(source, "hack/"); ok {
		dir, pkg = filepath.Join(o.root, "hack"), "./"+inner
	}
	out, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	const version = "github.com/fairpact/fairpact/internal/version"
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -buildid= -X %s.Version=%s -X %s.Revision=%s", version, o.version, version, o.revision),
		"-o", out, pkg)
	cmd.Dir = dir
	// Go's own defaults, whatever this machine has set.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-mod=readonly",
		"GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if o.arch != "" {
		cmd.Env = append(cmd.Env, "GOARCH="+o.arch)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, said.Bytes())
	}
	return nil
}
