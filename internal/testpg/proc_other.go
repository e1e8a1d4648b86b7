//go:build unix && !linux

package testpg

import "syscall"

// serverProcess puts the server into a separate process group, so that a Ctrl-C in the terminal
// reaches the launcher first.
func serverProcess(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: cred}
}
