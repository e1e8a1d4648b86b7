package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/testpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Setenv(testpg.URLVariable, "postgres://given/db")
	for name, tt := range map[string]struct { //nolint:paralleltest // the environment belongs to the process
		args []string
		code int
		says string
	}{
		"usage":           {args: nil, code: exitUsage, says: "usage"},
		"unknown flag":    {args: []string{"-x"}, code: exitUsage, says: "not defined"},
		"success":         {args: []string{"--", "true"}},
		"exit code":       {args: []string{"--", "sh", "-c", "exit 7"}, code: 7},
		"ended by signal": {args: []string{"--", "sh", "-c", "kill -TERM $$"}, code: 143},
		"no such command": {args: []string{"--", "/no/such/command"}, code: 1, says: "no such file"},
		"address":         {args: []string{"--", "sh", "-c", `test "$TEST_DATABASE_URL" = postgres://given/db`}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if code := run(t.Context(), tt.args, &stderr); code != tt.code || !strings.Contains(stderr.String(), tt.says) {
				t.Errorf("code %d, want %d; said %q, want %q", code, tt.code, stderr.String(), tt.says)
			}
		})
	}
}

// Without any way to a server the command is not run, and one line names the three ways.
func TestNoWayToAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Setenv(testpg.URLVariable, "")
	t.Setenv("PG_BIN", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	ran := filepath.Join(t.TempDir(), "ran")
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"--", "/usr/bin/touch", ran}, &stderr)
	for _, way := range []string{testpg.URLVariable, "PG_BIN", "Docker"} {
		if !strings.Contains(stderr.String(), way) {
			t.Errorf("%q does not name %s", stderr.String(), way)
		}
	}
	if _, err := os.Stat(ran); code != exitUsage || err == nil {
		t.Errorf("code %d, want %d, and the command must not run", code, exitUsage)
	}
}

// go test keeps the results of a package only while TMPDIR is the same, so two runs of one checkout
// must have the same one; concurrent runs must not, and the tests of a run must not see what a
// killed run has left there.
func TestRunsOfOneCheckoutHaveTheirDirectoryOneAfterTheOther(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	root := t.TempDir()
	take := func(checkout string) (string, *os.File) {
		t.Helper()
		dir, lock, err := locked(root, checkout)
		if err != nil {
			t.Fatal(err)
		}
		return dir, lock
	}
	first, lock := take("/checkout")
	if other, otherLock := take("/another"); other == first {
		t.Errorf("two checkouts have %s", first)
	} else if err := otherLock.Close(); err != nil {
		t.Error(err)
	}
	if dir, _, err := locked(root, "/checkout"); !errors.Is(err, errInUse) {
		t.Errorf("a run beside another has %q, %v", dir, err)
	}
	left := filepath.Join(first, "laneway-pg-1", "data")
	if err := errors.Join(os.MkdirAll(left, 0o700), lock.Close()); err != nil { // as the kernel does when a process ends
		t.Fatal(err)
	}
	second, lock := take("/checkout")
	if second != first {
		t.Errorf("the second run has %s, the first had %s", second, first)
	}
	if entries, err := os.ReadDir(second); err != nil || len(entries) != 0 {
		t.Errorf("the second run finds %v, %v", entries, err)
	}
	if err := errors.Join(os.RemoveAll(second), lock.Close()); err != nil {
		t.Fatal(err)
	}
	third, lock := take("/checkout")
	if third != first || lock.Close() != nil {
		t.Errorf("the third run has %s, the first had %s", third, first)
	}
}

// Every user may write to a file system in memory, so the name may belong to another user.
func TestADirectoryThatIsNotOursIsLeftAlone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	root, elsewhere := t.TempDir(), t.TempDir()
	dir, lock, err := locked(root, "/checkout")
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(elsewhere, "kept")
	if err := errors.Join(os.Remove(dir), lock.Close(), os.WriteFile(kept, nil, 0o600), os.Symlink(elsewhere, dir)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := locked(root, "/checkout"); err == nil {
		t.Errorf("got %s", got)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o777), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := locked(root, "/checkout"); !errors.Is(err, errInUse) {
		t.Errorf("got %s, %v", got, err)
	}
}
