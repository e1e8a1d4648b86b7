package command_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/command"
	"laneway/internal/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContractWithPlainText(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	agenttest.Run(t, subject(t, plain, false))
}

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContractWithJSONLines(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	agenttest.Run(t, subject(t, jsonLines, true))
}

func subject(t *testing.T, program func(agenttest.Script) string, usage bool) agenttest.Subject {
	t.Helper()
	pids := filepath.Join(t.TempDir(), "pids")
	return agenttest.Subject{
		Open: func(t *testing.T, script agenttest.Script) agent.Runner {
			t.Helper()
			return shell(t, fmt.Sprintf("echo $$ >>'%s'\n%s", pids, program(script)), command.Config{MaxAnswer: script.MaxAnswer})
		},
		Alive:   func() int { return len(alive(t, pids)) },
		Reasons: []chat.FailReason{chat.FailProgram},
		Usage:   usage,
		Files:   true,
	}
}

// plain returns a shell program that writes the pieces unchanged, each with a separate write.
func plain(script agenttest.Script) string {
	var out strings.Builder
	if script.Repeat {
		return "cat"
	}
	for _, piece := range script.Pieces {
		out.WriteString("printf '")
		for i := range len(piece) {
			fmt.Fprintf(&out, `\%03o`, piece[i])
		}
		out.WriteString("'\n")
	}
	for _, name := range script.Files {
		fmt.Fprintf(&out, "printf '%%s' '%s' >\"$LANEWAY_OUTPUT_DIR/%s\"\n", name, name)
	}
	return out.String() + ending(script)
}

// jsonLines returns a shell program that writes the same as JSON lines.
func jsonLines(script agenttest.Script) string {
	if script.Repeat {
		return `read -r line; printf '{"delta":"%s"}\n{"usage":{"inputTokens":1,"output_tokens":2}}\n' "$line"`
	}
	var out strings.Builder
	text := script.Text()
	pieces := script.Pieces
	if len(pieces) > 0 && len(pieces) == len(text) { // single bytes are not valid JSON strings
		pieces = strings.Split(text, "")
	}
	for _, piece := range pieces {
		fmt.Fprintf(&out, "cat <<'EOF'\n{\"delta\":%s}\nEOF\n", jsonText(piece))
	}
	for _, name := range script.Files {
		fmt.Fprintf(&out, "printf '%%s' '%s' >\"$LANEWAY_OUTPUT_DIR/%s\"\necho '{\"attach\":{\"path\":\"%s\"}}'\n", name, name, name)
	}
	out.WriteString(`echo '{"usage":{"inputTokens":3,"outputTokens":4,"model":"m"}}'` + "\n")
	return out.String() + ending(script)
}

func jsonText(s string) string {
	return strings.ReplaceAll(strconv.Quote(s), `\x`, `\u00`)
}

func ending(script agenttest.Script) string {
	switch {
	case script.Hang:
		return "sleep 1000 & wait\n"
	case script.Fail != "":
		return "echo it went wrong >&2\nexit 3\n"
	default:
		return ""
	}
}

// shell returns a runner whose program is a shell script.
func shell(t *testing.T, script string, cfg command.Config) *command.Runner {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Argv = append([]string{"sh", file}, cfg.Argv...)
	return open(t, cfg, nil)
}

func open(t *testing.T, cfg command.Config, log *slog.Logger) *command.Runner {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	runner, err := command.New(cfg, os.LookupEnv, log)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return runner
}

// alive returns the process ids in a file whose processes run. A zombie does not count: only its parent has not waited for it.
func alive(t *testing.T, file string) []int {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil // no program has begun
	}
	var living []int
	for word := range strings.FieldsSeq(string(raw)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("%q is no process id", word)
		}
		if lives(pid) {
			living = append(living, pid)
		}
	}
	return living
}

func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}
