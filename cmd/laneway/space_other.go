//go:build !unix

package main

import (
	"errors"
	"io/fs"
)

// freeSpace is not known here.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }

// ownerOf is not known here.
func ownerOf(fs.FileInfo) int { return -1 }
