package process_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/process"
	"laneway/internal/testrun"
)

// TestWhatAGatewayHasLeftEnds checks that the process ends with its group, and that another process with its number is not touched.
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

// TestWhatAGatewayHasLeftEndsWithWhatItStarted covers also a program that ignores SIGTERM, and one that has ended before.
func TestWhatAGatewayHasLeftEndsWithWhatItStarted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	for name, program := range map[string]string{
		"reads SIGTERM":    `setsid sleep 600 & trap "kill $!; exit" TERM; echo $! >"$0"; wait`,
		"ignores SIGTERM":  `trap "" TERM; setsid sleep 600 & echo $! >"$0"; while :; do wait; done`,
		"has ended before": `setsid sleep 600 & echo $! >"$0"; read -r line`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "child")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", program, file)
			marker := rand.Text()
			cmd.Env = append(os.Environ(), "LANEWAY_PROCESS="+marker)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Wait() })
			child := 0
			testrun.Eventually(t, "its child runs in a group of its own", func() bool {
				raw, err := os.ReadFile(file)
				if err != nil {
					return false
				}
				child, err = strconv.Atoi(strings.TrimSpace(string(raw)))
				if err != nil {
					return false
				}
				group, err := syscall.Getpgid(child)
				return err == nil && group != cmd.Process.Pid
			})
			identity := process.Started(cmd.Process.Pid) + " " + marker
			if name == "has ended before" {
				if err := input.Close(); err != nil {
					t.Fatal(err)
				}
				testrun.Eventually(t, "the program has ended", func() bool { return process.Started(cmd.Process.Pid) == "" })
			}
			if err := process.EndLeft(t.Context(), cmd.Process.Pid, identity, time.Second); err != nil {
				t.Fatal(err)
			}
			if process.Started(child) != "" {
				t.Error("its child still runs")
			}
		})
	}
}
