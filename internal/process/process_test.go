package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"laneway/internal/process"
)

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(reaperVariable); ok {
		if err := beReaper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// run starts a program, reads its output to the end and returns both.
func run(ctx context.Context, t *testing.T, spec process.Spec) (string, process.Exit) {
	t.Helper()
	p, err := process.Start(ctx, spec)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	var out bytes.Buffer
	if err := p.Read(ctx, func(piece []byte) error { out.Write(piece); return nil }); err != nil {
		t.Errorf("Read: %v", err)
	}
	return out.String(), p.Wait()
}

func TestArgumentsAreNotInterpreted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	arguments := []string{"$(touch /tmp/never)", "`id`", "a\nb", "--flag", "'\"", "*", ""}
	spec := process.Spec{Argv: append([]string{"printf", "<%s>"}, arguments...), Env: process.Environment(nil, nil)}
	got, exit := run(t.Context(), t, spec)
	if want := "<" + strings.Join(arguments, "><") + ">"; got != want || exit.Code != 0 {
		t.Errorf("got %q and %+v, want %q", got, exit, want)
	}
}

func TestTheEnvironmentIsNotInherited(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Setenv("LANEWAY_TEST_KEY", "of the gateway")
	lookup := func(name string) (string, bool) { return "of " + name, name == "TZ" || name == "LANEWAY_TEST_KEY" }
	env := process.Environment(map[string]string{"A": "1\x002"}, lookup)
	got, _ := run(t.Context(), t, process.Spec{Argv: []string{"env"}, Env: env})
	if want := "A=12\nPATH=/usr/local/bin:/usr/bin:/bin\nTZ=of TZ\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheWholeGroupEndsWithTheContext(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := process.Start(ctx, process.Spec{
		Argv:  []string{"sh", "-c", `trap '' TERM; (echo ready; sleep 1000) & wait; sleep 1000`},
		Env:   process.Environment(nil, nil),
		Grace: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := p.Read(ctx, func([]byte) error { cancel(); return nil }); err != nil {
		t.Errorf("Read: %v", err)
	}
	// Read returns when no process holds the output: the grandchild has ended.
	if exit := p.Wait(); exit.Signal != "killed" || exit.Code != -1 || time.Since(start) > 10*time.Second {
		t.Errorf("got %+v after %s, want killed at once", exit, time.Since(start))
	}
}

func TestAnErrorOfTheReaderEndsTheOutput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := process.Start(ctx, process.Spec{Argv: []string{"yes"}, Env: process.Environment(nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	enough, taken := errors.New("enough"), 0
	err = p.Read(ctx, func(piece []byte) error {
		taken += len(piece)
		if taken > 100_000 {
			return enough
		}
		return nil
	})
	cancel()
	p.Wait()
	if !errors.Is(err, enough) || taken > 200_000 {
		t.Errorf("got %v after %d bytes, want the error of the reader", err, taken)
	}
}

func TestStandardErrorIsBoundedAndWithoutSecrets(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	var log bytes.Buffer
	env := map[string]string{"KEY": "secret-value"}
	_, exit := run(t.Context(), t, process.Spec{
		Argv: []string{"sh", "-c", `for i in 1 2 3 4 5; do echo "line $i $KEY" >&2; done; exit 7`}, Env: process.Environment(env, nil),
		Hide: process.Hider(env), Noise: rate.NewLimiter(0, 2), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if exit.Code != 7 || !strings.HasPrefix(exit.Stderr, "line 3 ") || strings.Contains(exit.Stderr+log.String(), "secret-value") {
		t.Errorf("got %+v, want exit code 7 and the last lines without the value", exit)
	}
	if lines := strings.Count(log.String(), "msg=\"program wrote to standard error\""); lines != 2 || !strings.Contains(log.String(), "lines_left_out=3") {
		t.Errorf("got %d lines, want 2 and a count of the rest:\n%s", lines, &log)
	}
}

// TestACallerTalksToAProgram: the program reads its input while it runs, and the end of the input
// ends it.
func TestACallerTalksToAProgram(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p, err := process.Start(t.Context(), process.Spec{Argv: []string{"cat"}, Env: process.Environment(nil, nil), Talks: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	var out string
	err = p.Read(t.Context(), func(piece []byte) error {
		if out += string(piece); out == "one" {
			if _, err := p.Write([]byte(" two")); err != nil {
				return err
			}
		}
		if out == "one two" {
			p.CloseInput()
			p.CloseInput()
		}
		return nil
	})
	if exit := p.Wait(); err != nil || out != "one two" || exit.Code != 0 {
		t.Errorf("got %q, %v, %+v", out, err, exit)
	}
	if _, err := p.Write([]byte("late")); err == nil {
		t.Error("a program that has ended was written to")
	}
}

// TestAProgramThatDoesNotReadDoesNotHoldItsWriter: the end of the program ends a write that waits
// for it.
func TestAProgramThatDoesNotReadDoesNotHoldItsWriter(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := process.Start(ctx, process.Spec{
		Argv: []string{"sh", "-c", "echo ready; exec sleep 1000"}, Env: process.Environment(nil, nil), Talks: true, Grace: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := p.Write(make([]byte, 1<<20))
		written <- err
	}()
	if err := p.Read(ctx, func([]byte) error { cancel(); return nil }); err != nil {
		t.Errorf("Read: %v", err)
	}
	p.Wait()
	if err := <-written; err == nil {
		t.Error("more was written than a pipe takes")
	}
}

func TestAProgramThatIsNotThereIsNotStarted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	for program, want := range map[string]error{"no-such-program": fs.ErrNotExist, "/no/such/program": fs.ErrNotExist} {
		_, err := process.Start(t.Context(), process.Spec{Argv: []string{program}, Env: process.Environment(nil, nil)})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", program, err, want)
		}
	}
}
