//go:build unix

package main

import "golang.org/x/sys/unix"

// freeSpace is how many bytes may still be written below dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // a block has a size
}
