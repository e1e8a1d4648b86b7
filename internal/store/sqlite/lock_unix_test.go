//go:build unix

package sqlite

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that is forked while the lock is released has a copy of its descriptor until it
// executes its program.
func TestACopyOfTheDescriptorDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "laneway.db")
	first, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.Dup(int(first.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(copied) }()
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	second, err := lockFile(path)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := second.release(); err != nil {
		t.Fatal(err)
	}
}
