package process

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper ends processes that have left the group of their program: with setsid, or by a double fork. The gateway becomes their parent when the
// program has ended (PR_SET_CHILD_SUBREAPER), so they are found among its children. The group of a process, or the variable LANEWAY_PROCESS, which
// every program inherits, identifies its program. A process without both may belong to any program that ran when it was first found, and is ended
// when all of these have ended.
//
// Only one Reaper may exist, and the process must start programs only with [Start]: every other child is treated as adopted. It is safe for
// concurrent use; a nil Reaper adopts nothing.
type Reaper struct {
	log *slog.Logger

	mu sync.Mutex
	// programs has the programs whose leader is not reaped, by the number of the leader.
	programs map[int]*marked
	// strays has adopted processes whose program is unknown.
	strays map[int]stray
}

// stray has the programs that ran when it was found.
type stray struct {
	found    time.Time
	programs []*marked
}

// marked is a program with its marker.
type marked struct {
	marker string
	ended  bool
}

// NewReaper makes this process the parent of the processes that its programs leave. It fails with [ErrNoReaper] if the system cannot do that.
func NewReaper(log *slog.Logger) (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReaper, err)
	}
	if _, err := os.ReadFile("/proc/self/stat"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReaper, err)
	}
	return &Reaper{log: log, programs: map[int]*marked{}, strays: map[int]stray{}}, nil
}

// start starts a program with a marker. The lock is held during the fork: otherwise a sweep would treat the child as adopted.
func (r *Reaper) start(cmd *exec.Cmd) error {
	if r == nil {
		return cmd.Start()
	}
	one := &marked{marker: rand.Text()}
	cmd.Env = append(cmd.Env, markerVariable+"="+one.marker)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.programs[cmd.Process.Pid] = one
	return nil
}

// mark records that a program has ended.
func (r *Reaper) mark(leader int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs[leader].ended = true
}

// forget is called when the leader was reaped.
func (r *Reaper) forget(leader int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.programs, leader)
}

// sweep reaps adopted processes that have ended, and kills those whose program has ended. It returns how many require another sweep: those that it
// has killed or reaped, and strays of the last [strayTime], because a process that is about to execute a program shows no environment.
func (r *Reaper) sweep() (again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	adopted := map[int]bool{}
	for _, c := range children(os.Getpid()) {
		if r.programs[c.pid] != nil {
			continue
		}
		if c.state == 'Z' {
			_, _ = unix.Wait4(c.pid, nil, unix.WNOHANG, nil) //nolint:errcheck // it is a zombie of ours
			again++                                          // its children may have been listed before they were adopted
			continue
		}
		adopted[c.pid] = true
		if r.wanted(c) {
			if one, known := r.strays[c.pid]; known && time.Since(one.found) < strayTime {
				again++
			}
			continue
		}
		if err := unix.Kill(c.pid, unix.SIGKILL); err != nil {
			r.log.Warn("a process that a program left cannot be ended", "pid", c.pid, "err", err)
			continue
		}
		again++
	}
	for pid := range r.strays {
		if !adopted[pid] {
			delete(r.strays, pid)
		}
	}
	return again
}

// wanted reports whether the program of an adopted process may still run.
func (r *Reaper) wanted(c child) bool {
	if one := r.programs[c.group]; one != nil {
		return !one.ended
	}
	if marker := markerOf(c.pid); marker != "" {
		for _, one := range r.programs {
			if one.marker == marker {
				return !one.ended
			}
		}
		return false
	}
	if _, known := r.strays[c.pid]; !known {
		r.strays[c.pid] = stray{time.Now(), slices.Collect(maps.Values(r.programs))}
	}
	for _, one := range r.strays[c.pid].programs {
		if !one.ended {
			return true
		}
	}
	return false
}

// child is a process whose parent is this one.
type child struct {
	pid, group int
	state      byte
}

// children lists the children of a process. Not every kernel is built to list them, so all processes are read.
func children(parent int) (list []child) {
	for pid, fields := range stats() {
		if fields[1] != strconv.Itoa(parent) {
			continue
		}
		group, err := strconv.Atoi(fields[2])
		if err == nil {
			list = append(list, child{pid: pid, group: group, state: fields[0][0]})
		}
	}
	return list
}

// markerOf returns the marker in the environment with which a process was started; "" if it has none, or it cannot be read.
func markerOf(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for one := range bytes.SplitSeq(raw, []byte{0}) {
		if marker, ok := bytes.CutPrefix(one, []byte(markerVariable+"=")); ok {
			return string(marker)
		}
	}
	return ""
}
