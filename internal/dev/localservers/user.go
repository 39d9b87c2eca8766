package localservers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairpact/fairpact/internal/dev/localservers/child"
)

type account struct {
	cred *syscall.Credential // nil: the user of this process
}

// serverAccount returns the user that runs the servers. Postgres refuses to run as root, so a
// process of root runs them as the user "postgres" or, if there is none, "nobody".
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return account{}, errors.New("Postgres refuses to run as root, and this machine has no user \"postgres\" and no user \"nobody\": run this command as a user other than root")
}

func (a account) own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Chown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// command returns a command that inherits no environment variables, because PG* variables would
// change the behaviour of Postgres.
func (a account) command(dir *serverDir, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = dir.path, &syscall.SysProcAttr{Credential: a.cred}
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir.path, "LANG=C", "LC_ALL=C", "TZ=UTC"}
	return cmd
}

func run(ctx context.Context, cmd *exec.Cmd) error {
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	process, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		process.Kill()
		return ctx.Err()
	}
	if err := process.Err(); err != nil {
		return fmt.Errorf("%s: %w; it printed:\n%s", cmd.Path, err, said.String())
	}
	return nil
}
