package teste2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/signature"
	"laneway/internal/testrun"
)

// buildExample builds a program of the documentation. With -short it skips the test.
func buildExample(t *testing.T, pkg string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if err := buildProgram(program, pkg, nil); err != nil {
		t.Fatalf("building the example: %v", err)
	}
	return program
}

// serveExample starts a server of the documentation, which prints its address, and returns the
// address with its later output.
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

// The shell, Python and Go agents of the documentation run behind a gateway: each answers, fails
// with one sentence, and shows its feature.
func TestTheExamplesOfPrograms(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs("../../docs/examples")
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("there is no python3: %v", err)
	}
	g := Install(t, "", fmt.Sprintf(`agents:
  shell: {runner: command, command: [%s/agent-shell/agent.sh]}
  python: {runner: command, command: [%s, %s/agent-python/agent.py], input: json}
  go: {runner: command, command: [%s], input: json}
  without: {runner: command, command: [%s, %s/agent-python/agent.py], input: json, tools: off}
default_agent: shell
`, examples, python, examples, buildExample(t, "laneway/docs/examples/agent-go"), python, examples))
	g.Start()
	c, w, o := mustDial(t, g, nil), watch(t, g), OpenOracle(t, g, "")
	runs := 0
	ask := func(agent, text string) runEvent {
		t.Helper()
		runs++
		id := fmt.Sprintf("%s-%d", agent, runs)
		say(t, c, "agent:"+agent+":words", id, text)
		return w.await(t, id)
	}
	for _, step := range []struct{ agent, text, state, want string }{
		{"shell", "hello $(id)", "final", "You wrote: hello $(id)\nThis conversation is agent:shell:words."},
		{"shell", "fail", "error", "the disk of the build server is full"},
		{"shell", "file", "final", "Here is the file."},
		{"python", "hello", "final", "Message 1: hello"},
		{"python", "chart", "final", "Message 2: chart"},
		{"python", "fail", "error", "The calendar is locked."},
		{"python", "remind call Ada", "final", "Reminder "},
		{"without", "remind call Ada", "error", "I have no tools in this conversation"},
		{"go", "hello", "final", "hello"},
		{"go", "again", "final", "user: hello\nassistant: hello\nagain"},
		{"go", "fail", "error", "I could not reach the build server."},
		{"go", "tools", "final", "I have cron, "},
	} {
		if end := ask(step.agent, step.text); end.state != step.state || !strings.Contains(end.text, step.want) {
			t.Errorf("%s %q: %v %q, want %s with %q", step.agent, step.text, end, end.text, step.state, step.want)
		}
	}
	if n := o.Count(countReminders); n != 1 {
		t.Errorf("%d reminders, want 1", n)
	}
	for session, file := range map[string]string{"agent:shell:words": "run.txt", "agent:python:words": "Messages.csv"} {
		if text := historyOf(t, c, session); !strings.Contains(text, file) {
			t.Errorf("%s was not sent:\n%s", file, text)
		}
	}
	say(t, c, "agent:go:words", "stopped", strings.Repeat("word ", 500))
	testrun.Eventually(t, "the answer has begun", func() bool { return len(w.of("stopped")) > 3 })
	if _, err := c.Call("chat.abort", map[string]any{"sessionKey": "agent:go:words", "runId": "stopped"}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if end := w.await(t, "stopped"); end.state != "aborted" || time.Since(end.at) > 2*time.Second {
		t.Errorf("the stop: %v", end)
	}
}

// It streams, doctor finds it, a turn that runs again after a kill has the same answer, and without
// the secret it refuses.
func TestTheExampleOfAnAgentBehindHTTP(t *testing.T) {
	NeedsProcesses(t)
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
	long := strings.Repeat("word ", 100) // an answer of five seconds
	say(t, c, "agent:main:words", "killed", long)
	testrun.Eventually(t, "the answer has begun", func() bool { return len(w.of("killed")) > 3 })
	g.Kill()
	g.Start()
	c, w = mustDial(t, g, nil), watch(t, g)
	testrun.Eventually(t, "the turn has run again", func() bool {
		return strings.Contains(historyOf(t, c, "agent:main:words"), "assistant: 2: "+strings.TrimSpace(long))
	})
	say(t, c, "agent:main:words", "stopped", long)
	testrun.Eventually(t, "the answer has begun", func() bool { return len(w.of("stopped")) > 3 })
	if _, err := c.Call("chat.abort", map[string]any{"sessionKey": "agent:main:words", "runId": "stopped"}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if end := w.await(t, "stopped"); end.state != "aborted" || time.Since(end.at) > 2*time.Second {
		t.Errorf("the stop: %v", end)
	}
}

// The clients of the documentation print the answer while it is written. A gateway that is killed
// in the middle and starts again answers the same message once.
func TestTheExamplesOfClientsOutliveAKill(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	examples, err := filepath.Abs("../../docs/examples")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"javascript": {"node", "--experimental-websocket", examples + "/client-javascript/client.mjs"},
		"python":     {"python3", examples + "/client-python/client.py"},
		"go":         {buildExample(t, "laneway/docs/examples/client-go")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listen := freePort(t)
			g := Install(t, "", "agents: {main: {runner: echo, chunk: 1, chunk_delay: 150ms}}\n")
			g.args = append(g.args, "--listen", listen)
			g.Start()
			address := "ws://" + listen + "/ws"
			if name == "python" {
				address = listen
			}
			client := func(token, text string) (*exec.Cmd, *syncBuffer) {
				cmd := exec.CommandContext(withTimeout(t, time.Minute), command[0], append(command[1:], address, text)...)
				out := &syncBuffer{}
				cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANEWAY_TOKEN=" + token}, out, out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd, out
			}
			const text = "one two three four five"
			cmd, out := client(g.Token(), text)
			testrun.Eventually(t, "the answer has begun", func() bool { return strings.Contains(out.String(), "on") })
			g.Kill()
			g.Start()
			if err := cmd.Wait(); err != nil || !strings.HasSuffix(strings.TrimSpace(out.String()), text) {
				t.Errorf("%v: %q", err, out.String())
			}
			if history := historyOf(t, mustDial(t, g, nil), "agent:main:example"); strings.Count(history, "user: "+text) != 1 || strings.Count(history, "assistant: "+text) != 1 {
				t.Errorf("the conversation:\n%s", history)
			}
			cmd, out = client(g.Token(), text)
			testrun.Eventually(t, "the answer has begun", func() bool { return strings.Contains(out.String(), "on") })
			g.Kill()
			settings, err := os.ReadFile(g.config)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(g.config, bytes.Replace(settings, []byte("chunk: 1"), []byte("fail_with: refusal"), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			g.Start()
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("a turn that failed while the client was away: %v, %q", err, out.String())
			}
			cmd, out = client("wrong", text)
			if err := cmd.Wait(); err == nil || out.String() == "" {
				t.Errorf("a wrong token: %v, %q", err, out.String())
			}
		})
	}
}

// The gateway accepts the calls of the documentation's sender, once for each key; the sender
// reports a refusal.
func TestTheExampleOfAHookSenderIsTakenOnce(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	const secret = "hook-secret-Zk7Qw3Rt9Yb2Nc5Vm8Xa4"
	program := buildExample(t, "laneway/docs/examples/hook-sender")
	g := Install(t, "", "hooks:\n  deploy: {secret: "+secret+", prefix: \"Deployed: \"}\n")
	g.Start()
	send := func(hook, key, secret, body string) (string, error) {
		cmd := exec.CommandContext(withTimeout(t, time.Minute), program, g.URL()+"/hooks/"+hook, key)
		cmd.Env, cmd.Stdin = []string{"HOOK_SECRET=" + secret}, strings.NewReader(body)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var runs []string
	for i, duplicate := range []bool{false, true} {
		out, err := send("deploy", "build-42", secret, "build 42 is green\n")
		var answer struct {
			OK, Duplicate     bool
			RunID, SessionKey string
		}
		if bad := json.Unmarshal([]byte(out), &answer); err != nil || bad != nil || !answer.OK || answer.Duplicate != duplicate || answer.SessionKey != "agent:main:hook:deploy" {
			t.Fatalf("call %d: %v %v %s", i+1, err, bad, out)
		}
		runs = append(runs, answer.RunID)
	}
	if runs[0] != runs[1] {
		t.Errorf("a repetition has the run %s, the first had %s", runs[1], runs[0])
	}
	c := connect(t, g)
	testrun.Eventually(t, "the answer to the call is in the history", func() bool {
		raw, err := c.Call("chat.history", map[string]any{"sessionKey": "agent:main:hook:deploy"}, 20*time.Second)
		return err == nil && strings.Contains(string(raw), `"role":"assistant"`) && strings.Count(string(raw), `"role":"user"`) == 1 &&
			strings.Contains(string(raw), "Deployed: build 42 is green")
	})
	for _, wrong := range [][2]string{{"deploy", "another-" + secret}, {"absent", secret}} {
		if out, err := send(wrong[0], "build-43", wrong[1], "x"); err == nil || !strings.Contains(out, "refused with 401") {
			t.Errorf("hook %s: %v %s, want a refusal", wrong[0], err, out)
		}
	}
}

// delivery is a request of the gateway and the answer of the receiver.
type delivery struct {
	header http.Header
	body   []byte
	status int
}

// wiretap is a relay between gateway and receiver that records deliveries. It answers the first
// delivery itself, with a failure.
type wiretap struct {
	url string

	mu  sync.Mutex
	all []delivery
}

func (w *wiretap) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	d := delivery{header: r.Header.Clone(), body: body, status: http.StatusServiceUnavailable}
	w.mu.Lock()
	first := len(w.all) == 0
	w.mu.Unlock()
	if err == nil && !first {
		d.status, err = post(w.url, d.header, d.body)
	}
	if err != nil {
		d.status = http.StatusBadGateway
	}
	w.mu.Lock()
	w.all = append(w.all, d)
	w.mu.Unlock()
	rw.WriteHeader(d.status)
}

func (w *wiretap) deliveries() []delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]delivery{}, w.all...)
}

// post repeats a delivery.
func post(url string, header http.Header, body []byte) (int, error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = header
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// The receiver of the documentation accepts each delivery of a gateway once, and refuses modified
// recordings.
func TestTheExampleOfAWebhookReceiverTakesDeliveriesOnce(t *testing.T) {
	t.Parallel()
	const secret = "webhook-secret-Zk7Qw3Rt9Yb2Nc5Vm8"
	address, took, stop := serveExample(t, buildExample(t, "laneway/docs/examples/webhook-receiver"), "WEBHOOK_SECRET="+secret)

	tap := &wiretap{url: "http://" + address + "/"}
	between := httptest.NewServer(tap)
	defer between.Close()
	g := Install(t, "", cronConfig+"webhook_allowed_hosts: [127.0.0.1]\ncron: {webhook_secret: "+secret+"}\n")
	g.Start()
	for _, name := range []string{"digest", "another"} {
		if _, errs, code := g.CLI(t.Context(), "", "cron", "add", "--name", name, "--at", "in 1s", "--message", "said by "+name, "--webhook", between.URL); code != 0 {
			t.Fatal(errs)
		}
	}
	testrun.Eventually(t, "both are delivered, one of them at the second attempt", func() bool {
		return OpenOracle(t, g, "").Count("SELECT count(*) FROM cron_run_logs WHERE delivery = 'delivered'") == 2
	})
	all := tap.deliveries()
	if len(all) != 3 || all[1].status != http.StatusNoContent || all[2].status != http.StatusNoContent {
		t.Fatalf("%d deliveries: %+v", len(all), all)
	}
	good := all[2]
	signed := func(secret string, at time.Time, body string) http.Header {
		h := good.header.Clone()
		h.Set("X-Laneway-Signature", signature.Sign(secret, at, []byte(body)))
		return h
	}
	body := string(good.body)
	other := good.header.Clone()
	other.Set("Idempotency-Key", "another-key")
	unsigned := good.header.Clone()
	unsigned.Del("X-Laneway-Signature")
	for _, tc := range []struct {
		name   string
		header http.Header
		body   string
		want   int
	}{
		{"played again as it was", good.header, body, http.StatusOK},
		{"signed again for another attempt", signed(secret, time.Now(), body), body, http.StatusOK},
		{"played again under another key", other, body, http.StatusBadRequest},
		{"a changed body", good.header, strings.Replace(body, "said by", "SAID by", 1), http.StatusUnauthorized},
		{"an old time", signed(secret, time.Now().Add(-6*time.Minute), body), body, http.StatusUnauthorized},
		{"another secret", signed("webhook-secret-of-another-one-1234", time.Now(), body), body, http.StatusUnauthorized},
		{"no signature", unsigned, body, http.StatusUnauthorized},
	} {
		if status, err := post(tap.url, tc.header, []byte(tc.body)); err != nil || status != tc.want {
			t.Errorf("%s: %d, %v; want %d", tc.name, status, err, tc.want)
		}
	}
	if all[0].header.Get("Idempotency-Key") != all[1].header.Get("Idempotency-Key") && all[0].header.Get("Idempotency-Key") != good.header.Get("Idempotency-Key") {
		t.Error("the second attempt has another key than the first")
	}
	stop() // all its output was read
	said := strings.Split(strings.TrimSpace(took.String()), "\n")
	slices.Sort(said)
	if want := []string{`"another" ok: "said by another"`, `"digest" ok: "said by digest"`}; !slices.Equal(said, want) {
		t.Errorf("the receiver did %q, want %q", said, want)
	}
}

// After kill -9 the program of the first attempt runs on. It is ended before the second attempt
// begins.
func TestProgramOfAKilledAttemptIsEnded(t *testing.T) {
	NeedsProcesses(t)
	if runtime.GOOS != "linux" {
		t.Skip("this system cannot identify processes")
	}
	onBothStores(t, func(t *testing.T, database string) {
		file := filepath.Join(t.TempDir(), "first")
		script := `if [ "$LANEWAY_ATTEMPT" = 1 ]; then echo $$ >` + file + `; exec sleep 300; fi
			if grep -q sleep /proc/$(cat ` + file + `)/cmdline; then echo beside; else echo alone; fi`
		g := Install(t, database, fmt.Sprintf("agents: {main: {runner: command, command: [sh, -c, %q]}}\n", script))
		g.Start()
		say(t, mustDial(t, g, nil), "agent:main:killed", "killed", "hello")
		var pid int
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the program of the first attempt runs and is stored", func() bool {
			raw, err := os.ReadFile(file)
			if err == nil {
				pid, err = strconv.Atoi(strings.TrimSpace(string(raw)))
			}
			return err == nil && o.Count("SELECT count(*) FROM runs WHERE id = 'killed' AND program <> ''") == 1
		})
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it has ended when the test passes
		g.Kill()
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("the program has ended with its gateway: %v", err)
		}
		g.Start()
		c := mustDial(t, g, nil)
		testrun.Eventually(t, "the second attempt ends", func() bool { return o.Count("SELECT count(*) FROM runs WHERE id = 'killed' AND state = 'ok'") == 1 })
		if text := historyOf(t, c, "agent:main:killed"); !strings.Contains(text, "alone") { // a zombie has no command line
			t.Error(text)
		}
	})
}
