package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// memoryRoot is where Linux has a file system in memory. roomNeeded in bytes must be free there: what the go command builds, the
// database cluster and the files of all tests that run at once, with much to spare.
const (
	memoryRoot = "/dev/shm"
	roomNeeded = 6 << 30
)

// inMemory makes a directory for temporary files where syncing a file costs nothing: tests that kill processes, not machines, wait for the disk
// in vain, and on a busy disk they wait for most of their time. It is empty where there is no such place, or no program may run from it.
// The caller removes it.
func inMemory(root string) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(root, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < roomNeeded { //nolint:gosec // a block has a size above zero
		return ""
	}
	dir, err := os.MkdirTemp(root, "laneway-test-")
	if err != nil {
		return ""
	}
	// A server of a test may run under another account and needs access to the path.
	program := filepath.Join(dir, "true")
	if os.Chmod(dir, 0o711) != nil || os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700) != nil || exec.Command(program).Run() != nil { //nolint:gosec,noctx // our own line; it ends at once
		_ = os.RemoveAll(dir)
		return ""
	}
	return dir
}

// temporary is the environment for a command whose temporary files are in dir. Go's tests ask for GOTMPDIR first.
func temporary(dir string) []string { return []string{"TMPDIR=" + dir, "GOTMPDIR=" + dir} }
