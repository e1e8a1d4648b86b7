package acp_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
	"laneway/internal/testrun"
)

// An agent that can close sessions receives session/close; the process of another agent is replaced.
func TestAResetConversationFreesTheOldSession(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"Closes": true, "EndsItsProcess": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runner := open(t, script{Blocks: true, Closes: closes, Dir: dir}, acp.Config{})
			first := look(t, runner, request("a", "run-1", "one"))
			second := look(t, runner, request("a", "run-2", "two")) // without a history
			if (first.PID == second.PID) != closes {
				t.Errorf("processes %d and %d", first.PID, second.PID)
			}
			runner.Close()
			raw, err := os.ReadFile(filepath.Join(dir, "closed"))
			if closes && (err != nil || !strings.HasPrefix(string(raw), first.Session+"\n")) {
				t.Errorf("closed %q, %v; want %s", raw, err, first.Session)
			}
			if _, living := starts(t, dir); len(living) > 0 {
				t.Errorf("%d processes live", len(living))
			}
		})
	}
}

// The session ends without a further turn: by session/close, or with its process. The next turn has another session.
func TestAConversationThatEndedFreesItsSession(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"Closes": true, "EndsItsProcess": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runner := open(t, script{Blocks: true, Closes: closes, Dir: dir}, acp.Config{})
			first := look(t, runner, request("a", "run-1", "one"))
			runner.EndSession(chat.SessionKey{Agent: "main", Rest: "other"})
			runner.EndSession(chat.SessionKey{Agent: "main", Rest: "a"})
			testrun.Eventually(t, "the session is freed", func() bool {
				raw, err := os.ReadFile(filepath.Join(dir, "closed"))
				_, living := starts(t, dir)
				return closes && err == nil && string(raw) == first.Session+"\n" || !closes && len(living) == 0
			})
			second := look(t, runner, request("a", "run-2", "two", entry(1, "run-1", chat.RoleUser, "one")))
			if (first.PID == second.PID) != closes || closes && second.Session == first.Session || len(second.Blocks) != 2 || !strings.HasSuffix(second.Blocks[0], `[{"role":"user","text":"one"}]`) {
				t.Errorf("got %+v after %+v, want another session with the history", second, first)
			}
		})
	}
}

// A session of this agent holds 4 MiB until it is closed.
func TestFiftyConversationsHoldTheMemoryOfOne(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"Closes": true, "EndsItsProcess": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runner := open(t, script{Blocks: true, Closes: closes, Holds: 4, Dir: dir}, acp.Config{})
			var first, last int64
			var opened []string
			for n := range 51 {
				session := look(t, runner, request("a", fmt.Sprint("run-", n), "begin")).Session // without a history
				opened = append(opened, session)
				all := runner.Processes()
				if all.Living != 1 {
					t.Fatalf("after %d conversations: %+v", n, all)
				}
				if n == 0 {
					first = all.Memory
				}
				last = all.Memory
			}
			if last > first+40<<20 {
				t.Errorf("%d MiB grew to %d MiB", first>>20, last>>20)
			}
			if closes {
				raw, err := os.ReadFile(filepath.Join(dir, "closed"))
				if err != nil || !slices.Equal(strings.Fields(string(raw)), opened[:50]) {
					t.Errorf("closed %q, %v; want all of %q except the last", raw, err, opened)
				}
			}
		})
	}
}

func TestAKeyAuthenticates(t *testing.T) {
	t.Parallel()
	if got, err := run(t, open(t, script{Key: "api-key", Script: agenttest.Script{Repeat: true}}, acp.Config{Auth: "api-key"}), request("a", "run", "fine")); err != nil || got.Text != "fine" {
		t.Errorf("got %q and %v", got.Text, err)
	}
	_, err := run(t, open(t, script{Key: "api-key"}, acp.Config{SignIn: "run: agent login"}), request("a", "run", "one"))
	if agent.ReasonOf(err) != chat.FailAuth || !strings.Contains(err.Error(), "run: agent login") {
		t.Errorf("got %v, want what to do", err)
	}
}

func TestFilesGoBothWays(t *testing.T) {
	t.Parallel()
	picture := "\x89PNG\r\n\x1a\n"
	files := disk{dir: t.TempDir()}
	for name, text := range map[string]string{"a.png": picture, "b c.pdf": "%PDF-1.7"} {
		if err := os.WriteFile(files.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		pictures bool
		want     []string
	}{
		"Pictures": {true, []string{"image image/png " + base64.StdEncoding.EncodeToString([]byte(picture)), "link b.pdf file://" + files.dir + "/b%20c.pdf"}},
		"Links":    {false, []string{"link a.png file://" + files.dir + "/a.png", "link b.pdf file://" + files.dir + "/b%20c.pdf"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			req := request("a", "run", "look")
			req.Files, req.OutputDir, req.Attempt = files, func() (string, error) { return out, nil }, 2
			req.Messages[0].Attachments = []chat.Attachment{{Path: "a.png", Name: "a.png", MIMEType: "image/png"}, {Path: "b c.pdf", Name: "b.pdf", MIMEType: "application/pdf"}}
			runner := open(t, script{Blocks: true, Leaves: true, Pictures: tt.pictures}, acp.Config{})
			result, err := run(t, runner, req)
			if err != nil || len(result.Attachments) != 1 || result.Attachments[0].Path != "report.txt" {
				t.Fatalf("got %+v and %v, want the file of the agent", result.Attachments, err)
			}
			blocks := look(t, runner, req).Blocks
			if len(blocks) < 4 || blocks[0] != "attempt 2: the first one ended when the gateway stopped; check what was done before you repeat it" ||
				!slices.Equal(blocks[2:4], tt.want) {
				t.Errorf("blocks %q, want the attempt, the directory and %q", blocks, tt.want)
			}
		})
	}
}

func TestQuestionsOfEarlierTurnsAreNotReplayed(t *testing.T) {
	t.Parallel()
	asked := entry(2, "question", chat.RoleAssistant, "The agent main wants to do this for you: x\nAllow it?\nWrite /allow 0123456789ab or /deny 0123456789ab within 5m.")
	command := entry(3, "command", chat.RoleUser, "/allow 0123456789ab")
	command.Command = true
	got := look(t, open(t, script{Blocks: true}, acp.Config{}), request("a", "run", "two", entry(1, "run-0", chat.RoleUser, "one"), asked, command))
	if len(got.Blocks) != 2 || !strings.HasSuffix(got.Blocks[0], `[{"role":"user","text":"one"}]`) {
		t.Errorf("got %q, want the history without the question and its answer", got.Blocks)
	}
}

// disk serves the files of a directory.
type disk struct{ dir string }

func (d disk) Path(name string) string                   { return filepath.Join(d.dir, name) }
func (d disk) Read(name string, _ int64) ([]byte, error) { return os.ReadFile(d.Path(name)) }

func TestEachSessionHasItsDirectory(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}}, acp.Config{Dir: base + "/{session}"})
	for _, session := range []string{"a", "b/../c"} {
		if _, err := run(t, runner, request(session, "run", "one")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"agent+main+a", "agent+main+b=2F..=2Fc"} {
		if info, err := os.Stat(filepath.Join(base, name)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// A new process in that directory receives the conversation so far; while the directory stays the same, the process is reused.
func TestASessionMovesToAnotherDirectory(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	s := script{Blocks: true, Loads: true, Dir: t.TempDir()}
	runner := open(t, s, acp.Config{Sessions: agenttest.NewSessions(), Dir: first})
	moved := func(n int, dir string, history ...chat.TranscriptEntry) seen {
		t.Helper()
		req := request("a", fmt.Sprintf("run-%d", n), fmt.Sprintf("said %d", n), history...)
		req.Dir = dir
		return look(t, runner, req)
	}
	at := func(dir string) string {
		t.Helper()
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	one := moved(1, "")
	two := moved(2, second, entry(1, "run-1", chat.RoleUser, "said 1"))
	if one.WD != at(first) || two.WD != at(second) || two.PID == one.PID || two.Session == one.Session || len(two.Blocks) != 2 {
		t.Errorf("got %+v after %+v, want another process with the history", two, one)
	}
	if _, living := starts(t, s.Dir); len(living) != 1 {
		t.Errorf("%d processes live, want 1", len(living))
	}
	three := moved(3, second, entry(1, "run-1", chat.RoleUser, "said 1"), entry(2, "run-2", chat.RoleUser, "said 2"))
	if three.PID != two.PID || !slices.Equal(three.Blocks, []string{"said 3"}) {
		t.Errorf("got %+v after %+v, want the same process", three, two)
	}
}

func TestAProbeDescribesTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	who, err := open(t, script{Closes: true, Pictures: true, Dir: dir}, acp.Config{}).Probe(t.Context())
	if err != nil || who.Name != "scripted" || who.Version != "7" || !slices.Equal(who.Abilities, []string{"pictures", "closing sessions"}) {
		t.Errorf("got %+v and %v", who, err)
	}
	if _, living := starts(t, dir); len(living) > 0 {
		t.Errorf("%d processes live", len(living))
	}
	if _, err := open(t, script{Unsigned: true}, acp.Config{SignIn: "run: agent login"}).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "run: agent login") {
		t.Errorf("got %v", err)
	}
}
