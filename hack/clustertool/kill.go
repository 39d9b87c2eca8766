package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// kill ends the processes whose control group is named after a container, as a
// node does that runs out of memory: they are told nothing.
func kill(proc, container string) error {
	if len(container) < 32 {
		return fmt.Errorf("%q is no container id", container)
	}
	groups, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cgroup"))
	if err != nil {
		return err
	}
	killed := 0
	for _, file := range groups {
		// A process that has ended meanwhile has no file.
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), container) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %d: %w", pid, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("no process of container %s is in %s", container, proc)
	}
	return nil
}
