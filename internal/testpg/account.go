package testpg

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the account that the server runs as. A nil credential means that of this process.
type account struct {
	cred *syscall.Credential
}

// unprivileged finds an account for root, because Postgres refuses to run as root.
func unprivileged() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID != nil || errGID != nil || uid == 0 {
			continue
		}
		return account{cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("root cannot run Postgres and there is no account `postgres` or `nobody`: run the tests as another user")
}

// give makes the account the owner of dir.
func (a account) give(dir string) error {
	if a.cred == nil {
		return nil
	}
	if err := os.Chown(dir, int(a.cred.Uid), int(a.cred.Gid)); err != nil {
		return fmt.Errorf("handing %s to the server's account: %w", dir, err)
	}
	return nil
}
