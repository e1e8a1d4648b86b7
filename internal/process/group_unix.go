//go:build unix

package process

import "syscall"

// ownGroup makes the program the leader of a new process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signal reaches the whole group. It fails only when no process is left.
func (p *Process) signal(signal syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, signal) //nolint:errcheck // see above
}
