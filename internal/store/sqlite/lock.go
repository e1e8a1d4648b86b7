package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrInUse is wrapped by the error of [Open] and [Migrate] when another process has this database open.
var ErrInUse = errors.New("the database is in use")

// fileLock is the exclusive right to a database file. The operating system releases it when the process ends, however it ends.
type fileLock struct{ file *os.File }

// lockFile takes the lock next to the database, or returns an error that names its holder. SQLite's own locks would admit a second gateway: they last for a
// transaction, this one for the life of the process.
func lockFile(path string) (*fileLock, error) {
	name := path + ".lock"
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the operator's own configuration
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the database: %w", err)
	}
	if err := tryLock(file); err != nil {
		holder := readHolder(file)
		_ = file.Close()
		if errors.Is(err, errHeld) {
			return nil, fmt.Errorf("%w: the data directory %s belongs to another running gateway%s; stop it, choose another "+
				"directory with --data, or let both share PostgreSQL with --database postgres://…", ErrInUse, filepath.Dir(path), holder)
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return &fileLock{file: file}, writeHolder(file)
}

// release lets the next process take the lock. The file stays: if it were deleted, two processes could lock two files of one name.
func (l *fileLock) release() error {
	if err := errors.Join(unlock(l.file), l.file.Close()); err != nil {
		return fmt.Errorf("release the lock file of the database: %w", err)
	}
	return nil
}

func writeHolder(file *os.File) error {
	text := strconv.Itoa(os.Getpid()) + "\n"
	err := file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the lock file of the database: %w", err), file.Close())
	}
	return nil
}

// readHolder is for the error message only: the lock is authoritative, not the number.
func readHolder(file *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
