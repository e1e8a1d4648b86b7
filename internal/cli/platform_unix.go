//go:build unix

package cli

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOf returns the owner of a file; -1 = unknown.
func ownerOf(info fs.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Uid)
}

// freeSpace returns how many bytes may still be written below dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // a block has a size
}

// modeOf returns the permissions of owner, group and others.
func modeOf(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() }
