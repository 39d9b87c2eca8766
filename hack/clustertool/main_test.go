package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestKillEndsOnlyTheContainersProcesses(t *testing.T) {
	t.Parallel()
	container, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	proc := t.TempDir()
	process := func(of string) *exec.Cmd {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(proc, strconv.Itoa(cmd.Process.Pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/../cri-containerd-"+of+".scope\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	ended := func(cmd *exec.Cmd) syscall.Signal {
		_ = cmd.Wait()
		return cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
	}
	bystander, first, second := process(other), process(container), process(container)
	if err := kill(proc, container); err != nil {
		t.Fatal(err)
	}
	for _, victim := range []*exec.Cmd{first, second} {
		if s := ended(victim); s != syscall.SIGKILL {
			t.Errorf("a process of the container ended by %s, want %s", s, syscall.SIGKILL)
		}
	}
	if err := bystander.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := ended(bystander); s != syscall.SIGTERM {
		t.Errorf("the process of another container ended by %s, want %s", s, syscall.SIGTERM)
	}
	for _, unknown := range []string{"", "ab", strings.Repeat("ef", 32)} {
		if kill(proc, unknown) == nil {
			t.Errorf("kill of the unknown container %q succeeded, want an error", unknown)
		}
	}
}
