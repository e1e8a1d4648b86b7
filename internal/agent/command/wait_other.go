//go:build unix && !linux

package command

import "os"

// waitLeader blocks until the program has ended. It reaps it as well: these systems have no call that does not, so for a moment the
// number of the group could belong to another process.
func (p *process) waitLeader() {
	_ = p.cmd.Wait() //nolint:errcheck // the state has it
}

// reap returns what waitLeader saw.
func (p *process) reap() *os.ProcessState { return p.cmd.ProcessState }
