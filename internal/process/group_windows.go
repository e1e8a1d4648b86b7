package process

import "syscall"

// ownGroup keeps a Ctrl-C in the console of the gateway away from the program.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signal ends the program for SIGKILL. Windows has no signal that asks a program to end, and no group that ends with it: what the program has started
// must end by itself when its pipes are closed.
func (p *Process) signal(signal syscall.Signal) {
	if signal == syscall.SIGKILL {
		_ = p.cmd.Process.Kill() //nolint:errcheck // fails only when the program has ended
	}
}
