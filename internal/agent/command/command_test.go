package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// alive returns the process ids in a file whose processes run. A zombie does not count: only its
// parent has not waited for it.
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

// ask runs a turn and returns its result. The suite checks the events.
func ask(t *testing.T, runner *command.Runner, req agent.Request) (agent.Result, error) {
	t.Helper()
	return runner.Run(t.Context(), req, func(agent.Event) {})
}

func failure(t *testing.T, err error, reason chat.FailReason) *agent.Error {
	t.Helper()
	var failed *agent.Error
	if !errors.As(err, &failed) || failed.Reason != reason {
		t.Fatalf("got %v, want an error with reason %s", err, reason)
	}
	return failed
}

// TestArgumentsArriveAsTheyAre checks that neither a shell nor a second replacement changes a
// message.
func TestArgumentsArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"$(touch /tmp/never)", "`id`", "a\nb", "--flag", "-rf", "'\"", "{session} {message}", "*", "", "日本", "%s\\n",
	} {
		runner := open(t, command.Config{Argv: []string{"printf", "%s|", "--", "x{message}y", "{session}", "{run}{agent}", "{other}"}}, nil)
		result, err := ask(t, runner, agenttest.Request(message))
		if want := "--|x" + message + "y|agent:main:main|run-1main|{other}|"; err != nil || result.Text != want {
			t.Errorf("got %q and %v, want %q", result.Text, err, want)
		}
	}
}

func TestTheMessageComesOnStandardInput(t *testing.T) {
	t.Parallel()
	want := strings.Repeat("0123456789 ", 20_000) // more than a pipe holds
	result, err := ask(t, open(t, command.Config{Argv: []string{"cat"}}, nil), agenttest.Request(want))
	if err != nil || result.Text != want {
		t.Errorf("got %d bytes and %v, want %d", len(result.Text), err, len(want))
	}
}

func TestAProgramMayLeaveItsInputUnread(t *testing.T) {
	t.Parallel()
	result, err := ask(t, shell(t, "echo done", command.Config{}), agenttest.Request(strings.Repeat("x", 200_000)))
	if err != nil || result.Text != "done\n" {
		t.Errorf("got %q and %v, want %q", result.Text, err, "done\n")
	}
}

func TestTheJSONInputHasEverything(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("now")
	req.History = []chat.TranscriptEntry{{Seq: 1, Role: chat.RoleUser, Text: "before"}}
	req.SystemPrompt, req.Model, req.Params = "be short", "m", map[string]any{"temperature": 0.5}
	req.Deadline = time.UnixMilli(1_700_000_000_000)
	runner := open(t, command.Config{Argv: []string{"cat"}, Input: command.InputJSON, Output: command.OutputText}, nil)
	result, err := ask(t, runner, req)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(result.Text), &got); err != nil {
		t.Fatalf("%q: %v", result.Text, err)
	}
	for name, want := range map[string]any{
		"session": "agent:main:main", "agent": "main", "runId": "run-1", "attempt": 1.0, "idempotencyKey": "agent:main:main/run-1",
		"systemPrompt": "be short", "model": "m", "deadlineMs": 1_700_000_000_000.0, "params": map[string]any{"temperature": 0.5},
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if text := fmt.Sprint(got["history"], got["messages"]); !strings.Contains(text, "before") || !strings.Contains(text, "now") {
		t.Errorf("history and messages: got %s", text)
	}
}

func TestTheEnvironmentIsClean(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	lookup := func(name string) (string, bool) {
		values := map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/home/x", "DATABASE_URL": "postgres://secret", "TZ": "UTC"}
		value, ok := values[name]
		return value, ok
	}
	runner, err := command.New(command.Config{Argv: []string{"env"}, Env: map[string]string{"KEY": "value", "HOME": "/srv"}}, lookup, nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := ask(t, runner, agenttest.Request("hi"))
	want := []string{
		"HOME=/srv", "KEY=value", "LANEWAY_AGENT=main", "LANEWAY_ATTEMPT=1", "LANEWAY_IDEMPOTENCY_KEY=agent:main:main/run-1",
		"LANEWAY_RUN_ID=run-1", "LANEWAY_SESSION=agent:main:main", "PATH=/usr/bin:/bin", "TZ=UTC",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(result.Text), "\n")); diff != "" || err != nil {
		t.Errorf("error %v, environment (-want +got):\n%s", err, diff)
	}
}

func TestTheSentenceOfAFailureHasTheLastLines(t *testing.T) {
	t.Parallel()
	script := "for i in 1 2 3 4 5; do echo line $i >&2; done; echo key is $KEY >&2; exit 7"
	_, err := ask(t, shell(t, script, command.Config{Env: map[string]string{"KEY": "sk-0123456789"}}), agenttest.Request("hi"))
	failed := failure(t, err, chat.FailProgram)
	if want := "The program behind this agent ended with exit code 7: line 4 / line 5 / key is [hidden]"; failed.Message != want {
		t.Errorf("sentence: got %q, want %q", failed.Message, want)
	}
	if failed.Retryable {
		t.Error("exit code 7 is retryable, want it not to be")
	}
}

func TestATemporaryFailureIsRetryable(t *testing.T) {
	t.Parallel()
	_, err := ask(t, shell(t, "exit 75", command.Config{}), agenttest.Request("hi"))
	if !failure(t, err, chat.FailProgram).Retryable {
		t.Error("exit code 75 is not retryable")
	}
}

func TestASignalIsNamed(t *testing.T) {
	t.Parallel()
	_, err := ask(t, shell(t, "kill -9 $$", command.Config{}), agenttest.Request("hi"))
	if failed := failure(t, err, chat.FailProgram); !strings.Contains(failed.Message, "signal killed") {
		t.Errorf("sentence: got %q, want the signal", failed.Message)
	}
}

func TestProgramsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plain.txt")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"unknown": "no-such-program-here", "missing": "/no/such/program", "plain file": file, "directory": "/"} {
		runner := open(t, command.Config{Argv: []string{program}}, nil)
		_, err := ask(t, runner, agenttest.Request("hi"))
		if failed := failure(t, err, chat.FailProgram); failed.Retryable || strings.Contains(failed.Message, program) && program != "/" {
			t.Errorf("%s: got %+v, want a sentence without the path, not retryable", name, failed)
		}
	}
}

func TestAMessageTooLongForAnArgument(t *testing.T) {
	t.Parallel()
	runner := open(t, command.Config{Argv: []string{"echo", "--", "{message}"}}, nil)
	_, err := ask(t, runner, agenttest.Request(strings.Repeat("x", chat.MaxText)))
	if failed := failure(t, err, chat.FailBadRequest); !strings.Contains(failed.Message, "too long") {
		t.Errorf("sentence: got %q", failed.Message)
	}
}

func TestStandardErrorGoesToTheLogAndIsLimited(t *testing.T) {
	t.Parallel()
	var raw bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&raw, &slog.HandlerOptions{Level: slog.LevelDebug}))
	script := "i=0; while [ $i -lt 500 ]; do echo noise $i >&2; i=$((i+1)); done; printf 'no end' >&2"
	file := filepath.Join(t.TempDir(), "program.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, open(t, command.Config{Argv: []string{"sh", file}}, log), agenttest.Request("hi")); err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(raw.String(), `"line":"noise`)
	if lines < 50 || lines > 200 {
		t.Errorf("got %d lines in the log, want some 50 of 500", lines)
	}
	for _, want := range []string{`"lines_left_out"`, `"session":"agent:main:main"`, `"run_id":"run-1"`} {
		if !strings.Contains(raw.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
}

func TestAWarningSaysThatADashCanBeAnOption(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		argv []string
		want bool
	}{
		{[]string{"agent", "-p", "{message}"}, true},
		{[]string{"agent", "-p", "--", "{message}"}, false},
		{[]string{"agent", "--prompt={message}"}, false},
		{[]string{"agent"}, false},
	} {
		var raw bytes.Buffer
		open(t, command.Config{Argv: tt.argv}, slog.New(slog.NewTextHandler(&raw, nil)))
		if got := strings.Contains(raw.String(), "level=WARN"); got != tt.want {
			t.Errorf("%q: warned %t, want %t", tt.argv, got, tt.want)
		}
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := command.New(command.Config{
		Argv: []string{"run-{message}", "a\x00"}, Dir: "relative", Env: map[string]string{"A=B": "1"}, Input: "xml", Output: "xml",
		MaxAnswer: -1, Grace: time.Hour,
	}, nil, nil)
	for _, want := range []string{"must not depend on {message}", "argument 1", "dir", "env", "input", "output", "max_answer", "grace"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
	if _, err := command.New(command.Config{}, nil, nil); err == nil {
		t.Error("a configuration without a program was taken")
	}
}

func ExampleRunner() {
	runner, err := command.New(command.Config{Argv: []string{"tr", "a-z", "A-Z"}}, os.LookupEnv, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := runner.Run(context.Background(), agenttest.Request("hello"), func(agent.Event) {})
	fmt.Println(result.Text, err)
	// Output: HELLO <nil>
}

func TestFilesOfAProgram(t *testing.T) {
	t.Parallel()
	const fill = `cd "$LANEWAY_OUTPUT_DIR"; echo x >b.txt; echo x >a.txt; mkdir sub; echo x >sub/deep.txt; ln -s a.txt link; mkfifo pipe; `
	for name, tt := range map[string]struct {
		script string
		text   string
		want   []chat.Attachment
	}{
		"PlainTextSendsWhatLiesThere": {fill + `echo done`, "done\n", []chat.Attachment{{Path: "a.txt"}, {Path: "b.txt"}}},
		"SoDoesNoTextAtAll":           {fill, "", []chat.Attachment{{Path: "a.txt"}, {Path: "b.txt"}}},
		"JSONLinesSendWhatTheyName": {
			fill + `echo '{"delta":"done"}'; echo '{"attach":{"path":"sub/deep.txt","name":"Deep.txt","mimeType":"text/csv"}}'; echo '{"attach":{"path":"../x"}}'`,
			"done",
			[]chat.Attachment{{Path: "sub/deep.txt", Name: "Deep.txt", MIMEType: "text/csv"}, {Path: "../x"}}, // the gateway refuses it with a sentence
		},
		"AFileMayBeTheWholeAnswer": {fill + `echo '{"attach":{"path":"b.txt"}}'`, "", []chat.Attachment{{Path: "b.txt"}}},
		"WhatIsNoFileIsShown":      {`echo '{"attach":"b.txt"}'`, "{\"attach\":\"b.txt\"}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := agenttest.Request("x")
			dir := t.TempDir()
			req.OutputDir = func() (string, error) { return dir, nil }
			got, err := ask(t, shell(t, tt.script, command.Config{}), req)
			if diff := cmp.Diff(tt.want, got.Attachments); err != nil || got.Text != tt.text || diff != "" {
				t.Errorf("text %q, %v, files (-want +got):\n%s", got.Text, err, diff)
			}
		})
	}
}

func TestAProgramWithoutADirectoryForFilesAnswersAllTheSame(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("x")
	req.OutputDir = func() (string, error) { return "", os.ErrPermission }
	got, err := ask(t, shell(t, `echo "dir: $LANEWAY_OUTPUT_DIR"`, command.Config{}), req)
	if err != nil || got.Text != "dir: \n" || got.Attachments != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}
