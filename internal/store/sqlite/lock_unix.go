//go:build unix

package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

var errHeld = errors.New("held by another process")

func tryLock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

// unlock releases the lock immediately. Closing alone does not: a process that is forked at this
// moment has a copy of the descriptor until it executes its program, and the lock lasts while any
// copy is open.
func unlock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }
