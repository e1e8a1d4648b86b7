//go:build !unix

package main

import (
	"errors"
	"io/fs"
	"syscall"
)

// freeSpace is not known here.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }

// modeOf is 0: this system has access lists instead of modes.
func modeOf(fs.FileInfo) fs.FileMode { return 0 }

// ownerOf is not known here.
func ownerOf(fs.FileInfo) int { return -1 }

// restartSignal is a number that this system never sends: it has no signal for the restart of the scheduler.
const restartSignal = syscall.Signal(0x1f)
