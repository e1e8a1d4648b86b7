package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// waitLeader blocks until the program has ended and leaves it unreaped, so that its number, which is also the number of its group, stays
// taken.
func (p *Process) waitLeader() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// reap frees the process number. The program has ended.
func (p *Process) reap() *os.ProcessState {
	_ = p.cmd.Wait() //nolint:errcheck // the state has it
	return p.cmd.ProcessState
}
