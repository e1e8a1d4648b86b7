//go:build unix

package process

import (
	"os"
	"syscall"
)

// ownGroup makes the program the leader of a new process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(leader *os.Process, signal syscall.Signal) error {
	return syscall.Kill(-leader.Pid, signal)
}
