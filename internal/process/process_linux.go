package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper ends processes that have left the group of their program: with setsid, or by a double
// fork. The gateway becomes their parent when the program has ended (PR_SET_CHILD_SUBREAPER), so
// they are found among its children. The group of a process, or the variable LANEWAY_PROCESS, which
// every program inherits, identifies its program. A process without both may belong to any program
// that ran when it was first found, and is ended when all of these have ended.
//
// Only one Reaper may exist, and the process must start programs only with [Start]: every other
// child is treated as adopted. It is safe for concurrent use; a nil Reaper adopts nothing.
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

// NewReaper makes this process the parent of the processes that its programs leave. It fails with
// [ErrNoReaper] if the system cannot do that.
func NewReaper(log *slog.Logger) (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReaper, err)
	}
	if _, err := os.ReadFile("/proc/self/stat"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReaper, err)
	}
	return &Reaper{log: log, programs: map[int]*marked{}, strays: map[int]stray{}}, nil
}

// start starts a program with a marker. The lock is held during the fork: otherwise a sweep would
// treat the child as adopted.
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

// sweep reaps adopted processes that have ended, and kills those whose program has ended. It
// returns how many require another sweep: those that it has killed or reaped, and strays of the
// last [strayTime], because a process that is about to execute a program shows no environment.
func (r *Reaper) sweep() (again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	adopted := map[int]bool{}
	for _, c := range children(os.Getpid()) {
		if r.programs[c.pid] != nil {
			continue
		}
		if c.state == 'Z' {
			_, _ = unix.Wait4(c.pid, nil, unix.WNOHANG, nil) // it is a zombie of ours
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
	return slices.ContainsFunc(r.strays[c.pid].programs, func(one *marked) bool { return !one.ended })
}

// child is a process whose parent is this one.
type child struct {
	pid, group int
	state      byte
}

// children lists the children of a process. Not every kernel is built to list them, so all
// processes are read.
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

// markerOf returns the marker in the environment with which a process was started; "" if it has
// none, or it cannot be read.
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

// Started returns a string that identifies a process among all that have or had its number on this
// machine: the boot of the machine, and the start of the process. It returns "" if no such process
// exists.
func Started(pid int) string {
	fields := stat(strconv.Itoa(pid))
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || !living(fields) {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + fields[19]
}

// living reports whether a process still runs; a zombie has ended.
func living(fields []string) bool { return len(fields) >= 22 && fields[0] != "Z" && fields[0] != "X" }

// groupLives reports whether the group whose leader was pid has a process. A number is not reused
// while its group has processes.
func groupLives(pid int, started string) bool {
	if now := Started(pid); now != "" {
		return now == started
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || !strings.HasPrefix(started, strings.TrimSpace(string(boot))+" ") { // the machine was rebooted
		return false
	}
	for _, fields := range stats() {
		if living(fields) && fields[2] == strconv.Itoa(pid) {
			return true
		}
	}
	return false
}

// EndLeft waits until a process that an earlier gateway left running has ended with its group: for
// patience, then again for patience after SIGTERM to the group, and once more after SIGKILL. Then
// it kills what the process started outside of its group. identity is the result of
// [Process.Identity]. Another process with the same number is not touched.
func EndLeft(ctx context.Context, pid int, identity string, patience time.Duration) error {
	started, marker := splitIdentity(identity)
	if pid <= 1 || started == "" {
		return errors.New("ending a process that was left: it is not known")
	}
	signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}
	next := time.NewTimer(patience)
	defer next.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for groupLives(pid, started) {
		select {
		case <-look.C:
		case <-next.C:
			if len(signals) == 0 {
				return fmt.Errorf("ending a process that was left: %d still lives", pid)
			}
			if err := syscall.Kill(-pid, signals[0]); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending a process that was left: %w", err)
			}
			signals = signals[1:]
			next.Reset(patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return endMarked(ctx, marker, patience)
}

// splitIdentity returns the result of [Started] for a process, and the marker of the processes that
// it starts; "" if it has none.
func splitIdentity(identity string) (started, marker string) {
	fields := strings.Fields(identity)
	if len(fields) < 2 {
		return "", ""
	}
	return strings.Join(fields[:2], " "), strings.Join(fields[2:], "")
}

// endMarked kills the processes with a marker, and waits until they have ended, for patience at
// most.
func endMarked(ctx context.Context, marker string, patience time.Duration) error {
	if marker == "" {
		return nil
	}
	bound := time.NewTimer(patience)
	defer bound.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for none := 0; none < 2; { // a process that is about to execute a program shows no environment
		left := 0
		for pid := range stats() {
			if markerOf(pid) != marker {
				continue
			}
			left++
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("ending what a process that was left has started: %w", err)
			}
		}
		if none++; left > 0 {
			none = 0
		}
		select {
		case <-look.C:
		case <-bound.C:
			if left == 0 {
				return nil
			}
			return fmt.Errorf("ending what a process that was left has started: %d processes still live", left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// waitLeader blocks until the program has ended and leaves it unreaped, so that its number, which
// is also the number of its group, stays taken.
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
	_ = p.cmd.Wait() // the state has it
	return p.cmd.ProcessState
}

// Memory returns the memory of the processes of groups, in bytes (their resident sets; shared pages
// count for each process); 0 means unknown.
func Memory(groups []int) (total int64) {
	if len(groups) == 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	for _, raw := range stats() {
		if group, err := strconv.Atoi(raw[2]); err != nil || !slices.Contains(groups, group) || len(raw) < 22 {
			continue
		}
		if pages, err := strconv.ParseInt(raw[21], 10, 64); err == nil {
			total += pages * page
		}
	}
	return total
}

// stats returns, by process number, the fields of /proc/PID/stat after the name: state, parent,
// group, ….
func stats() map[int][]string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // what could be read is listed
	all := map[int][]string{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if fields := stat(name); len(fields) >= 3 {
			all[pid] = fields
		}
	}
	return all
}

// stat returns the fields of one process; nil if it has ended.
func stat(pid string) []string {
	raw, err := os.ReadFile("/proc/" + pid + "/stat") // a number
	if err != nil {
		return nil
	}
	// pid (name) state parent group …; the name may contain anything.
	return strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
}
