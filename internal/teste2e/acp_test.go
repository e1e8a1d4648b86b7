package teste2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

var allowCommand = regexp.MustCompile(`/allow [0-9a-f]{12}`)

// The example agent of the SDK, unmodified, answers a conversation of the web: it streams, its permission question is answered, another one
// is left unanswered, a turn is stopped, and the end of the gateway ends its process.
func TestAnACPAgentBehindTheWeb(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
		g := Install(t, database, "agents: {main: {runner: acp, command: ["+program+"], question_timeout: 4s}}\n")
		g.Start()
		const session = "agent:main:coder"
		c, w := mustDial(t, g, nil), watch(t, g)

		say(t, c, session, "answered", "change the configuration")
		var answer string
		testrun.Eventually(t, "the agent asks", func() bool {
			answer = allowCommand.FindString(historyOf(t, c, session))
			return answer != ""
		})
		if text := historyOf(t, c, session); !strings.Contains(text, "wants to do this for you: change the file “/home/user/project/config.json” in the directory “") ||
			!strings.Contains(text, ", with the tool “Modifying critical configuration file”") || !strings.Contains(text, answer+" (Allow: this change) or /deny ") || !strings.Contains(text, "within 4s") {
			t.Errorf("the question is\n%s", text)
		}
		if _, ended := w.end("answered"); ended {
			t.Error("the turn did not wait for its answer")
		}
		say(t, c, session, "the-answer", answer)
		if end := w.await(t, "answered"); end.state != "final" || !strings.Contains(end.text, "project structure") || !strings.HasSuffix(end.text, "The changes have been applied.") {
			t.Errorf("with the permission: %v %q", end, end.text)
		}
		deltas := 0
		for _, e := range w.of("answered") {
			if e.name == "chat" && e.state == "delta" {
				deltas++
			}
		}
		if deltas < 3 {
			t.Errorf("%d deltas, want a stream", deltas)
		}
		say(t, c, session, "again", answer)
		if end := w.await(t, "again"); end.text != "The answer is: Allow: this change." {
			t.Errorf("the same answer again got %q", end.text)
		}
		say(t, c, session, "other", strings.Replace(answer, "/allow", "/deny", 1))
		if end := w.await(t, "other"); !strings.Contains(end.text, "no open question") {
			t.Errorf("another answer got %q", end.text)
		}

		say(t, c, session, "unanswered", "change it again")
		if end := w.await(t, "unanswered"); end.state != "final" || !strings.Contains(end.text, "I understand you prefer not to make that change") {
			t.Errorf("without an answer: %v %q", end, end.text)
		}
		testrun.Eventually(t, "the end of the question is reported", func() bool {
			return strings.Count(historyOf(t, c, session), "No answer came within 4s, so the agent main may not: ") == 1
		})

		say(t, c, session, "stopped", "once more")
		testrun.Eventually(t, "the turn has begun to answer", func() bool { return len(w.of("stopped")) > 2 })
		start := time.Now()
		if _, err := c.Call("chat.abort", map[string]any{"sessionKey": session, "runId": "stopped"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if end := w.await(t, "stopped"); end.state != "aborted" || time.Since(start) > 3*time.Second {
			t.Errorf("the stop: %v after %s", end, time.Since(start))
		}
		if n := processesOf(t, program); n != 1 {
			t.Errorf("%d processes of the agent, want the one of the session", n)
		}
		g.Kill()
		testrun.Eventually(t, "the agent has ended with its gateway", func() bool { return processesOf(t, program) == 0 })
	})
}

// processesOf counts the processes of a program.
func processesOf(t *testing.T, program string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == program {
			n++
		}
	}
	return n
}
