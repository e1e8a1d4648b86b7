//go:build unix && !linux

package testpg

import "syscall"

// serverProcess puts the server into a process group of its own, so that a Ctrl-C in the terminal reaches the
// launcher first.
func serverProcess(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: cred}
}
