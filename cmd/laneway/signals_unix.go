//go:build unix

package main

import "syscall"

// restartSignal asks for a restart of the scheduler.
const restartSignal = syscall.SIGUSR1
