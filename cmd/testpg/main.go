// Command testpg runs another command with a Postgres server:
//
//	go run ./cmd/testpg -- go test ./...
//
// It exports TEST_DATABASE_URL, returns the command's exit code, and stops what it has started,
// also after an interrupt. Exit code 2 means that no Postgres was found and none can be started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"laneway/internal/testpg"
)

// exitUsage is the exit code for wrong arguments and for a machine without Postgres.
const exitUsage = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

func run(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("testpg", flag.ContinueOnError)
	flags.SetOutput(stderr)
	noFsync := flags.Bool("no-fsync", false, "run a private cluster without fsync, keep it in memory, and give the command a TMPDIR there (faster; not for tests in which a machine loses power)")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	if flags.NArg() == 0 {
		printLine(stderr, "usage: testpg [-no-fsync] -- command [argument ...]")
		return exitUsage
	}
	var memory string
	if *noFsync {
		checkout, err := os.Getwd()
		if err != nil {
			printLine(stderr, err.Error())
			return exitUsage
		}
		var remove func()
		memory, remove = inMemory(memoryRoot, checkout)
		defer remove()
	}
	server, err := testpg.Provide(ctx, testpg.Config{
		URL:     os.Getenv(testpg.URLVariable),
		PGBin:   os.Getenv("PG_BIN"),
		NoFsync: *noFsync,
		Dir:     memory,
		Stable:  memory != "",
	})
	if err != nil {
		printLine(stderr, err.Error())
		return exitUsage
	}
	printLine(stderr, "postgres: "+server.How)
	env := []string{testpg.URLVariable + "=" + server.URL}
	if memory != "" {
		printLine(stderr, "temporary files in memory: "+memory)
		env = append(env, temporary(memory)...)
	}
	code := child(ctx, env, flags.Args(), stderr)
	if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
		printLine(stderr, err.Error())
		code = max(code, 1)
	}
	return code
}

// child runs the command to its end, with env added to its environment. An interrupt is passed to
// it; a command that ignores it for ten seconds is killed.
func child(ctx context.Context, env, argv []string, stderr io.Writer) int {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // running the caller's command is the purpose
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exitCode(exit)
	default:
		printLine(stderr, err.Error())
		return 1
	}
}

// exitCode follows the convention of shells: 128 + n for a command that signal n has ended.
func exitCode(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

func printLine(w io.Writer, text string) { _, _ = fmt.Fprintln(w, "testpg: "+strings.TrimSpace(text)) }
