//go:build !unix

package main

import "syscall"

// restartSignal is a number that this system never sends: it has no signal for the restart of the scheduler.
const restartSignal = syscall.Signal(0x1f)
