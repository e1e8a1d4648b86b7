package teste2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testpg"
)

func benchStores(b *testing.B, f func(b *testing.B, database string)) {
	b.Helper()
	b.Run("sqlite", func(b *testing.B) { f(b, "") })
	b.Run("postgres", func(b *testing.B) { f(b, testpg.DB(b)) })
}

// BenchmarkMessage sends messages one by one through the real gateway, which is otherwise idle: WebSocket, durable inbox, turn, answer. It
// reports the time to the start of the turn and to the complete answer.
func BenchmarkMessage(b *testing.B) {
	benchStores(b, func(b *testing.B, database string) {
		g := Install(b, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\n")
		g.Start()
		type mark struct {
			run   string
			final bool
			at    time.Time
		}
		marks := make(chan mark, 64)
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
			key := "b" + strconv.Itoa(i)
			sent := time.Now()
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:main:bench", "message": "hello", "idempotencyKey": key}, 10*time.Second); err != nil {
				b.Fatal(err)
			}
			for done := false; !done; {
				m := <-marks
				if m.run != key {
					continue
				}
				if done = m.final; done {
					ends = append(ends, m.at.Sub(sent))
				} else {
					starts = append(starts, m.at.Sub(sent))
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

// BenchmarkConversations runs b.N turns in 32 sessions, each of which sends its next message when the
// last one is answered, so the conversations grow. It reports turns a second and the processor time
// of the gateway for a turn.
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
			close(ch.(chan struct{})) //nolint:forcetypeassert,revive // what is stored below
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

// BenchmarkStop sends /stop while every lane is full and ten thousand messages wait. It reports the time until the running turn has ended
// and until the person has the answer.
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

// BenchmarkStart starts the gateway with an empty data directory and sends one message. It reports the time to the answer, the memory of
// the gateway after that, and the private memory after a message to each of 1,000 sessions.
func BenchmarkStart(b *testing.B) {
	benchStores(b, func(b *testing.B, database string) {
		Binary(b)
		var took []time.Duration
		var rss, private, used int
		for i := range b.N {
			g := Install(b, database, "agents: {main: {runner: echo}}\nlimits: {requests: 0}\n")
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

// privateKB returns the private memory of the gateway in KiB. It does not include pages of the binary, which the system can drop.
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
