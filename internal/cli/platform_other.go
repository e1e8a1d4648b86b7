//go:build !unix

package cli

import (
	"errors"
	"io/fs"
)

// freeSpace is not supported on this system.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }

// modeOf returns 0: this system has access lists instead of modes.
func modeOf(fs.FileInfo) fs.FileMode { return 0 }

// ownerOf is unknown on this system.
func ownerOf(fs.FileInfo) int { return -1 }
