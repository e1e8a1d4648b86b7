package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

var errHeld = errors.New("held by another process")

func tryLock(file *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	// The locked byte is after the content, so that a refused process can still read the holder.
	at := &windows.Overlapped{Offset: 1 << 20}
	err := windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errHeld
	}
	return err
}

// unlock does nothing: Windows releases the lock when the file is closed.
func unlock(*os.File) error { return nil }
