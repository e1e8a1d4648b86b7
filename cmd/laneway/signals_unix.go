//go:build unix

package main

import "syscall"

// restartSignal requests a restart of the scheduler.
const restartSignal = syscall.SIGUSR1
