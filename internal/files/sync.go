package files

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// readWrite opens a file so that its content can be put on the disk, which some systems do not do for readers.
const readWrite = os.O_RDWR

// sync puts the names of the files of answers on the disk. Windows has no such thing for directories.
func (d *Dir) sync() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	for _, name := range []string{outgoingDir, "."} {
		dir, err := d.root.Open(name)
		if err != nil {
			return fmt.Errorf("keeping the names of files: %w", err)
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return fmt.Errorf("keeping the names of files: %w", err)
		}
	}
	return nil
}
