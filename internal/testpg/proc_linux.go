package testpg

import "syscall"

// serverProcess puts the server into a separate process group, so that a Ctrl-C in the terminal
// reaches the launcher first, and asks the kernel for a fast shutdown of the server should the
// launcher be killed.
func serverProcess(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT, Credential: cred}
}
