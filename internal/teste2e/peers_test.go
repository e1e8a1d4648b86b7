package teste2e

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// peer is a gateway with a bot on the fake Telegram and the fake model as its agent.
type peer struct {
	*testing.B

	telegram *testtelegram.Server
	api      string // address of the fake Telegram
	model    *testmodel.Server
	dir      string
	command  func(p *peer) *exec.Cmd
	process  *exec.Cmd
	asked    int
}

// peers are the gateways that can be started here: laneway, and PicoClaw if LANEWAY_TEST_PICOCLAW names its program.
func peers() map[string]func(p *peer) *exec.Cmd {
	all := map[string]func(p *peer) *exec.Cmd{"laneway": lanewayPeer}
	if program := os.Getenv("LANEWAY_TEST_PICOCLAW"); program != "" {
		all["PicoClaw"] = func(p *peer) *exec.Cmd { return picoClawPeer(p, program) }
	}
	return all
}

func (p *peer) write(name, text string) string {
	p.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
	return path
}

// lanewayPeer has no debounce, like the other gateways.
func lanewayPeer(p *peer) *exec.Cmd {
	program, err := buildPlain()
	if err != nil {
		p.Fatal(err)
	}
	config := p.write("laneway.yaml", fmt.Sprintf("listen: [\"127.0.0.1:0\"]\nagents: {main: {runner: openai, model: test, base_url: %q}}\n"+
		"channels: {telegram: {api_url: %q, access: open, queue: {debounce_ms: 0}}}\n", p.model.URL()+"/v1", p.api))
	cmd := exec.Command(program, "serve", "--config", config, "--data", filepath.Join(p.dir, "data"))
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH"), "TELEGRAM_TOKEN=" + p.telegram.Token()}
	return cmd
}

func picoClawPeer(p *peer, program string) *exec.Cmd {
	text, err := json.Marshal(map[string]any{
		"version":    3,
		"agents":     map[string]any{"defaults": map[string]any{"workspace": filepath.Join(p.dir, "workspace"), "model_name": "test", "max_tokens": 1000, "context_window": 131072}},
		"model_list": []any{map[string]any{"model_name": "test", "model": "openai/test", "api_keys": []string{"unused"}, "api_base": p.model.URL() + "/v1"}},
		"channel_list": map[string]any{"telegram": map[string]any{
			"enabled": true, "type": "telegram", "allow_from": []string{"*"}, "settings": map[string]any{"token": p.telegram.Token(), "base_url": p.api},
		}},
		"gateway": map[string]any{"host": "localhost", "port": 28790, "log_level": "fatal"},
	})
	if err != nil {
		p.Fatal(err)
	}
	cmd := exec.Command(program, "gateway")
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + os.Getenv("PATH"), "PICOCLAW_HOME=" + p.dir, "PICOCLAW_CONFIG=" + p.write("config.json", string(text))}
	return cmd
}

func (p *peer) start() {
	p.Helper()
	p.process = p.command(p)
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	p.process.Stdout, p.process.Stderr, p.process.Dir = log, log, p.dir
	if err := p.process.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = p.process.Process.Kill() })
}

func (p *peer) end(signal os.Signal) {
	p.Helper()
	if err := p.process.Process.Signal(signal); err != nil {
		p.Fatal(err)
	}
	_ = p.process.Wait()
}

// ask lets the next person write, and returns a function that counts their answered messages.
func (p *peer) ask() (answers func() int) {
	person, text := personOf(p.asked), fmt.Sprintf("question %04d.", p.asked)
	p.asked++
	p.telegram.AddPrivate(person, text)
	p.telegram.Say(person, person, text)
	return func() (n int) {
		for _, m := range p.telegram.Messages(person) {
			if strings.Contains(m.Text, "You said: "+text) {
				n++
			}
		}
		return n
	}
}

// await waits for an answer and returns the duration.
func (p *peer) await(what string, answers func() int) time.Duration {
	p.Helper()
	began := time.Now()
	if err := p.telegram.Await(withTimeout(p, 60*time.Second), func() bool { return answers() > 0 }); err != nil {
		log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
		var called []string
		for _, c := range p.telegram.Calls("") {
			called = append(called, fmt.Sprint(c.Method, " ", c.Code))
		}
		p.Fatalf("%s: no answer\n%v\n%v\n%s", what, p.telegram.Violations(), called, tail(string(log)))
	}
	return time.Since(began)
}

// private returns the memory that the process has allocated, in megabytes, without the pages of files.
func (p *peer) private() float64 {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.process.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Anonymous") && len(f) > 1 {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				p.Fatal(err)
			}
			sum += kb
		}
	}
	return float64(sum) / 1024
}

// BenchmarkPeersInTelegram measures gateways from outside, each with the same fake Telegram and a model that answers at once. It measures
// the time from the start of the process to the first answer, the private memory after the first answers, and the time of an answer to a
// person who writes alone. It also counts what happens to messages that the gateway has confirmed to Telegram, and whose turns run, when
// the process is killed and started again.
func BenchmarkPeersInTelegram(b *testing.B) {
	const alone, working, firstAnswers = 60, 10, 5
	for name, command := range peers() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p := &peer{B: b, telegram: testtelegram.New(testtelegram.Config{Drafts: true, Token: "123456789:" + strings.Repeat("a", 35)}), model: testmodel.Start(b), dir: b.TempDir(), command: command}
				api := httptest.NewServer(p.telegram)
				p.api = api.URL
				quick := func(call testmodel.Call) testmodel.Reply {
					return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
				}
				p.model.Answer(quick)
				first := p.ask()
				p.start()
				b.ReportMetric(float64(p.await("the first answer", first).Milliseconds()), "ms-to-first-answer")
				var took []time.Duration
				pace := time.NewTicker(100 * time.Millisecond) // an answer and its preview are two of the 30 calls that Telegram accepts in a second
				for i := range alone {
					<-pace.C
					if took = append(took, p.await("a person alone", p.ask())); i == firstAnswers {
						b.ReportMetric(p.private(), "private-MB")
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[alone/2].Microseconds())/1000, "p50-ms")
				pace.Stop()
				b.ReportMetric(float64(took[alone-1].Microseconds())/1000, "worst-ms")
				p.killWhile(working, quick)
				p.end(syscall.SIGKILL)
				api.CloseClientConnections()
				api.Close()
			}
		})
	}
}

// killWhile kills the process while it works on this number of messages, starts it again, and reports how many are answered, and how many
// twice.
func (p *peer) killWhile(working int, quick func(testmodel.Call) testmodel.Reply) {
	p.Helper()
	killed := make(chan struct{})
	p.model.Answer(func(call testmodel.Call) testmodel.Reply {
		<-killed
		return quick(call)
	})
	before := len(p.model.Calls())
	var asked []func() int
	for range working {
		asked = append(asked, p.ask())
	}
	ctx := withTimeout(p, 60*time.Second)
	if err := p.model.WaitFor(ctx, before+1, 1); err != nil {
		p.Fatal(err)
	}
	if err := p.telegram.Await(ctx, func() bool { return len(p.telegram.Pending()) == 0 }); err != nil {
		p.Fatalf("the messages are not confirmed to Telegram: %v", err)
	}
	p.end(syscall.SIGKILL)
	close(killed)
	p.model.Answer(quick)
	p.start()
	p.await("a question after the kill", p.ask())
	count := func() (answered, twice int) {
		for _, answers := range asked {
			if n := answers(); n > 0 {
				answered++
				twice += n - 1
			}
		}
		return answered, twice
	}
	_ = p.telegram.Await(withTimeout(p, 10*time.Second), func() bool { n, _ := count(); return n == working })
	answered, twice := count()
	p.ReportMetric(float64(working-answered), "lost-of-10")
	p.ReportMetric(float64(twice), "answered-twice")
}
