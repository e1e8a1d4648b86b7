package files

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// readWrite opens a file so that it can be synced: some systems refuse that for a file that is open for reading.
const readWrite = os.O_RDWR

// sync syncs the names of the files of answers to the disk.
func (d *Dir) sync() error { return d.syncNames(outgoingDir) }

// syncNames syncs the names in directories, and those of the directories in the root. Windows cannot sync directories.
func (d *Dir) syncNames(dirs ...string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	for _, name := range append(dirs, ".") {
		dir, err := d.root.Open(name)
		if err != nil {
			return fmt.Errorf("storing the names of files: %w", err)
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return fmt.Errorf("storing the names of files: %w", err)
		}
	}
	return nil
}
