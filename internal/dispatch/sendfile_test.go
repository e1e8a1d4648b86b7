package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/files"
)

// sending is a runner that writes files into its directory, makes calls of send_file, and answers with their results, one in each line.
type sending struct {
	calls   []map[string]string
	twice   bool // each call is repeated with its key
	outside string
}

func (s *sending) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	dir, err := req.OutputDir()
	if err != nil {
		return agent.Result{}, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "a.txt"), []byte("from a"), 0o600),
		os.Symlink(s.outside, filepath.Join(dir, "link.txt")),
		os.WriteFile(filepath.Join(dir, "huge.bin"), []byte("x"), 0o600),
		os.Truncate(filepath.Join(dir, "huge.bin"), files.MaxFile+1),
	)
	if err != nil {
		return agent.Result{}, err
	}
	var results []string
	for i, args := range s.calls {
		raw, err := json.Marshal(args)
		if err != nil {
			return agent.Result{}, err
		}
		call := chat.ToolCall{ID: "c", Name: "send_file", Args: string(raw)}
		key := fmt.Sprintf("%s/1/%d", req.IdempotencyKey, i+1)
		results = append(results, req.Tools.Call(ctx, key, call).Text)
		if s.twice {
			results = append(results, req.Tools.Call(ctx, key, call).Text)
		}
	}
	answer := agent.NewAnswer(0, emit)
	err = answer.Append(strings.Join(results, "\n"))
	return agent.Result{Text: answer.Text(), StopReason: agent.StopNormal}, err
}

func named(path, name, text string) map[string]string {
	return map[string]string{"path": path, "name": name, "text": text}
}

func TestAToolSendsFilesOfItsTurnAndNoOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		outside := filepath.Join(t.TempDir(), "secret.txt")
		if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		runner := &sending{outside: outside, calls: []map[string]string{
			named("a.txt", "Report.txt", ""), named("", "table.csv", "a,b\n1,2\n"),
			named("../../outgoing", "", ""), named(outside, "", ""), named("link.txt", "", ""), named("huge.bin", "", ""), named("none", "", ""),
			named("", "", "x"), named("a", "b", "c"),
			{},
		}}
		h := open(t, newStore(t), opt, withRunner(runner, dispatch.Tools{Default: true}))
		end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker))
		after(10 * time.Second)
		got := strings.Split(end.Text, "\n")
		for i, part := range []string{
			"The file Report.txt is on its way.", "The file table.csv is on its way.",
			"(it is not in the directory for files)", "(it is not in the directory for files)", "(it is a link)", "(it is larger than 50 MB)", "(there is no such file)",
			"a file of a text needs a name", "give either path or text", "give either path or text",
		} {
			if i >= len(got) || !strings.Contains(got[i], part) {
				t.Errorf("call %d: got %q, want %q", i, got, part)
			}
		}
		wantList(t, "shown", h.shown(dir)[:2], []string{"Report.txt=from a", "table.csv=a,b\n1,2\n"})
		want(t, "messages", len(h.shown(dir)), 3)
		want(t, "directories of turns", storedFiles(t, dir, "turns"), 0)
		h.close()
	})
}

func TestACallThatIsMadeAgainSendsNoSecondFile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		runner := &sending{twice: true, outside: "none", calls: []map[string]string{named("a.txt", "", ""), named("", "b.txt", "text")}}
		h := open(t, newStore(t), opt, withRunner(runner, dispatch.Tools{Default: true}))
		end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker))
		after(10 * time.Second)
		wantList(t, "shown", h.shown(dir), []string{"a.txt=from a", "b.txt=text", end.Text})
		if !strings.Contains(end.Text, "the file may have been sent before") {
			t.Errorf("got %q", end.Text)
		}
		h.close()
	})
}

func TestATurnSendsAtMostTenFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		runner := &sending{outside: "none"}
		for range files.MaxFiles + 2 {
			runner.calls = append(runner.calls, named("", "f.txt", "text"))
		}
		h := open(t, newStore(t), opt, withRunner(runner, dispatch.Tools{Default: true}))
		end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker))
		after(10 * time.Second)
		want(t, "refusals", strings.Count(end.Text, "a turn sends at most 10 files"), 2)
		want(t, "messages", len(h.shown(dir)), files.MaxFiles+1)
		h.close()
	})
}

func TestWhereNoFilesAreShownTheToolIsNotOffered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt, withRunner(&sending{outside: "none", calls: []map[string]string{named("a.txt", "", "")}}, dispatch.Tools{Default: true}))
		for _, change := range []func(*chat.Message){func(*chat.Message) {}, replyTo("7")} {
			if end := h.end(h.send("agent:main:words", "go", change)); !strings.Contains(end.Text, "there is no tool send_file") {
				t.Errorf("got %q", end.Text)
			}
		}
		if end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker, external)); !strings.Contains(end.Text, "text from outside") {
			t.Errorf("in a turn of text from outside: got %q", end.Text)
		}
		want(t, "files", storedFiles(t, dir, "outgoing"), 0)
		h.close()
	})
}
