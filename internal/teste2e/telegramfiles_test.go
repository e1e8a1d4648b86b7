package teste2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"laneway/internal/testtelegram"
)

// The agent answers with a sentence and creates a picture and a text. Both have the right magic bytes.
const drawing = `#!/bin/sh
read -r question
printf '\211PNG\r\n\032\na chart of %s' "$question" >"$LANEWAY_OUTPUT_DIR/chart.png"
echo "the numbers of $question" >"$LANEWAY_OUTPUT_DIR/notes.txt"
echo "Here is the chart of $question."
`

// drawn is what Anna sees of one answer, and the files with their content.
func drawn(question string) []string {
	return []string{"Here is the chart of " + question + ".", "sendPhoto chart.png: \x89PNG\r\n\x1a\na chart of " + question, "sendDocument notes.txt: the numbers of " + question + "\n"}
}

// seen returns the content of a chat, files as METHOD NAME: CONTENT.
func (c *Chatroom) seen(chat int64) []string {
	var out []string
	for _, m := range c.Telegram.Messages(chat) {
		if m.File == nil {
			out = append(out, m.Text)
		} else {
			out = append(out, m.File.Method+" "+m.File.Name+": "+string(m.File.Content))
		}
	}
	return out
}

// wantSeen waits until everything is known to have arrived, and checks the content of a chat.
func (c *Chatroom) wantSeen(chat int64, want []string) {
	c.t.Helper()
	c.Await("all of the answer", func() bool { return len(c.seen(chat)) >= len(want) })
	c.rest()
	if got := c.seen(chat); !slices.Equal(got, want) {
		c.t.Errorf("shown are %q, want %q", got, want)
	}
}

// A chart is requested three times: undisturbed, with a kill while the second file waits for Telegram, and with a kill when Telegram has it
// and the process does not know. The sentence comes first, then the picture, then the text; only the one in flight may be duplicated.
func TestFilesReachThePersonOnceAcrossKills(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		script := filepath.Join(t.TempDir(), "draw.sh")
		if err := os.WriteFile(script, []byte(drawing), 0o700); err != nil {
			t.Fatal(err)
		}
		c := openChatroomOf(t, database, "{runner: command, command: ["+script+"]}", "    allow: [7]\n", testtelegram.Config{Drafts: true})
		c.Start()
		uploads := func(n int) func() bool {
			return func() bool { return len(c.Telegram.Calls("sendDocument")) == n }
		}

		c.Telegram.Say(anna, anna, "apples")
		want := drawn("apples")
		c.wantSeen(anna, want)

		c.Telegram.Break("sendDocument", testtelegram.Fault{Hang: true})
		c.Telegram.Say(anna, anna, "pears")
		c.Await("the second file is on its way", uploads(2))
		c.Restart()
		want = append(want, drawn("pears")...)
		c.wantSeen(anna, want)

		c.Telegram.Break("sendDocument", testtelegram.Fault{After: true, Hang: true})
		c.Telegram.Say(anna, anna, "plums")
		plums := drawn("plums")
		want = append(want, plums...)
		c.Await("the second file is shown", func() bool { return len(c.seen(anna)) == len(want) })
		c.Restart()
		want = append(want, plums[2])
		c.wantSeen(anna, want)

		o := OpenOracle(t, c.Gateway, database)
		if rows, again := o.Count("SELECT count(*) FROM outbox WHERE kind = 'reply' AND state = 'delivered'"), o.Count("SELECT count(*) FROM outbox WHERE maybe_sent = true"); rows != 9 || again != 2 {
			t.Errorf("%d outgoing messages were delivered and %d marked as possibly sent before, want 9 and 2", rows, again)
		}
		if n := o.Count("SELECT count(*) FROM transcript WHERE role = 'assistant'"); n != 3 {
			t.Errorf("the agent answered %d times", n)
		}
		for _, file := range c.attachments() { // turns leave nothing behind
			if strings.Contains(file, "/turns/") {
				t.Errorf("left is %s", file)
			}
		}
		c.Close()
	})
}

// Files of an answer that no channel sends stay: their lines name them, and the same credential fetches
// them, also after a restart.
func TestFilesOutsideOfChannelsAreFetched(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	script := filepath.Join(t.TempDir(), "draw.sh")
	if err := os.WriteFile(script, []byte(drawing), 0o700); err != nil {
		t.Fatal(err)
	}
	g := Install(t, "", "agents: {main: {runner: command, command: ["+script+"]}}\n")
	g.Start()
	answer, errs, code := g.CLI(t.Context(), "", "send", "apples")
	lines := regexp.MustCompile(`\[file: (.+), (.+), \d+ bytes, (file-[0-9a-f]+)\]`).FindAllStringSubmatch(answer, -1)
	if code != 0 || len(lines) != 2 {
		t.Fatalf("%d %s\n%s, want two lines with ids", code, errs, answer)
	}
	g.Kill()
	g.Start()
	for i, want := range []struct{ name, content string }{{"chart.png", "\x89PNG\r\n\x1a\na chart of apples"}, {"notes.txt", "the numbers of apples\n"}} {
		out, errs, code := g.CLI(t.Context(), "", "files", "get", lines[i][3], "-o", "-")
		if code != 0 || lines[i][1] != want.name || out != want.content {
			t.Errorf("%s: %d %s %q, want %q", lines[i][1], code, errs, out, want.content)
		}
		path := filepath.Join(t.TempDir(), "saved")
		if out, errs, code := g.CLI(t.Context(), "", "files", "get", lines[i][3], "-o", path); code != 0 || out != path+"\n" {
			t.Errorf("%d %s %q", code, errs, out)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != want.content {
			t.Errorf("%q %v, want %q", raw, err, want.content)
		}
		if _, errs, code := g.CLI(t.Context(), "", "files", "get", lines[i][3], "-o", path); code == 0 || !strings.Contains(errs, "exists") {
			t.Errorf("an existing file: %d %s", code, errs)
		}
	}
	if _, errs, code := g.CLI(t.Context(), "", "files", "get", lines[0][3][:len(lines[0][3])-4]+"0000"); code == 0 || !strings.Contains(errs, "removed because of its age") {
		t.Errorf("a file that is gone: %d %s", code, errs)
	}
	small, errs, code := g.CLI(t.Context(), "", "token", "create", "small", "--scope", "write", "--visible", "own")
	if code != 0 {
		t.Fatal(errs)
	}
	g.env = append(g.env, "LANEWAY_TOKEN="+strings.TrimSpace(small))
	out, errs, code := g.CLI(t.Context(), "", "files", "get", lines[0][3], "-o", "-")
	if code == 0 || out != "" || !strings.Contains(errs, "no such file") {
		t.Errorf("another credential: %d %s %q", code, errs, out)
	}
}
