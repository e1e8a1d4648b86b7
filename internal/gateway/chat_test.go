package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

type chatEvent struct {
	RunID, SessionKey, AgentID, State, DeltaText, StopReason, ErrorMessage, ErrorKind string
	Seq                                                                               int64
	Replace, Yielded                                                                  bool
	Message                                                                           *struct {
		Role    string
		Content []struct{ Type, Text string }
		Command bool
	}
}

func (e chatEvent) text() string {
	if e.Message == nil {
		return ""
	}
	return e.Message.Content[0].Text
}

func send(key, message, id string) params {
	return params{"sessionKey": key, "message": message, "idempotencyKey": id}
}

func TestSendStreamsAnswerBehindItsResponse(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.request("10", "chat.send", send("agent:main:main", "hello there you", "run-1"))
	first := s.read()
	if first.Type != "res" || first.ID != "10" || !first.OK {
		t.Fatalf("first frame is %+v %+v, want the response", first, first.Error)
	}
	if want := `{"runId":"run-1","status":"started"}`; string(first.Payload) != want {
		t.Errorf("result %s, want %s", first.Payload, want)
	}
	text, last, seq := "", int64(0), first.Seq
	for {
		f := s.read()
		if seq++; f.Seq != seq {
			t.Errorf("event %s has seq %d, want %d", f.Event, f.Seq, seq)
		}
		if f.Event != "chat" {
			continue
		}
		e := decode[chatEvent](t, f.Payload)
		if e.Seq <= last || e.RunID != "run-1" || e.SessionKey != "agent:main:main" || e.AgentID != "main" {
			t.Errorf("event %s after seq %d", f.Payload, last)
		}
		last = e.Seq
		text += e.DeltaText
		if e.State == "delta" && e.text() != text {
			t.Errorf("cumulative %q, want %q", e.text(), text)
		}
		if e.State == "final" {
			if e.text() != "hello there you" || text != "hello there you" || e.StopReason != "stop" {
				t.Errorf("final %s after deltas %q", f.Payload, text)
			}
			return
		}
	}
}

// The run may end before the call that started it has returned; the response is still sent first.
func TestResponseComesFirstHoweverFastTheRun(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *gateway.Config) { c.RequestsPerSecond, c.ChatsPerMinute = auth.Off, auth.Off }).login(adminToken)
	s.must("sessions.subscribe", nil)
	for i := range 100 {
		run := fmt.Sprintf("r%d", i)
		s.request(run, "chat.send", send("s"+run, "/id", run))
		f := s.next(func(f frame) bool { return f.Type == "res" || isEvent("chat", run)(f) || isEvent("agent", run)(f) })
		if f.Type != "res" || !f.OK {
			t.Fatalf("run %d: %s came before the response", i, f.Event)
		}
		e := decode[chatEvent](t, s.next(chatState(run, "final")).Payload)
		if e.Message == nil || !e.Message.Command {
			t.Fatalf("reply to a command: %+v", e)
		}
	}
}

func TestWaitingTurnSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken, "laneway-ext")
	s.must("chat.send", send("main", "wait first", "a"))
	b.core.untilPaused(1)
	got := s.must("chat.send", send("main", "second", "b"))
	if want := (params{"runId": "b", "status": "started", "queued": true, "position": 0.0}); !reflect.DeepEqual(got, want) {
		t.Errorf("result %v, want %v", got, want)
	}
	e := decode[chatEvent](t, s.next(chatState("b", "delta")).Payload)
	if e.DeltaText != "" || e.text() != "" || e.Message == nil {
		t.Errorf("waiting: %+v, want an empty delta with an empty message", e)
	}
	history := s.must("chat.history", params{"sessionKey": "main"})
	pending := history["pendingInputs"].(params)
	item := pending["items"].([]any)[0].(params)
	if pending["total"] != 1.0 || item["runId"] != "b" || item["state"] != "queued" || history["inFlightRun"].(params)["runId"] != "a" {
		t.Errorf("history %v", history)
	}
	b.core.proceed()
	s.next(chatState("a", "final"))
	s.next(chatState("b", "final"))
}

func TestRepeatedSendAttaches(t *testing.T) {
	t.Parallel()
	b := start(t)
	first, second := b.login(adminToken), b.login(adminToken)
	first.must("chat.send", send("main", "wait x", "k"))
	if got := second.must("chat.send", send("main", "wait x", "k")); got["status"] != "in_flight" || got["runId"] != "k" {
		t.Errorf("in flight: %v", got)
	}
	if f := second.call("chat.send", send("main", "another", "k")); f.OK || f.Error.Details["code"] != "IDEMPOTENCY_KEY_REUSED" || f.Error.Code != "INVALID_REQUEST" {
		t.Errorf("other params: %+v", f.Error)
	}
	if f := second.call("agent", params{"message": "wait x", "idempotencyKey": "k"}); f.OK || f.Error.Details["code"] != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("another method: %+v", f.Error)
	}
	// The order of members does not count as a change of the params.
	second.sendText(`{"type":"req","id":"o","method":"chat.send","params":{"idempotencyKey":"k","message":"wait x","sessionKey":"main"}}`)
	if f := second.next(func(f frame) bool { return f.ID == "o" }); !f.OK {
		t.Errorf("same params in another order: %+v", f.Error)
	}
	b.core.proceed()
	first.next(chatState("k", "final"))
	second.next(chatState("k", "final"))
	if got := second.must("chat.send", send("main", "wait x", "k")); got["status"] != "ok" {
		t.Errorf("after the end: %v", got)
	}
	second.must("chat.send", send("main", "fail", "f"))
	second.next(chatState("f", "error"))
	if got := second.must("chat.send", send("main", "fail", "f")); got["status"] != "timeout" {
		t.Errorf("after a timeout: %v", got)
	}
}

func TestAbort(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	if got := s.must("chat.abort", params{"sessionKey": "main", "preserveSideRuns": true}); got["aborted"] != false || len(got["runIds"].([]any)) != 0 || got["ok"] != true {
		t.Errorf("nothing runs: %v", got)
	}
	s.must("chat.send", send("main", "half wait rest", "a"))
	s.next(chatState("a", "delta"))
	s.must("chat.send", send("main", "second", "b"))
	if got := s.must("chat.abort", params{"sessionKey": "agent:main:other", "runId": "a"}); got["aborted"] != false {
		t.Errorf("a run of another session: %v", got)
	}
	got := s.must("chat.abort", params{"sessionKey": "main"})
	if !reflect.DeepEqual(got["runIds"], []any{"a"}) || got["aborted"] != true {
		t.Errorf("abort: %v, want the oldest running turn", got)
	}
	e := decode[chatEvent](t, s.next(chatState("a", "aborted")).Payload)
	if e.StopReason != "stop" || e.text() != "half" {
		t.Errorf("aborted %+v, want stop with the partial text", e)
	}
	s.next(chatState("b", "final"))
	s.must("chat.send", send("main", "wait", "c"))
	s.must("chat.send", send("main", "d", "d"))
	if got := s.must("chat.abort", params{"sessionKey": "main", "all": true}); len(got["runIds"].([]any)) != 2 {
		t.Errorf("all: %v", got)
	}
	s.next(chatState("c", "aborted"))
}

// Slow calls of the same socket do not delay a stop.
func TestAbortPassesSlowCalls(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.must("chat.send", send("main", "wait", "slow-turn"))
	block := make(chan struct{})
	b.core.set(func() { b.core.block = block })
	for i := range 64 {
		s.request(strconv.Itoa(i), "chat.send", send("other", "x", fmt.Sprintf("k%d", i)))
	}
	began := time.Now()
	s.must("chat.abort", params{"sessionKey": "main", "runId": "slow-turn"})
	s.next(chatState("slow-turn", "aborted"))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
	b.core.set(func() { b.core.block = nil })
	close(block)
}

func TestAgentAnswersTwice(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.request("2", "agent", params{"message": "hi wait", "idempotencyKey": "run", "timeout": 600, "lane": "team", "deliver": false})
	first := s.read()
	got := decode[map[string]any](t, first.Payload)
	if first.ID != "2" || got["status"] != "accepted" || got["runId"] != "run" || got["sessionKey"] != "agent:main:main" || got["agentId"] != "main" || got["acceptedAt"] == 0.0 {
		t.Fatalf("first %s", first.Payload)
	}
	repeat := b.login(adminToken)
	repeat.request("9", "agent", params{"message": "hi wait", "idempotencyKey": "run", "timeout": 600, "lane": "team", "deliver": false})
	if f := repeat.read(); !f.OK || f.ID != "9" {
		t.Fatalf("repeated first: %+v", f)
	}
	b.core.proceed()
	want := regexp.MustCompile(`^{"runId":"run","status":"ok","summary":"completed","result":{"payloads":\[{"text":"hi"}\],"meta":{"durationMs":\d+,"waitedMs":\d+}}}$`)
	for id, sock := range map[string]*socket{"2": s, "9": repeat} {
		if f := sock.next(func(f frame) bool { return f.Type == "res" }); f.ID != id || !want.Match(f.Payload) {
			t.Errorf("second %+v %s, want %s", f, f.Payload, want)
		}
	}
	if m := b.core.message(t, "run"); m.Lane != "team" || !m.Content.Options.NoMerge || m.Content.Options.TimeoutMs != 600_000 || m.Channel != "web" {
		t.Errorf("message %+v", m)
	}
}

func TestSecondFrameTellsHowTheRunEnded(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	second := func(id, message string) *frameError {
		t.Helper()
		s.request(id, "agent", params{"message": message, "idempotencyKey": id})
		if f := s.next(func(f frame) bool { return f.ID == id }); !f.OK {
			t.Fatalf("first frame of %s: %+v", id, f.Error)
		}
		if message == "wait" {
			s.must("chat.abort", params{"sessionKey": "main", "runId": id})
		}
		return s.next(func(f frame) bool { return f.ID == id }).Error
	}
	if e := second("t", "fail"); e == nil || e.Code != "UNAVAILABLE" || e.Retryable || !reflect.DeepEqual(e.Details, params{"code": "RUN_FAILED", "runId": "t", "status": "timeout"}) {
		t.Errorf("timeout: %+v", e)
	}
	if e := second("c", "wait"); e == nil || !reflect.DeepEqual(e.Details, params{"code": "RUN_FAILED", "runId": "c", "status": "cancelled"}) {
		t.Errorf("stopped: %+v", e)
	}
}

func TestRunEventsInBothViews(t *testing.T) {
	t.Parallel()
	b := start(t)
	watch := func(caps ...string) *socket {
		s := b.login(adminToken, caps...)
		s.must("sessions.subscribe", nil)
		return s
	}
	plain, full := watch(), watch("laneway-ext", "tool-events")
	plain.must("chat.send", send("main", "one tool two", "r"))
	agentFrames := func(s *socket) (phases []string, first json.RawMessage) {
		for {
			f := s.next(func(f frame) bool { return isEvent("agent", "r")(f) || chatState("r", "final")(f) })
			if f.Event == "chat" {
				return phases, first
			}
			e := decode[struct {
				Stream string
				Data   params
			}](t, f.Payload)
			if first == nil {
				first = f.Payload
			}
			phases = append(phases, fmt.Sprint(e.Stream, " ", e.Data["phase"], " ", e.Data["delta"], " ", e.Data["toolCallId"]))
		}
	}
	phases, first := agentFrames(plain)
	if want := []string{"lifecycle start <nil> <nil>", "assistant <nil> one <nil>", "assistant <nil>  two <nil>", "lifecycle end <nil> <nil>"}; !reflect.DeepEqual(phases, want) &&
		!reflect.DeepEqual(phases, []string{want[0], "assistant <nil> one two <nil>", want[3]}) {
		t.Errorf("standard view: %q, want %q", phases, want)
	}
	if strings.Contains(string(first), "sessionKey") || strings.Contains(string(first), "lane") {
		t.Errorf("standard view shows members that are ours: %s", first)
	}
	phases, first = agentFrames(full)
	if want := []string{"lifecycle start <nil> <nil>", "assistant <nil> one <nil>", "tool start <nil> call-1", "assistant <nil>  two <nil>", "lifecycle end <nil> <nil>"}; !reflect.DeepEqual(phases, want) {
		t.Errorf("extended view: %q, want %q", phases, want)
	}
	if e := decode[params](t, first); e["sessionKey"] != "agent:main:main" || e["agentId"] != "main" || e["lane"] != "main" {
		t.Errorf("extended view lacks members: %s", first)
	}
}

func TestEndsOfRunsOnTheWire(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.must("sessions.subscribe", nil)
	key := chat.MainKey("main")
	for _, tc := range []struct {
		ev   chat.Event
		want string
	}{
		{chat.Event{Kind: chat.EventFinal, MergedInto: "lead"}, `"state":"final","stopReason":"merged","yielded":true}`},
		{chat.Event{Kind: chat.EventAborted, Reason: "superseded"}, `"state":"aborted","stopReason":"superseded"}`},
		{chat.Event{Kind: chat.EventFailed, Reason: "queue_full", Message: "10 messages wait"}, `"state":"error","errorMessage":"queue full: 10 messages wait","errorKind":"unknown"}`},
		{chat.Event{Kind: chat.EventFailed, Reason: "dead"}, `"state":"error","errorMessage":"interrupted: the turn failed","errorKind":"unknown"}`},
		{chat.Event{Kind: chat.EventFailed, Reason: "first_byte", Message: "no answer"}, `"state":"error","errorMessage":"no answer","errorKind":"timeout"}`},
		{chat.Event{Kind: chat.EventFailed, Reason: "overloaded", Message: "busy"}, `"state":"error","errorMessage":"busy","errorKind":"rate_limit"}`},
		{chat.Event{Kind: chat.EventFailed, Reason: "context_length", Message: "long"}, `"state":"error","errorMessage":"long","errorKind":"context_length"}`},
		{chat.Event{Kind: chat.EventFailed, Reason: "refusal", Message: "no"}, `"state":"error","errorMessage":"no","errorKind":"refusal"}`},
	} {
		tc.ev.Session, tc.ev.RunID, tc.ev.Seq = key, "r", 3
		b.core.publish(tc.ev)
		f := s.next(func(f frame) bool { return f.Event == "chat" })
		if want := `{"runId":"r","sessionKey":"agent:main:main","agentId":"main","seq":3,` + tc.want; string(f.Payload) != want {
			t.Errorf("got  %s\nwant %s", f.Payload, want)
		}
	}
	b.core.publish(chat.Event{Kind: chat.EventSession, Session: key, Reason: "reset", At: time.UnixMilli(5)})
	f := s.next(func(f frame) bool { return f.Event == "sessions.changed" })
	if want := `{"sessionKey":"agent:main:main","agentId":"main","reason":"reset","ts":5}`; string(f.Payload) != want {
		t.Errorf("got %s, want %s", f.Payload, want)
	}
}

func TestWake(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(writeToken)
	p := params{"mode": "now", "text": "Backup finished", "idempotencyKey": "w1", "whatever": params{"x": 1}}
	run := s.must("wake", p)["runId"].(string)
	if again := s.must("wake", p)["runId"]; again != run {
		t.Errorf("repeated: %v, want %v", again, run)
	}
	if m := b.core.message(t, run); !m.Content.System || m.Dedupe != "write/wake/w1" || m.Session != chat.MainKey("main") {
		t.Errorf("message %+v", m)
	}
	if got := s.must("wake", params{"mode": "next-heartbeat", "text": "later", "sessionKey": "s"}); got["ok"] != true || got["runId"] != nil {
		t.Errorf("next-heartbeat: %v", got)
	}
	s.must("agent", params{"message": "now", "sessionKey": "s", "idempotencyKey": "n"})
	s.next(func(f frame) bool { return f.Type == "res" })
	all := fmt.Sprint(s.must("chat.history", params{"sessionKey": "s"})["messages"])
	if before, _, ok := strings.Cut(all, "now"); !ok || !strings.Contains(before, "later") {
		t.Errorf("the text is not before the next turn: %s", all)
	}
}

func TestDeliverNamesThePlaceOfTheSession(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	p := send("telegram:group:-100:topic:7", "x", "d1")
	p["deliver"] = true
	s.must("chat.send", p)
	s.must("agent", params{"message": "x", "idempotencyKey": "d2", "deliver": true, "channel": "telegram", "to": "4711", "accountId": "42"})
	if got, want := b.core.message(t, "d1").Content.Options.ReplyTo, (chat.Target{Channel: "telegram", ChatID: "-100", Thread: "7"}); got != want {
		t.Errorf("place of the session %+v, want %+v", got, want)
	}
	if got, want := b.core.message(t, "d2").Content.Options.ReplyTo, (chat.Target{Channel: "telegram:42", ChatID: "4711"}); got != want {
		t.Errorf("named place %+v, want %+v", got, want)
	}
}

// A repetition may be refused, or find the run ended before its last event was published. The
// earlier call still receives the events of the run.
func TestARefusedRepetitionKeepsTheEventsOfTheRun(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.must("chat.send", send("main", "wait x", "k"))
	if f := s.call("chat.send", send("main", "another", "k")); f.OK {
		t.Fatal("other params under the same key were accepted")
	}
	b.core.proceed()
	s.next(chatState("k", "final"))
}

// TestReplyToGivesTheAnsweredMessage: the agent gets what the message answers; a number of another
// conversation is refused.
func TestReplyToGivesTheAnsweredMessage(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.request("1", "chat.send", send("agent:main:main", "hello there you", "run-1"))
	for f := s.read(); f.Event != "chat" || decode[chatEvent](t, f.Payload).State != "final"; f = s.read() {
	}
	with := func(seq int, id string) params {
		p := send("agent:main:main", "and this?", id)
		p["replyTo"] = seq
		return p
	}
	for id, c := range map[string]struct {
		seq  int
		ours bool
	}{"own": {1, false}, "answer": {2, true}} {
		s.must("chat.send", with(c.seq, id))
		a := b.core.message(t, id).Content.Answered
		if a == nil || a.Ours != c.ours || a.Own == c.ours || a.Outside || !strings.Contains(a.Text, "hello there you") {
			t.Errorf("%s: answered %+v", id, a)
		}
	}
	if f := s.call("chat.send", with(99, "missing")); f.OK || !strings.Contains(f.Error.Message, "message 99") {
		t.Errorf("a number of no message: %+v", f)
	}
}

// slowAccepts is a backend that accepts a message when the test allows it, and records the order of
// its calls.
type slowAccepts struct {
	*core

	mu      sync.Mutex
	arrived []string
	came    chan string              // the text of each call
	allowed map[string]chan struct{} // by text; other messages are accepted at once
}

func (b *slowAccepts) ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	b.mu.Lock()
	b.arrived = append(b.arrived, m.Content.Text)
	b.mu.Unlock()
	b.came <- m.Content.Text
	if allowed := b.allowed[m.Content.Text]; allowed != nil {
		<-allowed
	}
	return b.core.ReceiveFrom(ctx, m, by)
}

func (b *slowAccepts) order() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.arrived)
}

func startSlow(t *testing.T, slow ...string) (*bench, *slowAccepts) {
	t.Helper()
	c := newCore(t)
	b := &slowAccepts{core: c, came: make(chan string, 256), allowed: map[string]chan struct{}{}}
	for _, text := range slow {
		b.allowed[text] = make(chan struct{})
	}
	return serve(t, c, b), b
}

func sendOf(session, text string) params {
	return params{"sessionKey": session, "message": text, "idempotencyKey": "k-" + text}
}

func TestFramesOfOneConnectionToOneSessionAreAcceptedInOrder(t *testing.T) {
	t.Parallel()
	b, backend := startSlow(t)
	s := b.login(adminToken)
	for round := range 10 {
		var want []string
		for i := range 20 {
			text := fmt.Sprintf("m%d-%d", round, i)
			want = append(want, text)
			key := "main"
			if i%2 == 1 {
				key = "agent:main:main" // the same session
			}
			s.request(text, "chat.send", sendOf(key, text))
		}
		got := make([]string, 0, len(want))
		for range want {
			got = append(got, <-backend.came)
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: accepted as %q", round, got)
		}
	}
}

func TestOnlyLaterFramesOfTheSameSessionWaitForAnAcceptance(t *testing.T) {
	t.Parallel()
	b, backend := startSlow(t, "first")
	s := b.login(adminToken)
	s.request("1", "chat.send", sendOf("main", "first"))
	s.request("2", "agent", params{"message": "second", "idempotencyKey": "k-second"}) // to the main session as well
	s.request("3", "chat.send", sendOf("other", "third"))
	s.request("4", "chat.send", sendOf("main", "/stop"))
	answered := func(id string) func(frame) bool { return func(f frame) bool { return f.ID == id } }
	s.next(answered("3"))
	if f := s.call("health", params{"probe": true}); !f.OK {
		t.Errorf("health: %+v", f.Error)
	}
	for range 3 {
		<-backend.came
	}
	got := backend.order()
	if slices.Sort(got); !slices.Equal(got, []string{"/stop", "first", "third"}) {
		t.Errorf("before the first message was accepted, the backend got %q", got)
	}
	close(backend.allowed["first"])
	if text := <-backend.came; text != "second" {
		t.Errorf("%q came after the first message", text)
	}
}
