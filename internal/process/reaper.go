package process

import (
	"context"
	"errors"
	"time"
)

// ErrNoReaper means that this system cannot adopt processes.
var ErrNoReaper = errors.New("this system has no subreaper")

const (
	// markerVariable is in the environment of every program of a [Reaper] and of what it starts.
	markerVariable = "LANEWAY_PROCESS"
	// sweepEvery is the time between two sweeps of adopted processes while programs run, so that the zombies of a program that runs for days do not
	// accumulate.
	sweepEvery = 10 * time.Second
	// sweepTime bounds how long the end of a program waits for the end of the processes that it left.
	sweepTime = time.Second
	// strayTime is how long a process without a marker is assumed to be about to execute a program.
	strayTime = 100 * time.Millisecond
)

// Run reaps adopted processes that have ended, until ctx is done. A nil reaper returns at once.
func (r *Reaper) Run(ctx context.Context) {
	if r == nil {
		return
	}
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.sweep()
		case <-ctx.Done():
			return
		}
	}
}

// end kills the processes that a program has left outside of its group and waits until they have ended, for [sweepTime] at most. The leader has ended
// and is not reaped.
func (r *Reaper) end(leader int) {
	if r == nil {
		return
	}
	r.mark(leader)
	until := time.Now().Add(sweepTime)
	pause := time.Millisecond
	t := time.NewTimer(pause)
	defer t.Stop()
	for r.sweep() > 0 && time.Now().Before(until) {
		<-t.C // a killed process takes a moment to end, and its children are adopted only then
		pause = min(2*pause, 20*time.Millisecond)
		t.Reset(pause)
	}
}
