package process

import (
	"os"
	"syscall"
)

// ownGroup keeps a Ctrl-C in the console of the gateway from ending the program.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signalGroup ends the leader for SIGKILL. Windows has no signal that asks a program to end, and no
// group that ends with it: what the program has started must end by itself when its pipes are
// closed.
func signalGroup(leader *os.Process, signal syscall.Signal) error {
	if signal != syscall.SIGKILL {
		return nil
	}
	return leader.Kill()
}
