//go:build !linux

package process

import "os"

// waitLeader blocks until the program has ended. It reaps the program as well: these systems have no call that does not, so for a
// moment the number of the group could belong to another process.
func (p *Process) waitLeader() {
	_ = p.cmd.Wait() //nolint:errcheck // the state has it
}

// reap returns what waitLeader saw.
func (p *Process) reap() *os.ProcessState { return p.cmd.ProcessState }
