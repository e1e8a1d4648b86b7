package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
	"laneway/internal/wire"
)

// fakeGateway behaves like a gateway for one client: runs continue when a connection is lost, and a
// message that is sent again with its key attaches to its run. The text of a message controls it:
// `refuse`, `fail`, `hang`, `silent` (it ends without an event), `cut` (the connection is lost once
// in the middle of the answer), `gone` (lost, and ended when the client reconnects), `merge`,
// `nothing` (an empty answer); any other text is echoed.
type fakeGateway struct {
	mu      sync.Mutex
	runs    map[string]*fakeRun
	dials   int
	refuse  error // of the next dials
	calls   []string
	aborted []string

	conn      *fakeConn             // the newest connection
	entries   []wire.HistoryMessage // what others wrote, in the order of its seq
	questions []wire.Question
	answers   []string // of questions
}

// others lets another client or a job write an entry, and publishes that the session has changed.
func (g *fakeGateway) others(role, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seq := int64(len(g.entries) + 1)
	g.entries = append(g.entries, wire.HistoryMessage{Seq: seq, Role: role, RunID: fmt.Sprintf("foreign-%d", seq), Content: []wire.TextPart{{Text: text}}})
	g.conn.publish(wire.EventSessions, wire.SessionsChanged{SessionKey: "agent:main:main", Reason: "message"})
}

// release lets the runs of hang end with their answer.
func (g *fakeGateway) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, run := range g.runs {
		if run.ended == "" {
			g.conn.finish(key, run)
		}
	}
}

// ask asks a question, or closes all of them, and publishes that.
func (g *fakeGateway) ask(reason string, open ...wire.Question) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.questions = open
	g.conn.publish(wire.EventQuestions, wire.QuestionsChanged{SessionKey: "agent:main:main", Reason: reason})
}

type fakeRun struct {
	session, text string
	shown         string
	ended         string // "" while it runs
}

func newFakeGateway() *fakeGateway {
	return &fakeGateway{runs: map[string]*fakeRun{}, questions: []wire.Question{mayIRun("0b6c1f7e90a1")}}
}

// mayIRun is a question to this client, with two answers.
func mayIRun(id string) wire.Question {
	return wire.Question{
		ID: id, SessionKey: "agent:main:main", AgentID: "main", Principal: "gateway", Mine: true, Text: "run \x1b[31mls",
		Options: []wire.QuestionOption{{Label: "Allow", Allow: true}, {Label: "Deny"}}, AskedAtMs: 1, ExpiresAtMs: 2,
	}
}

func (g *fakeGateway) dial(ctx context.Context, t target) (gatewayConn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dials++
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case g.refuse != nil:
		return nil, g.refuse
	case t.Token.Reveal() == "wrong":
		return nil, errors.New("the gateway refused the credential; check --token or LANEWAY_TOKEN")
	}
	g.conn = &fakeConn{gateway: g, events: make(chan client.Event, 64)}
	return g.conn, nil
}

type fakeConn struct {
	gateway *fakeGateway
	events  chan client.Event
	lost    bool
}

func (c *fakeConn) Events() <-chan client.Event { return c.events }

func (c *fakeConn) Err() error { return client.ErrClosed }

func (c *fakeConn) Close() error {
	c.gateway.mu.Lock()
	defer c.gateway.mu.Unlock()
	c.lose()
	return nil
}

func (c *fakeConn) lose() {
	if !c.lost {
		c.lost = true
		close(c.events)
	}
}

func (c *fakeConn) Call(ctx context.Context, method string, params, result any) error {
	c.gateway.mu.Lock()
	defer c.gateway.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.lost {
		return client.ErrClosed
	}
	c.gateway.calls = append(c.gateway.calls, method)
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer, err := c.answer(method, raw)
	if err != nil {
		return err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

func (c *fakeConn) answer(method string, params json.RawMessage) (any, error) {
	switch method {
	case "chat.send":
		var p wire.ChatSendParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		return c.send(p)
	case "chat.abort":
		var p wire.ChatAbortParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		return c.abort(p), nil
	case "chat.history":
		var p wire.ChatHistoryParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		return c.history(p), nil
	case "sessions.subscribe":
		return wire.SessionsSubscribeResult{Subscribed: true}, nil
	case "commands.list":
		return json.RawMessage(`{"commands":[{"textAliases":["/stop"]},{"textAliases":["/stopall"]},{"textAliases":["/status"]}]}`), nil
	case "sessions.describe":
		if strings.Contains(string(params), "absent") {
			return json.RawMessage(`{"session":null}`), nil
		}
		return map[string]any{"session": fakeRow()}, nil
	case "sessions.list":
		return fakeSessions(params)
	case "needs.list":
		return json.RawMessage(`{"ts":1,"needs":[{"kind":"job-failing","level":"error","text":"Job digest has failed 3 times in a row: no \u001b[31mroute","next":"See why.","command":"laneway cron runs digest","jobId":"digest"}]}`), nil
	case "runs.list":
		if strings.Contains(string(params), `"lane":"`) && !strings.Contains(string(params), `"lane":"main"`) {
			return json.RawMessage(`{"ts":1,"runs":[]}`), nil
		}
		return json.RawMessage(`{"ts":1,"runs":[` + fakeTurn + `]}`), nil
	case "runs.get":
		return json.RawMessage(`{"run":` + fakeTurn + `,"tasks":[],"deliveries":[]}`), nil
	case "questions.list":
		return wire.QuestionsListResult{Questions: c.gateway.questions}, nil
	case "questions.answer":
		var p wire.QuestionsAnswerParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		c.gateway.answers = append(c.gateway.answers, fmt.Sprintf("%s %d", p.ID, p.Option))
		c.gateway.questions = nil
		return wire.QuestionsAnswerResult{OK: true, Text: "The answer is: \x1b[31mAllow."}, nil
	case "tasks.list":
		return json.RawMessage(`{"ts":1,"tasks":[` + fakeTask + `]}`), nil
	case "tasks.get":
		return json.RawMessage(`{"task":` + fakeTask + `}`), nil
	case "tasks.stop":
		return json.RawMessage(`{"ok":true,"stopped":true,"runIds":["t-1"]}`), nil
	case "sessions.reset":
		return json.RawMessage(`{"ok":true,"key":"agent:main:main","entry":{"sessionId":"s-2"}}`), nil
	case "status":
		return json.RawMessage(fakeStatus), nil
	case "lanes.status":
		return json.RawMessage(fakeLanes), nil
	case "channels.status":
		return json.RawMessage(fakeChannels), nil
	case "channels.pairing.list":
		return json.RawMessage(fakePairing), nil
	case "cron.list":
		if strings.Contains(string(params), `"query"`) || strings.Contains(string(params), `"agentId"`) {
			return json.RawMessage(`{"jobs":[]}`), nil
		}
		return json.RawMessage(`{"jobs":[{"id":"j-1","name":"digest"}]}`), nil
	case "cron.runs":
		return fakeLedger(params), nil
	case "scheduler.status":
		return json.RawMessage(`{"jobs":[{"job_name":"digest","cron_expr":"0 9 * * 1-5","timezone":"Europe/Berlin","is_paused":true,"run_count":3,"error_count":1}]}`), nil
	case "agents.list":
		return json.RawMessage(`{"defaultId":"main","agents":[{"id":"main","kind":"agent","name":"main","runner":"openai","servers":["files"],"lacks":[{"model":"m","part":"tools","said":"m does not support tools","untilMs":1}]}],` +
			`"servers":[{"name":"files","state":"failed","tools":["files_read"],"lastError":"no \u001b[31mroute"}]}`), nil
	case "health":
		return json.RawMessage(fakeHealth), nil
	default:
		return nil, errors.New("unknown method: " + method)
	}
}

// fakeSessions has two sessions and returns one on each page.
func fakeSessions(params json.RawMessage) (any, error) {
	var p struct {
		Offset int    `json:"offset"`
		Agent  string `json:"agentId"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	if p.Agent != "" && p.Agent != "main" {
		return map[string]any{"sessions": []wire.SessionRow{}, "count": 0, "totalCount": 0}, nil
	}
	page := map[string]any{"sessions": []wire.SessionRow{fakeRow()}, "count": 1, "totalCount": 2, "hasMore": p.Offset == 0, "nextOffset": nil}
	if p.Offset == 0 {
		page["nextOffset"] = 1
	}
	return page, nil
}

// fakeLedger has entries of removed jobs: one with the name `old news`, two with the name `twice`.
func fakeLedger(params json.RawMessage) any {
	var p struct {
		ID    string `json:"id"`
		Query string `json:"query"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	const oldNews = "01a2040c-57f3-74f5-8425-9f8d9b3d0e2c"
	entries := []map[string]any{}
	for _, e := range []struct{ id, name, summary string }{{oldNews, "old news", "first"}, {oldNews, "old news", "second"}, {"j2", "twice", "x"}, {"j3", "twice", "y"}, {"j4", "says old news", "z"}} {
		if (p.ID == "" || e.id == p.ID) && strings.Contains(e.name, p.Query) {
			entries = append(entries, map[string]any{"jobId": e.id, "jobName": e.name, "summary": e.summary, "outcome": "ok"})
		}
	}
	return map[string]any{"entries": entries}
}

func fakeRow() wire.SessionRow {
	return wire.SessionRow{
		Key: "agent:main:main", SessionID: "s-1", Kind: "direct", AgentID: "main", Status: "done", Lane: "main", EffectiveQueueMode: "queue",
		UpdatedAt: new(testNow().Add(-time.Minute).UnixMilli()), CreatedAt: testNow().Add(-72 * time.Hour).UnixMilli(),
		LastMessagePreview: "evil \x1b[2J answer", ActiveRunIDs: []string{},
	}
}

// testNow is the clock of commands under test.
func testNow() time.Time { return time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC) }

const (
	fakeTurn   = `{"id":"r-2","runId":"r-2","kind":"chat","sessionKey":"agent:main:main","agentId":"main","principal":"gateway","lane":"main","text":"hello","state":"waiting","waitingFor":{"cause":"lane","text":"a slot of its lane, place 4","position":4},"attempt":0,"acceptedAt":1803891540000}`
	fakeTask   = `{"id":"t-1","sessionKey":"agent:coder:task:t-1","agentId":"coder","lane":"team","parentRunId":"run-1","rootRunId":"run-1","text":"count the lines","state":"running","background":false,"createdAt":1}`
	fakeStatus = `{"ok":true,"version":"0.1.0","nodeId":"gw-1","uptimeMs":60100,"draining":false,"clients":1,"agents":1,"sessions":{"known":3,"running":1,"waiting":0},
		"cron":{"enabled":true,"jobs":2,"running":0,"backlog":0,"oldestDueMs":null,"nextWakeAtMs":1803891900000},"nodes":[{"nodeId":"n1","name":"gw-1","version":"0.1.0","draining":false,"leaseMs":13800}]}`
	fakeLanes    = `{"ts":1,"lanes":[{"name":"main","capacity":30,"active":1,"stopping":0,"yielded":0,"waiting":0,"oldestWaitMs":0,"started":41,"finished":40,"failed":1,"cancelled":0}],"drops":{}}`
	fakeChannels = `{"channelOrder":["web","telegram"],"channelAccounts":{"web":[{"accountId":"default","connected":true}],"telegram":[
		{"accountId":"family","configured":true,"running":true,"connected":false,"state":"conflict","lastError":"another \u001b[2J program polls","lastPollAgeMs":61000,"outboxWaiting":2},
		{"accountId":"work","configured":true,"running":true,"connected":true,"lastError":null,"lastPollAgeMs":null}]}}`
	fakePairing = `{"requests":[{"channel":"telegram","accountId":"default","senderId":"8","senderLabel":"Bob","createdAt":"2027-03-01T08:50:00.000Z","expiresAt":"2027-03-01T09:50:00.000Z"}],
		"granted":[{"channel":"telegram","accountId":"default","senderId":"7","senderLabel":"Anna","approvedBy":"gateway","approvedAt":"2027-02-26T09:00:00.000Z"}]}`
	fakeHealth = `{"ok":true,
		"sessions":{"path":"sqlite"},"database":{"ok":true,"latencyMs":2},"problems":["one thing"]}`
)

func (c *fakeConn) send(p wire.ChatSendParams) (wire.ChatSendResult, error) {
	if run, known := c.gateway.runs[p.IdempotencyKey]; known {
		status := run.ended
		if status == "" {
			status = "in_flight"
			c.finish(p.IdempotencyKey, run)
		}
		return wire.ChatSendResult{RunID: p.IdempotencyKey, Status: status}, nil
	}
	if p.Message == "refuse" {
		return wire.ChatSendResult{}, errors.New("the queue of the session is full (10 waiting); try again later")
	}
	run := &fakeRun{session: p.SessionKey, text: p.Message}
	c.gateway.runs[p.IdempotencyKey] = run
	half := len(p.Message) / 2
	if strings.HasPrefix(p.Message, "nothing") {
		half = 0
	}
	c.delta(p.IdempotencyKey, run, p.Message[:half])
	switch p.Message {
	case "hang":
	case "silent": // it ends, and its last event is lost
		run.ended, run.shown = "ok", p.Message
	case "cut":
		c.lose()
	case "gone", "nothing-gone":
		run.ended, run.shown = "ok", p.Message
		c.lose()
	default:
		c.finish(p.IdempotencyKey, run)
	}
	return wire.ChatSendResult{RunID: p.IdempotencyKey, Status: "started"}, nil
}

func (c *fakeConn) delta(key string, run *fakeRun, text string) {
	run.shown += text
	c.event(wire.ChatEvent{RunID: key, State: wire.ChatDelta, DeltaText: &text, Message: assistantMessage(run.shown)})
}

func (c *fakeConn) finish(key string, run *fakeRun) {
	c.event(wire.ChatEvent{RunID: "of-another-client", State: wire.ChatFinal, Message: assistantMessage("not for you")})
	run.ended = "ok"
	switch run.text {
	case "fail":
		run.ended = "error"
		c.event(wire.ChatEvent{RunID: key, State: wire.ChatError, ErrorMessage: "the model said no"})
	case "merge":
		c.event(wire.ChatEvent{RunID: key, State: wire.ChatFinal, StopReason: "merged", Yielded: true})
	case "nothing":
		m := assistantMessage("")
		m.Note = chat.EmptyAnswer("length")
		c.event(wire.ChatEvent{RunID: key, State: wire.ChatFinal, StopReason: "length", Message: m})
	default:
		run.shown = run.text
		c.event(wire.ChatEvent{RunID: key, State: wire.ChatFinal, StopReason: "stop", Message: assistantMessage(run.text)})
	}
}

func (c *fakeConn) event(e wire.ChatEvent) {
	if c.lost {
		return
	}
	c.publish(wire.EventChat, e)
}

func (c *fakeConn) publish(name string, e any) {
	payload, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	c.events <- client.Event{Name: name, Payload: payload}
}

func assistantMessage(text string) *wire.ChatMessage {
	return &wire.ChatMessage{Role: "assistant", Content: []wire.TextPart{{Type: "text", Text: text}}}
}

func (c *fakeConn) abort(p wire.ChatAbortParams) wire.ChatAbortResult {
	result := wire.ChatAbortResult{RunIDs: []string{}}
	for key, run := range c.gateway.runs {
		if run.ended == "" && (p.RunID == "" || p.RunID == key) {
			run.ended = "aborted"
			c.event(wire.ChatEvent{RunID: key, State: wire.ChatAborted, StopReason: "stop"})
			result.Aborted, result.RunIDs = true, append(result.RunIDs, key)
			c.gateway.aborted = append(c.gateway.aborted, key)
		}
	}
	return result
}

func (c *fakeConn) history(p wire.ChatHistoryParams) any {
	if p.Cursor != nil {
		var from int
		if _, err := fmt.Sscanf(*p.Cursor, "m:%d", &from); err != nil || from > len(c.gateway.entries) {
			return wire.HistoryReset{Kind: "reset"}
		}
		return wire.HistoryDelta[wire.HistoryMessage]{Kind: "delta", Messages: c.gateway.entries[from:], DeltaCursor: fmt.Sprintf("m:%d", len(c.gateway.entries))}
	}
	result := wire.HistoryPage[wire.HistoryMessage]{SessionKey: "agent:main:main", SessionID: "s-1", TotalMessages: 2, DeltaCursor: fmt.Sprintf("m:%d", len(c.gateway.entries))}
	result.Messages = []wire.HistoryMessage{{Role: "user", Content: []wire.TextPart{{Text: "earlier question"}}, Timestamp: testNow().UnixMilli()}}
	for key, run := range c.gateway.runs {
		said, stop := assistantMessage(run.shown), "stop"
		if run.text == "nothing-gone" {
			said, stop = &wire.ChatMessage{Role: "system", Content: []wire.TextPart{{Text: chat.EmptyAnswer("length")}}}, "length"
		}
		result.Messages = append(result.Messages, wire.HistoryMessage{Role: said.Role, Content: said.Content, Timestamp: said.Timestamp, RunID: key, StopReason: stop})
	}
	return result
}

// echoBackend is the backend of a real gateway: it answers every message with the same text, in two
// pieces. These commands do not call the methods that it lacks.
type echoBackend struct {
	gateway.Backend
	mu   sync.Mutex
	subs []func(chat.Event)
	idle time.Duration // how long no work has started although some is ready
}

func (p *echoBackend) Subscribe(fn func(chat.Event), _ func(chat.Event) bool) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subs = append(p.subs, fn)
	return func() {}
}

func (p *echoBackend) ReceiveFrom(_ context.Context, m chat.Message, _ chat.Caller) (chat.Receipt, error) {
	if m.Content.Text == "full" {
		return chat.Receipt{}, chat.Errorf(chat.CodeQueueFull, "the queue of the session is full")
	}
	text := m.Content.Text
	for i, ev := range []chat.Event{
		{Kind: chat.EventStarted},
		{Kind: chat.EventDelta, Delta: text[:1], Text: text[:1]},
		{Kind: chat.EventDelta, Delta: text[1:], Text: text},
		{Kind: chat.EventFinal, Text: text},
	} {
		ev.Session, ev.Principal, ev.RunID, ev.Seq, ev.At = m.Session, m.Principal, m.ID, int64(i+1), testNow()
		for _, fn := range p.subs {
			fn(ev)
		}
	}
	return chat.Receipt{RunID: m.ID, Session: m.Session, Seq: 1, AcceptedAt: testNow(), State: store.StateRunning}, nil
}

func (p *echoBackend) Transcript(context.Context, store.TranscriptQuery) (store.Transcript, error) {
	return store.Transcript{SessionID: "s"}, nil
}

func (p *echoBackend) PendingInputs(context.Context, chat.SessionKey, int64, int) ([]store.Waiting, int, error) {
	return nil, 0, nil
}

func (p *echoBackend) DefaultAgent() string                           { return "main" }
func (p *echoBackend) Audit(context.Context, chat.Audit) error        { return nil }
func (p *echoBackend) Agents() []agent.Info                           { return []agent.Info{{ID: "main", Runner: "echo"}} }
func (p *echoBackend) Commands() []chat.CommandInfo                   { return nil }
func (p *echoBackend) Progress() chat.Progress                        { return chat.Progress{StalledFor: p.idle} }
func (p *echoBackend) Channels() []chat.ChannelStatus                 { return nil }
func (p *echoBackend) Ready(context.Context) error                    { return nil }
func (p *echoBackend) InFlight(chat.SessionKey) (chat.InFlight, bool) { return chat.InFlight{}, false }

func (p *echoBackend) Lanes() chat.LanesStatus {
	return chat.LanesStatus{At: testNow(), NodeID: "gw-7", Lanes: []chat.LaneStatus{{Name: "main", Capacity: 30, Active: 2}}}
}

func (p *echoBackend) Status(context.Context) chat.SystemStatus {
	return chat.SystemStatus{NodeID: "gw-7", Version: versionOf("", "").Version, StartedAt: testNow(), Store: "sqlite", Lanes: p.Lanes()}
}

func (p *echoBackend) Session(_ context.Context, key chat.SessionKey, _ string) (chat.SessionStatus, error) {
	return chat.SessionStatus{Key: key, SessionID: "s", Principal: "gateway", Lane: "main"}, nil
}

func (p *echoBackend) Sessions(context.Context, store.SessionFilter) ([]chat.SessionStatus, int, error) {
	return []chat.SessionStatus{{Key: chat.MainKey("main"), SessionID: "s", Status: "done", Lane: "main", UpdatedAt: testNow()}}, 1, nil
}

func (p *echoBackend) Turns(_ context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	if f.Message == "none" || f.Parent != "" || !f.Before.IsZero() || f.Which == store.TurnsEnded || f.Session == chat.MainKey("idle") { // its messages are a minute old
		return nil, nil, nil
	}
	runs := store.Turn{
		ID: "r-1", Session: chat.MainKey("main"), Lane: "main", Channel: "web", Text: "hello", Principal: "gateway", State: store.RunRunning, Node: "gw-1", Attempt: 1,
		AcceptedAt: testNow().Add(-time.Minute), StartedAt: testNow().Add(-50 * time.Second),
	}
	if f.One() {
		runs.Sent = []store.Sending{{Target: chat.Target{Channel: "telegram:1", ChatID: "7"}, Kind: store.KindReply, State: store.OutPending, Attempts: 2, Error: "429"}}
		return []store.Turn{runs}, nil, nil
	}
	waits := runs
	waits.ID, waits.Session, waits.Text, waits.State, waits.Attempt, waits.StartedAt = "r-2", chat.MainKey("coder"), "and then?", store.StateWaiting, 0, time.Time{}
	return []store.Turn{runs, waits}, map[string]chat.Waiting{"r-2": {Cause: chat.WaitLane, Position: 4}}, nil
}

func (p *echoBackend) Tasks(_ context.Context, f store.TaskFilter) ([]store.Task, error) {
	if f.ID == "none" {
		return nil, nil
	}
	return []store.Task{{ID: "t-1", Session: chat.TaskKey("coder", "t-1"), Agent: "coder", Lane: "team", State: "yielded", Text: "count the lines", StartedAt: testNow()}}, nil
}

func (p *echoBackend) OpenQuestions(_ context.Context, owner string, _ int) ([]agent.OpenQuestion, error) {
	if owner != "" {
		return nil, nil // used by needs.list
	}
	return []agent.OpenQuestion{
		{
			ID: "q-1", Agent: "main", Session: chat.MainKey("main"), Principal: "gateway", AskedAt: testNow().Add(-time.Minute), ExpiresAt: testNow().Add(time.Minute),
			Question: agent.Question{Text: "run the command “ls”", Options: []agent.Option{{Label: "Allow: once", Allow: true}, {Label: "Deny"}}},
		},
		{ID: "q-2", Agent: "main", Session: chat.MainKey("main"), Principal: "telegram:1:7", Question: agent.Question{Text: "run the command “rm”"}},
	}, nil
}

func (p *echoBackend) AnswerQuestion(_ context.Context, by, id string, option int) (string, error) {
	if id != "q-1" {
		return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this")
	}
	return fmt.Sprintf("The answer of %s is %d.", by, option), nil
}

func (p *echoBackend) Stop(context.Context, store.StopParams) ([]string, error) {
	return []string{"run-1"}, nil
}

// startGateway serves a real gateway on loopback until the test ends, and returns its address.
func startGateway(t *testing.T, p *echoBackend) string {
	t.Helper()
	server, err := gateway.New(gateway.Config{
		Version:     versionOf("", "").Version,
		Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256([]byte("right")), Scopes: []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}}},
	}, p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	server.Ready()
	return "ws://" + listener.Addr().String()
}

func TestCommandsSpeakWithARealGateway(t *testing.T) {
	t.Parallel()
	address := startGateway(t, &echoBackend{})
	const wrongToken = "laneway: not authorized: the token is not the gateway's; check --token, LANEWAY_TOKEN or the token file\n"
	rows := []struct {
		name, stdin string
		args        []string
		token       string
		code        int
		stdout      string
		stderr      string
	}{
		{name: "send", args: []string{"send", "hello there"}, stdout: "hello there\n"},
		{name: "send to an agent", args: []string{"send", "hello", "--session", "work", "--agent", "main", "--json"}, stdout: `"sessionKey": "agent:main:work"`},
		{name: "refused", args: []string{"send", "full"}, code: exitFailure, stderr: "queue of the session is full"},
		{name: "chat", stdin: "one\ntwo\n", args: []string{"chat"}, stdout: "one\ntwo\n"},
		{name: "status", args: []string{"status"}, stdout: "gw-7, healthy, version"},
		{name: "agents", args: []string{"agents"}, stdout: "main (default)"},
		{name: "agents as JSON", args: []string{"agents", "--json"}, stdout: `"defaultId": "main"`},
		{name: "sessions", args: []string{"sessions", "list"}, stdout: "agent:main:main"},
		{name: "stop", args: []string{"sessions", "stop", "main"}, stdout: "stopped run-1"},
		{name: "runs", args: []string{"runs"}, stdout: "and then?  waiting  main  1m   a slot of its lane, place 4"},
		{name: "run", args: []string{"runs", "r-1"}, stdout: "reply to telegram:1 7: pending 429"},
		{name: "no runs", args: []string{"runs", "--state", "ended"}, stdout: "no runs\n"},
		{name: "no open runs", args: []string{"runs", "--session", "agent:idle:main"}, stdout: "no open runs; those that have ended: laneway runs --state ended\n"},
		{name: "why", args: []string{"why", "r-1"}, stdout: "later and worked for "},
		{name: "why none", args: []string{"why", "none"}, code: exitFailure, stderr: "there is no run or message none"},
		{name: "no run", args: []string{"runs", "none"}, code: exitFailure, stderr: "there is no run none"},
		{name: "questions", args: []string{"questions"}, stdout: "run the command “ls”  1 Allow: once, 2 Deny"},
		{name: "question of another", args: []string{"questions", "list"}, stdout: "of telegram:1:7"},
		{name: "answer", args: []string{"questions", "answer", "q-1", "2"}, stdout: "The answer of gateway is 2.\n"},
		{name: "late answer", args: []string{"questions", "answer", "q-9", "1"}, code: exitFailure, stderr: "no open question"},
		{name: "tasks", args: []string{"tasks", "list"}, stdout: "count the lines  coder  team  yielded"},
		{name: "task", args: []string{"tasks", "show", "t-1"}, stdout: "count the lines"},
		{name: "stop a task", args: []string{"tasks", "stop", "t-1"}, stdout: "stopped run-1"},
		{name: "stop of no task", args: []string{"tasks", "stop", "none"}, code: exitFailure, stderr: "there is no task none; see laneway tasks list --all"},
		{name: "no task", args: []string{"tasks", "show", "none"}, code: exitFailure, stderr: "there is no task none"},
		{name: "wrong token", args: []string{"status"}, token: "wrong", code: exitFailure, stderr: wrongToken},
		{name: "send with a wrong token", args: []string{"send", "hello"}, token: "wrong", code: exitFailure, stderr: wrongToken},
		{name: "alive", args: []string{"health"}, stdout: "ok\n"},
		{name: "ready", args: []string{"health", "--ready", "--json"}, stdout: `"database": "ok"`},
		{name: "doctor", args: []string{"doctor"}, stdout: "accepted by gw-7"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.token == "" {
				row.token = "right"
			}
			b := newBench(row.stdin, "LANEWAY_URL", address, "LANEWAY_TOKEN", row.token, "HOME", t.TempDir())
			b.env.dial = dialAs("", 0)
			b.run(t, row.code, row.args...)
			if !strings.Contains(b.stdout.String(), row.stdout) || !strings.Contains(b.stderr.String(), row.stderr) {
				t.Errorf("stdout %q\nstderr %q\nwant %q and %q", b.stdout.String(), b.stderr.String(), row.stdout, row.stderr)
			}
		})
	}
}

// This is what the health check of a container receives from a gateway that answers and makes no
// progress.
func TestHealthFailsWhenNothingStartsAnyMore(t *testing.T) {
	t.Parallel()
	address := startGateway(t, &echoBackend{idle: 31 * time.Second})
	for _, args := range [][]string{{"health"}, {"health", "--json"}} {
		b := newBench("", "LANEWAY_URL", address, "HOME", t.TempDir())
		b.run(t, exitFailure, args...)
		if said := b.stdout.String() + b.stderr.String(); !strings.Contains(said, "stalled") {
			t.Errorf("%q said %q, want the word stalled", args, said)
		}
	}
}

// A server whose certificate has no known authority receives no request, and neither does another
// machine without TLS. On a loaded machine a TLS handshake can take longer than the ten seconds of
// the commands, so the limit here is a minute.
func TestNoCommandSendsItsTokenToAnUntrustedServer(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "token"), []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const inClear = "would cross the network to 192.0.2.1 in clear; use wss://"
	for _, row := range []struct {
		name, url, token, says string
	}{
		{"a certificate of no known authority", untrusted.URL, "right", "certificate not trusted"},
		{"the same with the token of this machine", "wss" + strings.TrimPrefix(untrusted.URL, "https"), "", "certificate not trusted"},
		{"ws:// to another machine", "ws://192.0.2.1:18790", "right", inClear},
		{"http:// to another machine", "http://192.0.2.1:18790", "right", inClear},
		{"no scheme, another machine", "192.0.2.1:18790", "right", inClear},
	} {
		for _, args := range [][]string{{"status"}, {"send", "hello"}, {"cron", "list"}} {
			b := newBench("")
			values := map[string]string{"LANEWAY_URL": row.url, "LANEWAY_DATA": data, "LANEWAY_TOKEN": row.token}
			if row.token == "" {
				delete(values, "LANEWAY_TOKEN")
			}
			b.env.lookupEnv = func(name string) (string, bool) { v, found := values[name]; return v, found }
			b.env.dial = dialAs("", time.Minute)
			b.run(t, exitFailure, args...)
			if got := b.stderr.String(); !strings.Contains(got, row.says) || strings.Contains(got, "right") {
				t.Errorf("%s, %v: %q, want %q", row.name, args, got, row.says)
			}
		}
	}
	if requests.Load() != 0 {
		t.Errorf("the untrusted server got %d requests", requests.Load())
	}
}
