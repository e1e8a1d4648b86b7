package process_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"laneway/internal/process"
)

// TestWhatAGatewayHasLeftEnds with its group, and only that process: another one with its number is left alone.
func TestWhatAGatewayHasLeftEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	leave := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() })
		return cmd
	}
	left, other := leave(), leave()
	pid, started := left.Process.Pid, process.Started(left.Process.Pid)
	if started == "" {
		t.Fatalf("started is %q", started)
	}
	if err := process.EndLeft(t.Context(), other.Process.Pid, started+"0", time.Millisecond); err != nil {
		t.Errorf("a number that another process has now: %v", err)
	}
	if process.Started(other.Process.Pid) == "" {
		t.Error("the other process was ended")
	}
	if err := process.EndLeft(t.Context(), pid, started, 2*time.Second); err != nil || process.Started(pid) != "" {
		t.Errorf("%v, and it is %q", err, process.Started(pid))
	}
	if err := process.EndLeft(t.Context(), pid, started, time.Millisecond); err != nil {
		t.Errorf("one that has ended: %v", err)
	}
	if err := process.EndLeft(t.Context(), pid, "", time.Millisecond); err == nil {
		t.Error("one that is not known was called ended")
	}
}
