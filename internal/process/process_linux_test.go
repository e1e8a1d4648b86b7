package process_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// reaperVariable makes the test binary a process with a reaper: a process may have only one, and
// the other tests start children without it.
const reaperVariable = "LANEWAY_TEST_REAPER"

// beReaper runs two programs. The first one ends while processes that it left in several ways run;
// the second one continues. It prints the numbers of the processes that then still run.
func beReaper() error {
	reaper, err := process.NewReaper(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	spec := func(script string) process.Spec {
		return process.Spec{Argv: []string{"sh", "-c", script}, Env: process.Environment(nil, os.LookupEnv), Reaper: reaper}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	other, err := process.Start(ctx, spec("setsid sh -c 'echo $$; exec sleep 1000' & wait"))
	if err != nil {
		return err
	}
	stay := make(chan string, 1)
	read := make(chan error, 1)
	go func() {
		read <- other.Read(ctx, func(piece []byte) error { stay <- string(piece); return nil })
	}()
	neighbour := <-stay
	for name, script := range map[string]string{
		"setsid":     "setsid sh -c 'echo $$; exec sleep 1000' & read line",
		"doublefork": "(setsid sh -c 'echo $$; exec sleep 1000' &) ; read line",
		"ignores":    "(setsid sh -c 'trap \"\" TERM HUP; echo $$; while :; do sleep 1000; done' &) ; read line",
		"executes":   "(L='exec sh -c \"$L\"' setsid sh -c 'echo $$; exec sh -c \"$L\"' &) ; read line",
		"tree":       "(setsid sh -c 'setsid sleep 1000 & echo $! ; exec sleep 1000' &) ; read line",
		"unmarked":   "(env -i /usr/bin/setsid /bin/sh -c 'echo $$; exec /bin/sleep 1000' &) ; read line",
	} {
		one := spec(script)
		one.Talks = true
		p, err := process.Start(ctx, one)
		if err != nil {
			return err
		}
		var left string
		if err := p.Read(ctx, func(piece []byte) error {
			if left += string(piece); strings.HasSuffix(left, "\n") {
				p.CloseInput()
			}
			return nil
		}); err != nil {
			return err
		}
		p.Wait()
		fmt.Println(name, lives(strings.TrimSpace(left)))
	}
	fmt.Println("neighbour", lives(strings.TrimSpace(neighbour)))
	cancel()
	err = <-read
	other.Wait()
	fmt.Println("neighbour", lives(strings.TrimSpace(neighbour)))
	left, childrenErr := exec.Command("sh", "-c", "ps -o pid= --ppid "+strconv.Itoa(os.Getpid())+" | grep -v $$ | wc -l").Output()
	fmt.Println("children", strings.TrimSpace(string(left)))
	return errors.Join(err, childrenErr)
}

func lives(pid string) string {
	raw, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "gone"
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	if rest[0] == 'Z' { // it has ended; a later sweep reaps it
		return "gone"
	}
	return "state " + rest[:1]
}

// TestWhatLeavesTheGroupEndsWithItsProgram: with setsid, by a double fork, ignoring signals, with
// children, and while it executes one program after the other. Processes of a program that still
// runs stay, and a process without a marker stays as long as one of the programs that may have
// started it.
func TestWhatLeavesTheGroupEndsWithItsProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), reaperVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	lines := bufio.NewScanner(io.LimitReader(out, 1<<16))
	for lines.Scan() {
		name, state, _ := strings.Cut(lines.Text(), " ")
		got[name] = append(got[name], state)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v after %v", err, got)
	}
	want := map[string]string{
		"setsid": "gone", "doublefork": "gone", "ignores": "gone", "executes": "gone", "tree": "gone", "unmarked": "state S", "neighbour": "state S gone", "children": "0",
	}
	for name, state := range want {
		if have := strings.Join(got[name], " "); have != state {
			t.Errorf("%s: %q, want %q", name, have, state)
		}
	}
}

// TestWhatAGatewayHasLeftEnds checks that the process ends with its group, and that another process
// with its number is not touched.
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

// TestWhatAGatewayHasLeftEndsWithWhatItStarted covers also a program that ignores SIGTERM, and one
// that has ended before.
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
