package teste2e

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildExample builds a program of the documentation.
func buildExample(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", program, pkg).CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	return program
}

// serveExample starts a server of the documentation, which prints its address, and returns that with what it prints later.
func serveExample(t *testing.T, program string, env ...string) (address string, output *syncBuffer, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(withTimeout(t, 2*time.Minute), program, "127.0.0.1:0")
	cmd.Env = env
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	address, listening := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if err != nil || !listening {
		t.Fatalf("the example printed %q, %v", first, err)
	}
	output = &syncBuffer{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(output, lines)
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	return address, output, stop
}

// TestTheExampleOfAnAgentBehindHTTP: it streams, doctor finds it, a turn that runs again after a kill gets the same answer, and without the secret there is none.
func TestTheExampleOfAnAgentBehindHTTP(t *testing.T) {
	t.Parallel()
	const secret = "agent-secret-Zk7Qw3Rt9Yb2Nc5Vm8Lp4"
	address, _, _ := serveExample(t, buildExample(t, "laneway/docs/examples/agent-http"), "AGENT_SECRET="+secret)
	agents := "agents:\n  main: {runner: http, url: \"http://" + address + "/agent\", secret: " + secret + "}\n" +
		"  other: {runner: http, url: \"http://" + address + "/agent\", secret: another-" + secret + "}\n"
	g := Install(t, "", agents)
	g.Start()
	if out, _, _ := g.CLI(t.Context(), "", "doctor", "--config", g.config); !strings.Contains(out, "main: the agent at "+address+" answers and knows the secret") ||
		!strings.Contains(out, "other: the agent at "+address+" refuses the signature (401)") {
		t.Errorf("doctor found\n%s", out)
	}
	c, w := mustDial(t, g, nil), watch(t, g)
	say(t, c, "agent:main:words", "first", "one two three")
	if end := w.await(t, "first"); end.state != "final" || end.text != "1: one two three" {
		t.Errorf("the answer: %v %q", end, end.text)
	}
	if deltas := len(w.of("first")); deltas < 4 {
		t.Errorf("%d events of the run, want some before its end", deltas)
	}
	say(t, c, "agent:other:words", "refused", "hello")
	if end := w.await(t, "refused"); end.state != "error" || !strings.Contains(end.text, "refused the signature") {
		t.Errorf("without the secret: %v %q", end, end.text)
	}
	long := strings.Repeat("word ", 100) // five seconds of answer
	say(t, c, "agent:main:words", "killed", long)
	eventually(t, "the answer has begun", 30*time.Second, func() bool { return len(w.of("killed")) > 3 })
	g.Kill()
	g.Start()
	c, w = mustDial(t, g, nil), watch(t, g)
	eventually(t, "the turn has run again", 60*time.Second, func() bool {
		return strings.Contains(historyOf(t, c, "agent:main:words"), "assistant: 2: "+strings.TrimSpace(long))
	})
	say(t, c, "agent:main:words", "stopped", long)
	eventually(t, "the answer has begun", 30*time.Second, func() bool { return len(w.of("stopped")) > 3 })
	if _, err := c.Call("chat.abort", map[string]any{"sessionKey": "agent:main:words", "runId": "stopped"}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if end := w.await(t, "stopped"); end.state != "aborted" || time.Since(end.at) > 2*time.Second {
		t.Errorf("the stop: %v", end)
	}
}
