package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Started returns a string that identifies a process among all that have or had its number on this machine: the boot of the machine, and the start of
// the process. It returns "" if no such process exists.
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

// groupLives reports whether the group whose leader was pid has a process. A number is not reused while its group has processes.
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

// EndLeft waits until a process that an earlier gateway left running has ended with its group: for patience, then again for patience after SIGTERM to
// the group, and once more after SIGKILL. Then it kills what the process started outside of its group. identity is the result of [Process.Identity].
// Another process with the same number is not touched.
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

// splitIdentity returns the result of [Started] for a process, and the marker of the processes that it starts; "" if it has none.
func splitIdentity(identity string) (started, marker string) {
	fields := strings.Fields(identity)
	if len(fields) < 2 {
		return "", ""
	}
	return strings.Join(fields[:2], " "), strings.Join(fields[2:], "")
}

// endMarked kills the processes with a marker, and waits until they have ended, for patience at most.
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
