package localservers

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the servers run as.
type account struct {
	name string
	cred *syscall.Credential // nil: the user of this process
}

// serverAccount returns the user of this process. For root it returns the user
// postgres, or nobody if there is no such user.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{name: "uid " + strconv.Itoa(os.Geteuid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil || uid == 0 {
			continue
		}
		return account{name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, fmt.Errorf("Postgres refuses to run as root, and there is no user postgres or nobody: run as another user")
}

func (a account) attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.cred}
}

// own makes the account the owner of path.
func (a account) own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Chown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// canEnter returns an error if the account may not enter dir or one of its parents.
func (a account) canEnter(dir string) error {
	if a.cred == nil {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		need := os.FileMode(0o001)
		switch {
		case st.Uid == a.cred.Uid:
			need = 0o100
		case st.Gid == a.cred.Gid:
			need = 0o010
		}
		if info.Mode().Perm()&need == 0 {
			return fmt.Errorf("the user %s cannot enter %s", a.name, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
