package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// memoryRoot is where Linux has a file system in memory. roomNeeded in bytes must be free there:
// enough for what the go command builds, the database cluster and the files of all tests that run
// at once.
const (
	memoryRoot = "/dev/shm"
	roomNeeded = 6 << 30
	memoryName = "laneway-test-"
)

// inMemory makes a directory for temporary files where syncing a file costs nothing: tests that
// kill processes, not machines, do not need synced files, and on a busy disk they wait for them for
// most of their time. dir is "" if no such file system exists, or programs may not run from it.
//
// Two runs of one checkout, one after the other, have the same directory: go test keeps the results
// of a package as long as the variables that its tests have read are the same; TMPDIR is one of
// them, and the address of the database in it. What a killed run has left there is removed.
// Concurrent runs have separate directories. The caller calls remove.
func inMemory(root, checkout string) (dir string, remove func()) {
	nothing := func() {}
	var room syscall.Statfs_t
	if err := syscall.Statfs(root, &room); err != nil || room.Bavail*uint64(room.Bsize) < roomNeeded { // a block has a size above zero
		return "", nothing
	}
	dir, lock, err := locked(root, checkout)
	if err != nil {
		if dir, err = os.MkdirTemp(root, memoryName); err != nil {
			return "", nothing
		}
	}
	remove = func() {
		_ = os.RemoveAll(dir)
		_ = lock.Close() // the kernel unlocks it
	}
	// The server of a test may run under another account and needs access to the path.
	program := filepath.Join(dir, "true")
	if os.Chmod(dir, 0o711) != nil || os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700) != nil || exec.Command(program).Run() != nil { //nolint:noctx // our own line; it ends at once
		remove()
		return "", nothing
	}
	return dir, remove
}

// errInUse means that the directory of the checkout belongs to another run or another user.
var errInUse = errors.New("the directory is in use")

// locked makes the directory of a checkout in root, or empties the existing one, and locks it until
// the file is closed. The kernel releases the lock when the process ends.
func locked(root, checkout string) (dir string, lock *os.File, err error) {
	sum := sha256.Sum256(fmt.Append(nil, os.Geteuid(), " ", checkout))
	dir = filepath.Join(root, memoryName+hex.EncodeToString(sum[:6]))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, fmt.Errorf("making a directory in memory: %w", err)
	}
	if lock, err = os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW, 0); err != nil { // the path is ours
		return "", nil, fmt.Errorf("opening a directory in memory: %w", err)
	}
	if err := take(dir, lock); err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return dir, lock, nil
}

// take locks the open directory and removes what is in it. The previous run may have removed it
// meanwhile, so the name is looked up again after locking.
func take(dir string, lock *os.File) error {
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return errInUse
	}
	opened, err := lock.Stat()
	if err != nil {
		return fmt.Errorf("reading a directory in memory: %w", err)
	}
	named, err := os.Lstat(dir)
	if err != nil || !os.SameFile(opened, named) || !named.IsDir() {
		return errInUse
	}
	if owner, ok := named.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return errInUse
	}
	left, err := lock.ReadDir(-1)
	for _, entry := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

// temporary returns the environment for a command whose temporary files are in dir. Go's tests read
// GOTMPDIR first.
func temporary(dir string) []string { return []string{"TMPDIR=" + dir, "GOTMPDIR=" + dir} }
