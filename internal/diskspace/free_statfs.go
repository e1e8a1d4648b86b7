//go:build linux || darwin

package diskspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Free returns the space that this process may still use on the disk of a directory, in bytes.
func Free(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("reading the free space: %w", err)
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // the type differs between systems
}
