//go:build !linux

package process

import (
	"log/slog"
	"os/exec"
)

// Reaper ends processes that have left the group of their program, on systems that can do that.
type Reaper struct{}

// NewReaper fails with [ErrNoReaper].
func NewReaper(*slog.Logger) (*Reaper, error) { return nil, ErrNoReaper }

func (*Reaper) start(cmd *exec.Cmd) error { return cmd.Start() }
func (*Reaper) mark(int)                  {}
func (*Reaper) forget(int)                {}
func (*Reaper) sweep() int                { return 0 }
