package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The input of the command never arrives. The command is abandoned after the grace period, or at the second signal.
func TestASignalEndsACommandThatReads(t *testing.T) {
	t.Parallel()
	for name, twice := range map[string]bool{"one signal": false, "two signals": true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench("")
			silent, writer := io.Pipe()
			now := make(chan struct{})
			b.env.stdin, b.env.signals = silent, Signals{Now: now}
			ctx, signalled := context.WithCancelCause(t.Context())
			code := make(chan int, 1)
			go func() { code <- run(ctx, []string{"send", "-"}, b.env) }()
			synctest.Wait()
			began := time.Now()
			signalled(ErrInterrupted)
			if twice {
				synctest.Wait()
				close(now)
			}
			want := map[bool]time.Duration{false: signalGrace, true: 0}[twice]
			if got := <-code; got != exitFailure || time.Since(began) != want {
				t.Errorf("%s: ended with %d after %s, want %d after %s", name, got, time.Since(began), exitFailure, want)
			}
			if !strings.Contains(b.stderr.String(), "interrupted") {
				t.Errorf("%s: printed %q", name, b.stderr.String())
			}
			_ = writer.Close() // ends the abandoned read
			synctest.Wait()
		})
	}
}

func TestAnImportReadsRegularFilesOfABoundedSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxJobsFile+1); err != nil { // sparse
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is not a regular file", "/dev/zero": "is not a regular file", large: "has more than 32 MiB"} {
		b := newBench("")
		b.run(t, exitFailure, "cron", "import", path)
		if !strings.Contains(b.stderr.String(), want) {
			t.Errorf("%s: printed %q, want %q in it", path, b.stderr.String(), want)
		}
	}
}
