package main

import (
	"bytes"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/testpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
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

// The private cluster of a run is gone afterwards.
func TestPrivateClusterIsRemoved(t *testing.T) {
	t.Setenv(testpg.URLVariable, "")
	dir := t.TempDir()
	out := filepath.Join(dir, "url")
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-no-fsync", "--", "sh", "-c", "echo $TEST_DATABASE_URL > " + out}, &stderr); code != 0 {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	url, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(url), "host=") {
		t.Fatalf("address %q, %v", url, err)
	}
	address, err := neturl.Parse(strings.TrimSpace(string(url)))
	if err != nil {
		t.Fatal(err)
	}
	cluster := address.Query().Get("host")
	if parent := inMemoryParent(stderr.String()); parent != "" && filepath.Dir(cluster) != parent {
		t.Errorf("the cluster is in %s, not in %s", cluster, parent)
	}
	if _, err := os.Stat(cluster); !os.IsNotExist(err) {
		t.Errorf("%s is left (%v)", cluster, err)
	}
}

// inMemoryParent is the directory in memory that the command has reported, "" when there is none.
func inMemoryParent(stderr string) string {
	_, rest, _ := strings.Cut(stderr, "temporary files in memory: ")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// The command's temporary files are in memory where that is possible, and gone afterwards.
func TestTemporaryFilesInMemory(t *testing.T) {
	t.Setenv(testpg.URLVariable, "postgres://given/db")
	probe := inMemory(memoryRoot)
	if err := os.RemoveAll(probe); err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(t.TempDir(), "seen")
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"-no-fsync", "--", "sh", "-c", `echo "$TMPDIR" "$GOTMPDIR" > ` + seen + `; test -z "$TMPDIR" || test -d "$TMPDIR"`}, &stderr)
	text, err := os.ReadFile(seen)
	if code != 0 || err != nil {
		t.Fatalf("code %d, %v: %s", code, err, stderr.String())
	}
	got := strings.Fields(string(text))
	if probe == "" {
		if strings.Contains(stderr.String(), "memory") {
			t.Errorf("there is no memory to be had, but it says %q", stderr.String())
		}
		return
	}
	if len(got) != 2 || filepath.Dir(got[0]) != memoryRoot || got[1] != got[0] {
		t.Fatalf("TMPDIR and GOTMPDIR are %v", got)
	}
	if _, err := os.Stat(got[0]); !os.IsNotExist(err) {
		t.Errorf("%s is left (%v)", got[0], err)
	}
}

// Where nothing may be written, or no program may run, temporary files stay where they were.
func TestNoMemoryToBeHad(t *testing.T) {
	t.Parallel()
	if dir := inMemory(filepath.Join(t.TempDir(), "nowhere")); dir != "" {
		t.Errorf("got %s", dir)
	}
}
