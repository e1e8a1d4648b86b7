package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway"
	"laneway/internal/wire"
)

// pipes is a listener of in-memory connections, so that the real deadlines can be tested in virtual
// time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

// bubble is a test in virtual time.
type bubble struct {
	*testing.T
	core *core
	srv  *gateway.Server
	open func() *socket // opens a client that has read the challenge
	http *http.Client
}

// virtual runs f in a bubble with a gateway that has all its real deadlines.
func virtual(t *testing.T, f func(t *bubble), change ...func(*gateway.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t)
		cfg := gateway.Config{Version: "0.1.0", Credentials: credentials()}
		for _, f := range change {
			f(&cfg)
		}
		srv, err := gateway.New(cfg, c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ctx, l) }()
		open := func() *socket {
			dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				l.conns <- there
				return here, nil
			}}
			ws, err := dialWith(&dialer, "ws://localhost/", nil)
			if err != nil {
				t.Fatal(err)
			}
			s := &socket{t: t, ws: ws, patience: time.Hour}
			s.read()
			return s
		}
		tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			l.conns <- there
			return here, nil
		}}
		f(&bubble{T: t, core: c, srv: srv, open: open, http: &http.Client{Transport: tr}})
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// pass advances virtual time.
func pass(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

func (s *socket) login(token string) *socket {
	s.send(connectFrame(token))
	if f := s.read(); !f.OK {
		s.t.Fatalf("connect: %+v", f.Error)
	}
	return s
}

func TestASilentClientIsClosedAfterFifteenSeconds(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open()
		began := time.Now()
		code, text, _ := s.closed()
		if took := time.Since(began); code != 1000 || text != "connect timeout" || took != 15*time.Second {
			t.Errorf("close %d %q after %s, want 1000 after 15s", code, text, took)
		}
	})
}

func TestTicksComeEveryThirtySeconds(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		began := time.Now()
		for i := 1; i <= 5; i++ {
			f := s.next(func(f frame) bool { return f.Event == "tick" })
			if at := time.Since(began); at != time.Duration(i)*30*time.Second {
				t.Errorf("tick %d after %s", i, at)
			}
			if ts := decode[struct{ TS int64 }](t.T, f.Payload).TS; ts != time.Now().UnixMilli() {
				t.Errorf("tick says %d, it is %d", ts, time.Now().UnixMilli())
			}
		}
		s.ws.Close()
	})
}

func TestHealthIsPublishedAtLeastEveryMinute(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		began := time.Now()
		s.next(func(f frame) bool { return f.Event == "health" })
		s.next(func(f frame) bool { return f.Event == "health" })
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("two health events took %s", took)
		}
		s.ws.Close()
	})
}

// A page that shows a hundred of ten thousand jobs requests brief events: twenty in a second, and
// the number of the remaining ones.
func TestBriefEventsAboutJobsAreBounded(t *testing.T) {
	t.Parallel()
	job := cron.Job{ID: "j", Key: "k", Name: "n", Owner: "ann", Payload: cron.Payload{Text: "a long text"}}
	run := cron.Run{
		ID: "schedule:j:1", JobID: "j", State: cron.RunError, Trigger: cron.TriggerSchedule, Error: "a long error", Summary: "a long answer", ErrorClass: "auth", ScheduledFor: time.UnixMilli(5000),
	}
	published := make(chan func(cron.Event), 1)
	virtual(t, func(t *bubble) {
		publish := <-published
		f := connectFrame(adminToken)
		f["params"].(map[string]any)["caps"] = []string{wire.CapExtended, wire.CapCronBrief}
		s := t.open()
		s.send(f)
		s.read()
		isCron := func(f frame) bool { return f.Event == "cron" }
		for _, rest := range []int{330, 0, 7} {
			for range 20 + rest {
				publish(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
			}
			for range 20 {
				var ev wire.CronEvent
				got := s.next(isCron).Payload
				if err := json.Unmarshal(got, &ev); err != nil || ev.Action != "finished" || ev.Outcome != "error" || ev.ErrorReason != "auth" || ev.ScheduledForMs != 5000 || strings.Contains(string(got), "long") {
					t.Fatalf("an event in brief: %s, %v", got, err)
				}
			}
			if rest > 0 {
				var ev wire.CronEvent
				if got := s.next(isCron).Payload; json.Unmarshal(got, &ev) != nil || ev.Action != wire.ActionMany || ev.Count != rest {
					t.Fatalf("the event about %d others: %s", rest, got)
				}
			}
			pass(time.Second)
		}
		s.ws.Close()
	}, withBook(jobEvents{publish: published}))
}

func TestPongIsMissedFortyFiveSecondsAfterTheStart(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		pinged := time.Time{}
		s.ws.SetPingHandler(func(string) error {
			if pinged.IsZero() {
				pinged = time.Now()
			}
			return nil
		})
		began := time.Now()
		for {
			_, err := s.tryRead()
			if err == nil {
				continue
			}
			var ce *websocket.CloseError
			if errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure {
				t.Errorf("closed with a frame: %v", err)
			}
			break
		}
		if ping, end := pinged.Sub(began), time.Since(pinged); ping != 20*time.Second || end != 25*time.Second {
			t.Errorf("ping after %s, end %s after it; want 20s and 25s", ping, end)
		}
	})
}

func TestStartedMessageHasThirtySeconds(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		began := time.Now()
		s.sendRaw(rawFrame(0x1, []byte(`{"type":`)))
		code, _, _ := s.closed()
		if took := time.Since(began); code != 1008 || took != 30*time.Second {
			t.Errorf("close %d after %s, want 1008 after 30s", code, took)
		}
	})
}

func TestRequestIsAnsweredWithinTwentyFiveSeconds(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		block := make(chan struct{})
		t.core.set(func() { t.core.block = block })
		began := time.Now()
		f := s.call("chat.send", send("main", "x", "k"))
		if took := time.Since(began); f.OK || f.Error.Details["code"] != "REQUEST_TIMEOUT" || took != 25*time.Second {
			t.Errorf("%+v after %s, want REQUEST_TIMEOUT after 25s", f.Error, took)
		}
		close(block)
		s.next(chatState("k", "final"))
		s.ws.Close()
	})
}

// stream publishes one delta of a run whose answer so far is text.
func stream(c *core, run string, seq int64, text, delta string) {
	c.publish(chat.Event{Kind: chat.EventDelta, Session: chat.MainKey("main"), RunID: run, Seq: seq, Text: text, Delta: delta})
}

func TestDeltasOfARunAreSpacedAndMerged(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		s.must("sessions.subscribe", nil)
		began := time.Now()
		said := make(chan struct{})
		go func() {
			defer close(said)
			text := ""
			for i := range 100 {
				text += "x"
				stream(t.core, "r", int64(i+1), text, "x")
				pass(5 * time.Millisecond) // virtual
			}
			t.core.publish(chat.Event{Kind: chat.EventFinal, Session: chat.MainKey("main"), RunID: "r", Seq: 101, Text: text})
		}()
		text, last, n := "", time.Time{}, 0
		for {
			f := s.next(func(f frame) bool { return f.Event == "chat" })
			e := decode[chatEvent](t.T, f.Payload)
			if e.State == "final" {
				break
			}
			if gap := time.Since(last); !last.IsZero() && gap < 40*time.Millisecond {
				t.Errorf("delta %d came %s after the one before", n, gap)
			}
			if n == 0 && time.Since(began) != 0 {
				t.Errorf("the first delta waited %s", time.Since(began))
			}
			text += e.DeltaText
			last = time.Now()
			n++
			if e.text() != text || e.Replace {
				t.Errorf("delta %s does not continue %q", f.Payload, text)
			}
		}
		<-said
		if len(text) != 100 || n < 10 || n > 14 {
			t.Errorf("%d characters in %d deltas, want 100 in about 13", len(text), n)
		}
		s.ws.Close()
	})
}

func TestLongTextIsSentFourTimesASecond(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		s := t.open().login(adminToken)
		s.must("sessions.subscribe", nil)
		long := strings.Repeat("x", 16<<10)
		stream(t.core, "r", 1, long, long)
		s.next(chatState("r", "delta"))
		began := time.Now()
		stream(t.core, "r", 2, long+"y", "y")
		stream(t.core, "r", 3, long+"yz", "z")
		e := decode[chatEvent](t.T, s.next(chatState("r", "delta")).Payload)
		if took := time.Since(began); took != 250*time.Millisecond || e.DeltaText != "yz" || e.Seq != 3 {
			t.Errorf("%q (seq %d) after %s, want yz after 250ms", e.DeltaText, e.Seq, took)
		}
		s.ws.Close()
	})
}

// A client that stops reading receives a close frame or is cut off. Other clients are not affected,
// and no data is missing afterwards.
func TestASlowReaderIsNotified(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		slow, quick := t.open().login(adminToken), t.open().login(adminToken)
		slow.must("sessions.subscribe", nil)
		quick.must("sessions.subscribe", nil)
		read := make(chan int, 1)
		go func() {
			n := 0
			for {
				f, err := quick.tryRead()
				if err != nil || isEvent("chat", "end")(f) {
					read <- n
					return
				}
				if f.Event == "chat" {
					n++
				}
			}
		}()
		began := time.Now()
		payload := strings.Repeat("x", 64<<10)
		for i := range 20 { // 1.25 MiB: over the limit, but not over twice the limit
			t.core.publish(chat.Event{Kind: chat.EventFinal, Session: chat.MainKey("main"), RunID: string(rune('a' + i)), Text: payload})
		}
		t.core.publish(chat.Event{Kind: chat.EventFinal, Session: chat.MainKey("main"), RunID: "end", Text: "end"})
		if n := <-read; n != 20 {
			t.Errorf("the quick reader got %d of 20 events", n)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the quick reader was held up for %s", took)
		}
		pass(20 * time.Second) // virtual; the connection must have ended by then
		_ = slow.ws.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := io.Copy(io.Discard, slow.ws.NetConn())
		if isTimeoutError(err) {
			t.Error("the slow reader is still connected after 20s")
		}
		t.open().login(adminToken).ws.Close()
		quick.ws.Close()
	}, func(c *gateway.Config) { c.MaxBuffered = 1 << 20 })
}
