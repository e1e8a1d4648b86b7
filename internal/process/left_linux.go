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

// Started identifies a process among all that have or had its number on this machine: by the boot of the machine, and the start of the process. It is "" when no such process
// lives.
func Started(pid int) string {
	fields := stat(strconv.Itoa(pid))
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || !living(fields) {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + fields[19]
}

// living: a zombie has ended.
func living(fields []string) bool { return len(fields) >= 22 && fields[0] != "Z" && fields[0] != "X" }

// groupLives reports whether a process of the group lives whose leader pid was. A number is not given again while its group has processes.
func groupLives(pid int, started string) bool {
	if now := Started(pid); now != "" {
		return now == started
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || !strings.HasPrefix(started, strings.TrimSpace(string(boot))+" ") { // the machine was started anew
		return false
	}
	for _, fields := range stats() {
		if living(fields) && fields[2] == strconv.Itoa(pid) {
			return true
		}
	}
	return false
}

// EndLeft waits until a process and its group have ended that a gateway has left running: for patience, after SIGTERM to its group for patience again, and after SIGKILL once more. A
// program that reads SIGTERM can end what has left its group. started is what [Started] returned for it. Any other process with its number is left alone.
func EndLeft(ctx context.Context, pid int, started string, patience time.Duration) error {
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
	return nil
}
