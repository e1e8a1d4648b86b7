//go:build !linux

package process

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"time"
)

// Reaper ends processes that have left the group of their program, on systems that can do that.
type Reaper struct{}

// NewReaper fails with [ErrNoReaper].
func NewReaper(*slog.Logger) (*Reaper, error) { return nil, ErrNoReaper }

func (*Reaper) start(cmd *exec.Cmd) error { return cmd.Start() }
func (*Reaper) mark(int)                  {}
func (*Reaper) forget(int)                {}
func (*Reaper) sweep() int                { return 0 }

// Started returns "": it is unknown on this system.
func Started(int) string { return "" }

// EndLeft fails: whether the process runs is unknown on this system.
func EndLeft(context.Context, int, string, time.Duration) error {
	return errors.New("ending a process that was left: it is not known on this system")
}

// waitLeader blocks until the program has ended. It reaps the program as well: these systems have
// no call that does not, so for a moment the number of the group could belong to another process.
func (p *Process) waitLeader() {
	_ = p.cmd.Wait() // the state has it
}

// reap returns what waitLeader saw.
func (p *Process) reap() *os.ProcessState { return p.cmd.ProcessState }

// Memory returns 0: it cannot be read on this system.
func Memory([]int) int64 { return 0 }
