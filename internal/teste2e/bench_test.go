package teste2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

func benchStores(b *testing.B, f func(b *testing.B, database string)) {
	b.Helper()
	b.Run("sqlite", func(b *testing.B) { f(b, "") })
	b.Run("postgres", func(b *testing.B) { f(b, testpg.DB(b)) })
}

// BenchmarkMessage sends messages one by one through the real gateway, which is otherwise idle:
// WebSocket, durable inbox, turn, answer. It reports the time to the start of the turn and to the
// complete answer.
func BenchmarkMessage(b *testing.B) { messages(b, 1) }

// BenchmarkBurst is BenchmarkMessage with one message to each of 32 sessions at a time.
func BenchmarkBurst(b *testing.B) { messages(b, 32) }

// messages runs b.N rounds, each of one message to each session.
func messages(b *testing.B, sessions int) {
	b.Helper()
	benchStores(b, func(b *testing.B, database string) {
		g := Install(b, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\nlanes: {main: 32}\n")
		g.Start()
		type mark struct {
			run   string
			final bool
			at    time.Time
		}
		marks := make(chan mark, 4*sessions)
		c, err := Dial(g.URL(), g.Token(), func(e Event) {
			at := time.Now()
			var p struct {
				RunID, State, Stream string
				Data                 struct{ Phase string }
			}
			if json.Unmarshal(e.Payload, &p) != nil || p.RunID == "" {
				return
			}
			switch {
			case e.Name == "agent" && p.Data.Phase == "start":
				marks <- mark{p.RunID, false, at}
			case e.Name == "chat" && p.State == "final":
				marks <- mark{p.RunID, true, at}
			}
		})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		var starts, ends []time.Duration
		b.ResetTimer()
		for i := range b.N {
			sent := map[string]time.Time{}
			var calls sync.WaitGroup
			for s := range sessions {
				key := fmt.Sprintf("b%d-%d", i, s)
				sent[key] = time.Now()
				calls.Go(func() {
					if _, err := c.Call("chat.send", map[string]any{"sessionKey": fmt.Sprintf("agent:main:bench%d", s), "message": "hello", "idempotencyKey": key}, 10*time.Second); err != nil {
						b.Error(err)
					}
				})
			}
			calls.Wait()
			for left := sessions; left > 0; {
				m := <-marks
				at, ok := sent[m.run]
				switch {
				case !ok:
				case m.final:
					ends = append(ends, m.at.Sub(at))
					left--
				default:
					starts = append(starts, m.at.Sub(at))
				}
			}
		}
		b.StopTimer()
		report(b, "start", starts)
		report(b, "answer", ends)
	})
}

func report(b *testing.B, what string, d []time.Duration) {
	b.Helper()
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	at := func(q float64) float64 { return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000 }
	b.ReportMetric(at(0.50), what+"_p50_ms")
	b.ReportMetric(at(0.99), what+"_p99_ms")
}

// BenchmarkConversations runs b.N turns in 32 sessions, each of which sends its next message when
// the last one is answered, so the conversations grow. It reports turns a second and the processor
// time of the gateway for a turn.
func BenchmarkConversations(b *testing.B) {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	b.Cleanup(model.Close)
	agents := map[string]string{"echo": "{runner: echo}", "model": fmt.Sprintf("{runner: openai, model: quick, base_url: %q}", model.URL)}
	for name, agent := range agents {
		b.Run(name, func(b *testing.B) {
			benchStores(b, func(b *testing.B, database string) {
				g := Install(b, database, fmt.Sprintf("agents: {main: %s}\nlanes: {main: 32}\nlimits: {chat: 0, requests: 0}\n", agent))
				g.Start()
				talk(b, g, 32, b.N)
			})
		})
	}
}

// BenchmarkLongConversation runs b.N turns in one session that has 1,600 entries already.
func BenchmarkLongConversation(b *testing.B) {
	benchStores(b, func(b *testing.B, database string) {
		g := Install(b, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\n")
		g.Start()
		talk(b, g, 1, 800)
		talk(b, g, 1, b.N)
	})
}

// talk runs turns in sessions, one after another in each.
func talk(b *testing.B, g *Gateway, sessions, turns int) {
	b.Helper()
	var waiting sync.Map // by run: chan struct{}
	c, err := Dial(g.URL(), g.Token(), func(e Event) {
		var p struct{ RunID, State string }
		if e.Name != "chat" || json.Unmarshal(e.Payload, &p) != nil || p.State != "final" {
			return
		}
		if ch, ok := waiting.LoadAndDelete(p.RunID); ok {
			close(ch.(chan struct{})) // what is stored below
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var all sync.WaitGroup
	var started atomic.Int64
	b.ResetTimer()
	b.StartTimer() // it may have run before
	before := cpu(b, g)
	for i := range sessions {
		all.Go(func() {
			for {
				n := started.Add(1)
				if n > int64(turns) {
					return
				}
				run, done := fmt.Sprintf("t%d-%d", turns, n), make(chan struct{})
				waiting.Store(run, done)
				if _, err := c.Call("chat.send", map[string]any{"sessionKey": fmt.Sprintf("agent:main:talk-%d", i), "message": "what is next?", "idempotencyKey": run}, time.Minute); err != nil {
					b.Error(err)
					return
				}
				select {
				case <-done:
				case <-time.After(time.Minute):
					b.Errorf("turn %s has no answer", run)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(turns)/b.Elapsed().Seconds(), "turns/s")
	b.ReportMetric(float64((cpu(b, g)-before).Microseconds())/1000/float64(turns), "cpu_ms/turn")
}

// cpu returns the processor time that the gateway has used.
func cpu(b *testing.B, g *Gateway) time.Duration {
	b.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(g.pid()), "stat"))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] { // utime and stime, 100 a second
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkStop sends /stop while every lane is full and ten thousand messages wait. It reports the
// time until the running turn has ended and until the person has the answer.
func BenchmarkStop(b *testing.B) {
	benchStores(b, func(b *testing.B, database string) {
		g := Install(b, database, fullLanesConfig)
		g.Start()
		fillLanes(b, g, 10_000)
		b.ResetTimer()
		signals, answers := stops(b, g, b.N)
		b.StopTimer()
		report(b, "signal", signals)
		report(b, "answer", answers)
		b.ReportMetric(float64(quantile(answers, 1).Microseconds())/1000, "answer_worst_ms")
	})
}

// BenchmarkStart starts the gateway with an empty data directory and sends one message. It reports
// the time to the answer, the memory of the gateway after that, and the private memory after a
// message to each of 1,000 sessions.
func BenchmarkStart(b *testing.B) {
	benchStores(b, func(b *testing.B, database string) {
		Binary(b)
		var took []time.Duration
		var rss, private, used int
		for i := range b.N {
			g := Install(b, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\n")
			began := time.Now()
			g.Start()
			c, err := Dial(g.URL(), g.Token(), nil)
			if err != nil {
				b.Fatal(err)
			}
			_, err = c.Call("agent", map[string]any{"message": "hello", "idempotencyKey": fmt.Sprintf("s%d", i)}, 10*time.Second)
			if err != nil {
				b.Fatal(err)
			}
			answered(b, c, "main")
			took = append(took, time.Since(began))
			rss, private = max(rss, residentKB(b, g)), max(private, privateKB(b, g))
			if i == b.N-1 {
				for s := range 1000 {
					key := fmt.Sprintf("used%d", s)
					if _, err := c.Call("agent", map[string]any{"sessionKey": "agent:main:" + key, "message": "hello", "idempotencyKey": key}, 10*time.Second); err != nil {
						b.Fatal(err)
					}
					answered(b, c, "agent:main:"+key)
				}
				used = privateKB(b, g)
			}
			c.Close()
			g.Kill()
		}
		report(b, "first_answer", took)
		b.ReportMetric(float64(rss)/1024, "rss_MB")
		b.ReportMetric(float64(private)/1024, "private_MB")
		b.ReportMetric(float64(used)/1024, "private_1000_sessions_MB")
	})
}

// answered waits until a session has an answer.
func answered(b *testing.B, c *Client, session string) {
	b.Helper()
	for {
		raw, err := c.Call("chat.history", map[string]any{"sessionKey": session}, 10*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		if strings.Contains(string(raw), `"assistant"`) {
			return
		}
	}
}

// residentKB returns the resident memory of the gateway in KiB.
func residentKB(b *testing.B, g *Gateway) int {
	b.Helper()
	return processKB(b, g, "VmRSS:")
}

// privateKB returns the private memory of the gateway in KiB. It does not include pages of the
// binary, which the system can drop.
func privateKB(b *testing.B, g *Gateway) int {
	b.Helper()
	return processKB(b, g, "RssAnon:")
}

// processKB reads a line of /proc/PID/status of the gateway.
func processKB(b *testing.B, g *Gateway, name string) int {
	b.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(g.pid()), "status"))
	if err != nil {
		return 0 // no /proc on this system
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// BenchmarkDueAtOnce lets b.N jobs fire together, through the real gateway with an agent that
// answers at once. It reports the delays of their turns, in the first wave after the start of the
// gateway and in later ones, and how many end in a second. All times are those of the ledger.
func BenchmarkDueAtOnce(b *testing.B) {
	for _, c := range []struct{ jobs, lane int }{{200, 30}, {2000, 128}} {
		b.Run(fmt.Sprintf("jobs=%d/lane=%d", c.jobs, c.lane), func(b *testing.B) {
			benchStores(b, func(b *testing.B, database string) { dueAtOnce(b, database, c.jobs, c.lane) })
		})
	}
}

func dueAtOnce(b *testing.B, database string, jobs, lane int) {
	b.Helper()
	const period = 10 * time.Second
	g := Install(b, database, fmt.Sprintf("agents: {main: {runner: echo}}\nlimits: {requests: 0, cron_writes: 0}\nlanes: {cron: %d}\n"+
		"cron: {max_jobs_per_owner: 0, max_runs_per_day: 0}\n", lane))
	g.Start()
	c := connect(b, g)
	for i := range jobs {
		schedule := every(period)
		schedule["anchorMs"] = time.Now().Truncate(period).UnixMilli()
		addJob(b, c, "job "+strconv.Itoa(i), schedule, nil)
	}
	c.Close()
	g.Signal(syscall.SIGTERM)
	g.WaitExit(time.Minute)
	slot := time.Now().Add(2 * period).Truncate(period)
	execute(b, writable(b, g, database), fmt.Sprintf(`UPDATE cron_jobs SET next_slot = %d, next_run_at = %[1]d WHERE owner <> 'system'`, slot.UnixMilli()))
	g.Start()
	o := OpenOracle(b, g, database)
	b.ResetTimer()
	var first, later []time.Duration
	var rate float64
	for wave := range b.N {
		at := slot.Add(time.Duration(wave) * period).UnixMilli()
		testrun.Eventually(b, "every run ends", func() bool {
			return o.Count(fmt.Sprintf(`SELECT count(*) FROM cron_run_logs WHERE scheduled_for = %d AND state = 'ok'`, at)) == jobs
		})
		for _, row := range o.Rows(fmt.Sprintf(`SELECT started_at - scheduled_for FROM cron_run_logs WHERE scheduled_for = %d`, at)) {
			ms, err := strconv.Atoi(row)
			if err != nil {
				b.Fatal(err)
			}
			if late := time.Duration(ms) * time.Millisecond; wave == 0 {
				first = append(first, late)
			} else {
				later = append(later, late)
			}
		}
		took := o.Count(fmt.Sprintf(`SELECT max(finished_at) - %d FROM cron_run_logs WHERE scheduled_for = %[1]d`, at))
		rate = max(rate, float64(jobs)*1000/float64(max(took, 1)))
	}
	b.StopTimer()
	report(b, "first", first)
	report(b, "later", later)
	b.ReportMetric(rate, "best-fires/s")
}

// BenchmarkSockets opens b.N authenticated sockets to the real gateway, and publishes one event to
// all of them. It reports memory per socket, connects per second, and the time until the last
// socket has the event. The clients run on the same machine.
func BenchmarkSockets(b *testing.B) {
	g := Install(b, "", manySockets)
	g.Start()
	token := g.Token()
	connect(b, g) // the cost of only the first connection must not be counted
	before := residentKB(b, g)
	b.ResetTimer()
	sockets := openAll(b, g, token, b.N)
	opened := b.Elapsed()
	b.StopTimer()
	each := float64(residentKB(b, g)-before) / float64(b.N)
	took := broadcast(b, g, token, sockets)
	b.ReportMetric(each, "KB/socket")
	b.ReportMetric(float64(b.N)/opened.Seconds(), "connects/s")
	b.ReportMetric(float64(took.Microseconds())/1000, "broadcast_ms")
}

const (
	streams   = 200
	tokenGap  = 20 * time.Millisecond
	stampSize = 12 // characters of a token: microseconds since the start, and a space
)

// BenchmarkStreams streams b.N tokens in each of 200 concurrent sessions, 50 a second, from a model
// over HTTP through the real gateway to 200 sockets. A token contains the time at which the model
// wrote it, so every delta shows the age of its text. The gateway deliberately waits up to 40 ms
// for more text of a run.
func BenchmarkStreams(b *testing.B) {
	base := time.Now()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { speakTokens(w, r, base, b.N) }))
	b.Cleanup(model.Close)
	g := Install(b, "", fmt.Sprintf("agents: {main: {runner: openai, model: stamps, base_url: %q, retries: 0}}\nlanes: {main: %d}\n%s", model.URL, streams, manySockets))
	g.Start()
	sockets := openAll(b, g, g.Token(), streams)
	ages := make([][]time.Duration, streams)
	var all sync.WaitGroup
	b.ResetTimer()
	for i, s := range sockets {
		all.Go(func() {
			id := "stream-" + strconv.Itoa(i)
			err := s.request("m", "chat.send", map[string]any{"sessionKey": id, "message": "go", "idempotencyKey": id})
			if err == nil {
				ages[i], err = listen(s, base)
			}
			if err != nil || len(ages[i]) != b.N {
				b.Errorf("stream %d: %d of %d tokens came with deltas: %v", i, len(ages[i]), b.N, err)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	var list []time.Duration
	for _, a := range ages {
		list = append(list, a...)
	}
	report(b, "age", list)
}

// speakTokens answers like a model that generates n tokens, one each tokenGap.
func speakTokens(w http.ResponseWriter, r *http.Request, base time.Time, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(tokenGap)
	defer tick.Stop()
	for range n {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%0*d \"}}]}\n\n", stampSize-1, time.Since(base).Microseconds())
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// listen reads a run to its end and returns the age of each token when it arrived in a delta. The
// last ones may arrive only in the final answer.
func listen(s *bare, base time.Time) ([]time.Duration, error) {
	_ = s.SetReadDeadline(time.Now().Add(2 * time.Minute))
	var ages []time.Duration
	for {
		data, err := s.next()
		if err != nil {
			return ages, err
		}
		at := time.Since(base)
		if !bytes.Contains(data, []byte(`"event":"chat"`)) {
			continue
		}
		text := string(data)
		if strings.Contains(text, `"state":"error"`) {
			return ages, fmt.Errorf("the run failed: %s", text)
		}
		stamps, final := member(text, `"deltaText":"`), strings.Contains(text, `"state":"final"`)
		if final {
			stamps = member(text, `"text":"`)
			stamps = stamps[min(len(stamps), len(ages)*stampSize):]
		}
		for stamp := range strings.FieldsSeq(stamps) {
			us, err := strconv.ParseInt(stamp, 10, 64)
			if err != nil {
				return ages, err
			}
			ages = append(ages, at-time.Duration(us)*time.Microsecond)
		}
		if final {
			return ages, nil
		}
	}
}

// member returns the text after a key, up to the quote; the tokens contain none.
func member(frame, key string) string {
	_, rest, _ := strings.Cut(frame, key)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

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

// peers are the gateways that can be started here: laneway, and PicoClaw if LANEWAY_TEST_PICOCLAW
// names its program.
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

// private returns the memory that the process has allocated, in megabytes, without the pages of
// files.
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

// BenchmarkPeersInTelegram measures gateways from outside, each with the same fake Telegram and a
// model that answers at once. It measures the time from the start of the process to the first
// answer, the private memory after the first answers, and the time of an answer to a person who
// writes alone. It also counts what happens to messages that the gateway has confirmed to Telegram,
// and whose turns run, when the process is killed and started again.
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

// killWhile kills the process while it works on this number of messages, starts it again, and
// reports how many are answered, and how many twice.
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
