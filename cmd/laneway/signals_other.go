//go:build !unix

package main

import "syscall"

// restartSignal is a number that is never sent: this system has no signal for the restart of the
// scheduler.
const restartSignal = syscall.Signal(0x1f)
