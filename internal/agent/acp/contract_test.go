package acp_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
)

//nolint:paralleltest // the suite checks for leaked goroutines
func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	agenttest.Run(t, agenttest.Subject{
		Open: func(t *testing.T, s agenttest.Script) agent.Runner {
			t.Helper()
			if text := s.Text(); len(s.Pieces) > 1 && len(s.Pieces) == len(text) {
				s.Pieces = strings.Split(text, "") // single bytes may not be valid JSON strings
			}
			return open(t, script{Script: s, Dir: dir}, acp.Config{MaxAnswer: s.MaxAnswer})
		},
		Alive:   func() int { return len(prompts(t, dir)) },
		Reasons: []chat.FailReason{chat.FailProgram, chat.FailRefusal},
		Usage:   true,
	})
}

// open returns a runner whose agent is this binary.
func open(t *testing.T, s script, cfg acp.Config) *acp.Runner {
	t.Helper()
	return openLogged(t, s, cfg, nil)
}

func openLogged(t *testing.T, s script, cfg acp.Config, log *slog.Logger) *acp.Runner {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Argv = self(t)
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	env := map[string]string{scriptVariable: string(text)}
	maps.Copy(env, cfg.Env)
	cfg.Env = env
	runner, err := acp.New(cfg, os.LookupEnv, log)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(runner.Close)
	return runner
}

// self returns the command of this binary.
func self(t *testing.T) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{program}
}

func ignoreSignals() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT) }

// prompts returns the marks of the prompts in processes that are alive.
func prompts(t *testing.T, dir string) (marks []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		parts := strings.Split(e.Name(), "-")
		if parts[0] != "prompt" {
			continue
		}
		if pid, err := strconv.Atoi(parts[1]); err == nil && lives(pid) {
			marks = append(marks, e.Name())
		}
	}
	return marks
}

// starts returns the session of each started process, and the ids of the processes that are alive.
func starts(t *testing.T, dir string) (all []string, living []int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "starts"))
	if err != nil {
		return nil, nil
	}
	for line := range strings.Lines(string(raw)) {
		pid, session, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, session)
		if lives(n) {
			living = append(living, n)
		}
	}
	return all, living
}

func lives(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}
