package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/wire"
)

// fakeGateway behaves like a gateway for one client: runs continue when a connection is lost, and a message that is sent again with its key
// attaches to its run. The text of a message controls it: `refuse`, `fail`, `hang`, `silent` (it ends without an event), `cut` (the
// connection is lost once in the middle of the answer), `gone` (lost, and ended when the client reconnects), `merge`, `nothing` (an empty
// answer); any other text is echoed.
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
		return json.RawMessage(`{"jobs":[]}`), nil
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
		Offset int `json:"offset"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
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
	entries := []map[string]any{}
	for _, e := range []struct{ id, name, summary string }{{"j1", "old news", "first"}, {"j1", "old news", "second"}, {"j2", "twice", "x"}, {"j3", "twice", "y"}, {"j4", "says old news", "z"}} {
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
