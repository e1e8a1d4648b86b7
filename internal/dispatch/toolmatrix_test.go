package dispatch_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/tool"
)

// matrixChannel is a kind of turn in the matrix: the principal, the session and the address of its
// messages. job: the turn belongs to a job of the private chat.
type matrixChannel struct {
	name, session, principal, channel string
	to                                chat.Target
	job                               bool
}

func matrixChannels() []matrixChannel {
	person := func(chatID, thread string) chat.Target {
		return chat.Target{Channel: "asker", ChatID: chatID, Thread: thread}
	}
	return []matrixChannel{
		{name: "web", session: "agent:main:web", principal: "ann", channel: "web"},
		{name: "private", session: "agent:main:asker:direct:7", principal: "asker:7", channel: "asker", to: person("7", "")},
		{name: "group", session: "agent:main:asker:group:-5", principal: "asker:7", channel: "asker", to: person("-5", "")},
		{name: "topic", session: "agent:main:asker:group:-6:topic:3", principal: "asker:7", channel: "asker", to: person("-6", "3")},
		{name: "/v1", session: "agent:main:api:ann:phone", principal: "ann", channel: "api"},
		{name: "job", session: "agent:main:asker:direct:7", principal: "asker:7", channel: "asker", to: person("7", ""), job: true},
	}
}

func (c matrixChannel) message(m *chat.Message) {
	m.Principal, m.Channel, m.Scope, m.Content.Options.ReplyTo = c.principal, c.channel, chat.ScopeWrite, c.to
	if at := strings.LastIndexByte(c.principal, ':'); at > 0 {
		m.Content.Sender.ID = c.principal[at+1:]
	}
}

// The results of a cell.
const (
	cellDelivers = 'D' // the call is executed
	cellAsks     = 'A' // the person is asked, and the call is executed when they allow it
	cellRefuses  = 'R' // the model receives the reason
	cellBroken   = '!' // anything else
)

// matrixRow is a call and the expected results in the order of matrixChannels. OTHER is another
// session of the principal, JOB a job of the principal whose answers go to the conversation, AWAY a
// job whose answers go elsewhere.
type matrixRow struct{ call, want string }

func matrixRows() []matrixRow {
	return []matrixRow{
		{`remind {"when":"in 2h","text":"tea"}`, "DDAADR"},
		{`remind {"when":"when pigs fly","text":"tea"}`, "RRRRRR"},
		{`cron {"action":"list"}`, "DDDDDD"},
		{`cron {"action":"list","everywhere":true}`, "DDAADD"},
		{`cron {"action":"add","when":"every 2h","text":"look"}`, "DDAADR"},
		{`cron {"action":"preview","when":"every 2h"}`, "DDDDDD"},
		{`cron {"action":"update","id":"JOB","text":"look again"}`, "DDAADR"},
		{`cron {"action":"pause","id":"JOB"}`, "DDAADR"},
		{`cron {"action":"resume","id":"JOB"}`, "DDAADR"},
		{`cron {"action":"run","id":"JOB"}`, "DDAADR"},
		{`cron {"action":"runs","id":"JOB"}`, "DDDDDD"},
		{`cron {"action":"runs","id":"AWAY"}`, "DDRRDD"},
		{`cron {"action":"runs","id":"AWAY","everywhere":true}`, "DDAADD"},
		{`cron {"action":"remove","id":"JOB"}`, "DDAADR"},
		{`message {"text":"hello"}`, "DDAADR"},
		{`message {"text":"hello","session":"OTHER"}`, "DDAADR"},
		{`message {"text":"hello","session":"agent:main:of-eve"}`, "RRRRRR"},
		{`sessions {"action":"list"}`, "DDDDDD"},
		{`sessions {"action":"list","everywhere":true}`, "DDAADD"},
		{`sessions {"action":"history","session":"OTHER"}`, "DDAADD"},
		{`sessions {"action":"history","session":"agent:main:of-eve"}`, "RRRRRR"},
		{`sessions {"action":"send","session":"OTHER","text":"hello"}`, "DDAADR"},
		{`history_search {"query":"hello"}`, "DDDDDD"},
		{`history_search {"query":"hello","everywhere":true}`, "DDAADD"},
		{`history_search {"contents":"day"}`, "DDDDDD"},
		{`history_search {"contents":"week"}`, "DDRRDD"},
		{`send_file {"name":"a.txt","text":"hello"}`, "RDRRRR"},
		{`spawn {"task":"count"}`, "DDDDDD"},
		{`spawn {"task":"count","wait":true}`, "DDDDDD"},
		{`delegate {"agent":"coder","task":"count"}`, "DDDDDD"},
		{`mail_read {}`, "DDDDDD"},
		{`mail_send {}`, "DDAADR"},
	}
}

// recording makes the call of its message and records the result, by call.
type recording struct {
	mu      sync.Mutex
	results map[string]chat.ToolResult
}

func (r *recording) Run(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	line, _, _ := strings.Cut(req.Messages[len(req.Messages)-1].Text, "\n")
	name, args, isCall := strings.Cut(line, " ")
	if !isCall || !strings.HasPrefix(args, "{") {
		return agent.Result{Text: "counted"}, nil
	}
	call := chat.ToolCall{ID: "a", Name: name, Args: args}
	if err := req.Journal.Record(ctx, chat.Round{Number: 1, Calls: []chat.ToolCall{call}}); err != nil {
		return agent.Result{}, err
	}
	result := req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", call)
	if err := req.Journal.RecordResult(ctx, 1, 0, result); err != nil {
		return agent.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[line] = result
	return agent.Result{Text: result.Text}, nil
}

func (r *recording) take(line string) (chat.ToolResult, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result, ok := r.results[line]
	delete(r.results, line)
	return result, ok
}

// The test makes every call in every channel. A call that was allowed must succeed: if it fails
// after the person was asked, the cell is broken.
func TestEachToolInEachChannelDeliversAsksOrRefuses(t *testing.T) {
	rows, channels := matrixRows(), matrixChannels()
	var mu sync.Mutex
	got := map[string]string{} // results of a channel, by its name
	why := map[string]string{} // unexpected results
	t.Run("channels", func(t *testing.T) {
		for n, c := range channels {
			t.Run(strings.Trim(c.name, "/"), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					m := openMatrix(t, c)
					defer m.close()
					for _, row := range rows {
						verdict, text := m.cell(c, row.call)
						mu.Lock()
						got[c.name] += string(verdict)
						if verdict != rune(row.want[n]) {
							why[c.name+": "+row.call] = text
						}
						mu.Unlock()
					}
				})
			})
		}
	})
	if len(why) == 0 {
		return
	}
	var table strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&table, "\n%-60s", row.call)
		for n, c := range channels {
			mark := ' '
			if len(got[c.name]) <= i || got[c.name][i] != row.want[n] {
				mark = '≠'
			}
			fmt.Fprintf(&table, " %s %c%c%c", c.name, got[c.name][i], mark, row.want[n])
		}
	}
	t.Errorf("got ≠ want:%s", table.String())
	for cell, text := range why {
		t.Errorf("%s: %q", cell, text)
	}
}

// matrix is a gateway for the calls of one channel.
type matrix struct {
	*jobHarness

	runner *recording
	names  *strings.Replacer
}

// openMatrix creates the gateway with the objects of the calls.
func openMatrix(t *testing.T, c matrixChannel) *matrix {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "matrix.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	m := &matrix{runner: &recording{results: map[string]chat.ToolResult{}}}
	keep, _ := keepFiles(t)
	m.jobHarness = openCron(t, st, withTeam, keep, func(cfg *dispatch.Config) {
		for i := range cfg.Agents {
			cfg.Agents[i].Runner, cfg.Agents[i].Tools.Names = m.runner, tool.Names()
		}
	})
	other := matrixChannel{session: "agent:main:notes", principal: c.principal, channel: "web"}
	if c.channel == "asker" {
		other = matrixChannel{session: "agent:main:asker:group:-9", principal: c.principal, channel: "asker", to: chat.Target{Channel: "asker", ChatID: "-9"}}
	}
	for _, one := range []matrixChannel{c, other, {session: "agent:main:of-eve", principal: "eve", channel: "web"}} {
		m.end(m.send(one.session, "hello", one.message))
	}
	place := func(c matrixChannel) cron.Delivery {
		if c.to.IsZero() {
			return cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: c.session}
		}
		return cron.Delivery{Mode: cron.DeliverAnnounce, Channel: c.to.Channel, To: c.to.ChatID, Thread: c.to.Thread}
	}
	for id, at := range map[string]matrixChannel{"JOB": c, "AWAY": other} {
		m.put(once(id, "count", 24*time.Hour), func(j *cron.Job) { j.Owner, j.Principal, j.Delivery = c.principal, c.principal, place(at) })
	}
	m.names = strings.NewReplacer("OTHER", other.session)
	return m
}

// cell makes one call in a new turn, and presses the button if the person is asked.
func (m *matrix) cell(c matrixChannel, call string) (verdict rune, text string) {
	call = m.names.Replace(call)
	if c.job {
		m.put(once("turn", call, time.Second), func(j *cron.Job) {
			j.Owner, j.Principal = c.principal, c.principal
			j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: c.to.Channel, To: c.to.ChatID}
		})
		time.Sleep(10 * time.Second)
	} else {
		m.begin(c)
		m.end(m.send(c.session, call, c.message))
	}
	synctest.Wait()
	result, ok := m.runner.take(call)
	switch {
	case !ok:
		return cellBroken, "the call was not made"
	case vague(result.Text):
		return cellBroken, result.Text
	case result.IsError:
		return cellRefuses, result.Text
	case !strings.HasPrefix(result.Text, "The person is asked"):
		return cellDelivers, result.Text
	}
	allow := m.latest().Rows[0][0].Text
	m.end(m.send(c.session, allow, c.message))
	time.Sleep(time.Second) // a tool of another server is called after the answer, concurrently
	synctest.Wait()
	asked, err := m.st.Question(m.t.Context(), strings.TrimPrefix(allow, "/allow "))
	switch {
	case err != nil || asked.Result == nil:
		return cellBroken, fmt.Sprintf("allowed, and not made: %v", err)
	case asked.Result.IsError || vague(asked.Result.Text):
		return cellBroken, "allowed: " + asked.Result.Text
	}
	return cellAsks, asked.Result.Text
}

// begin resets the conversation, because text from outside that an earlier call has read would make
// the next one ask.
func (m *matrix) begin(c matrixChannel) {
	m.t.Helper()
	key, err := chat.ParseSessionKey(c.session, "main")
	if err == nil {
		_, err = m.st.ResetSession(m.t.Context(), store.ResetParams{Session: key, Principal: c.principal, NewID: uuid.NewString()})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// vague reports a message that gives no reason.
func vague(text string) bool {
	return strings.TrimSpace(text) == "" || strings.Contains(text, "try again later") || strings.Contains(text, " failed on this call") || strings.HasPrefix(text, "/")
}

// latest returns the newest question.
func (m *matrix) latest() *chat.Choice { return m.asked(m.questionsAsked() - 1) }

// outside has the tools of another server: one that reads, and one that sends, counts its calls and
// is slow.
type outside struct {
	takes time.Duration

	mu    sync.Mutex
	calls []string
}

func (o *outside) Tools(servers []string) []tool.Tool {
	if !slices.Contains(servers, "mail") {
		return nil
	}
	run := func(name string) func(context.Context, tool.Turn, string, []byte) (string, error) {
		return func(ctx context.Context, _ tool.Turn, _ string, args []byte) (string, error) {
			o.mu.Lock()
			o.calls = append(o.calls, name+" "+string(args))
			o.mu.Unlock()
			timer := time.NewTimer(o.takes)
			defer timer.Stop()
			select {
			case <-timer.C:
				return "done by the server", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	}
	always := func([]byte) bool { return true }
	return []tool.Tool{
		{Name: "mail_read", Schema: `{"type":"object"}`, Idempotent: true, Foreign: always, Run: run("read")},
		{Name: "mail_send", Schema: `{"type":"object"}`, Acts: always, Askable: true, Foreign: always, Run: run("send")},
	}
}

func (*outside) Await(context.Context, []string) {}

func (*outside) ServerOf(name string) string {
	if strings.HasPrefix(name, "mail_") {
		return "mail"
	}
	return ""
}

func (o *outside) made(name string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.calls {
		if strings.HasPrefix(one, name) {
			n++
		}
	}
	return n
}

func withServer(o *outside) option {
	return func(c *dispatch.Config) {
		c.External = o
		c.Agents[0].Runner, c.Agents[0].Tools = obeying{}, dispatch.Tools{Default: true, Servers: []string{"mail"}}
	}
}

// obeying makes the calls that the lines of a message name, one in each round, and answers with
// their results.
type obeying struct{}

func (obeying) Run(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	var results []string
	line, _, _ := strings.Cut(req.Messages[len(req.Messages)-1].Text, "\n\n") // in a run of a job, its scheduled time follows
	for i, order := range strings.Split(line, "\n") {
		name, args, _ := strings.Cut(order, " ")
		call := chat.ToolCall{ID: "a", Name: name, Args: args}
		if err := req.Journal.Record(ctx, chat.Round{Number: i + 1, Calls: []chat.ToolCall{call}}); err != nil {
			return agent.Result{}, err
		}
		result := req.Tools.Call(ctx, fmt.Sprintf("%s/%d/1", req.IdempotencyKey, i+1), call)
		if err := req.Journal.RecordResult(ctx, i+1, 0, result); err != nil {
			return agent.Result{}, err
		}
		results = append(results, result.Text)
	}
	return agent.Result{Text: strings.Join(results, " | ")}, nil
}

const remindTea = `remind {"when":"in 5h","text":"tea"}`

// In a turn for the person's own words, the agent calls a tool of another server, which only reads,
// and then one that acts.
func TestBehindAResultFromOutsideAToolAsks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, out := newStore(t), &outside{}
		h := openCron(t, st, withServer(out))
		defer h.close()
		e := h.end(h.send("agent:main:asker:direct:7", "mail_read {}\n"+remindTea+"\nmail_send {}", member("7")))
		for _, text := range []string{"done by the server | ", "is asked whether this may be done, because it was asked for in a turn that has read text from outside"} {
			if !strings.Contains(e.Text, text) {
				t.Errorf("the answer is %q, want %q in it", e.Text, text)
			}
		}
		want(t, "jobs without the button", jobsOf(t, st, ""), 0)
		want(t, "sent without the button", out.made("send"), 0)
		want(t, "questions", h.questionsAsked(), 2)
		if e := h.end(h.send("agent:main:clean", remindTea)); !strings.Contains(e.Text, "Reminder ") {
			t.Errorf("a turn that has read nothing: %q", e.Text)
		}
	})
}

// After text was forwarded, or read by a tool, a later turn for the person's own words asks before
// it acts, until the conversation is reset.
func TestTextFromOutsideIsRememberedAsLongAsTheModelIsGivenIt(t *testing.T) {
	for name, first := range map[string]func(h *jobHarness){
		"a forwarded message": func(h *jobHarness) {
			h.end(h.send("agent:main:asker:direct:7", "remind them of tea", member("7"), func(m *chat.Message) { m.Content.External = true }))
		},
		"the result of a tool": func(h *jobHarness) { h.end(h.send("agent:main:asker:direct:7", "mail_read {}", member("7"))) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				st := newStore(t)
				h := openCron(t, st, withServer(&outside{}))
				defer h.close()
				first(h)
				asked := h.questionsAsked()
				if e := h.end(h.send("agent:main:asker:direct:7", remindTea, member("7"))); !strings.Contains(e.Text, "because it was asked for in a conversation with text from outside") {
					t.Errorf("the next turn answered %q, want that the person is asked", e.Text)
				}
				want(t, "jobs without the button", jobsOf(t, st, ""), 0)
				want(t, "questions", h.questionsAsked(), asked+1)
				if text := h.questionText(asked); !strings.Contains(text, "You are asked because the agent wants this in a conversation with text from outside.") {
					t.Errorf("the question is %q, which does not say why", text)
				}
				h.end(h.send("agent:main:asker:direct:7", "/new", member("7")))
				if e := h.end(h.send("agent:main:asker:direct:7", remindTea, member("7"))); !strings.Contains(e.Text, "Reminder ") {
					t.Errorf("a turn of a new conversation answered %q", e.Text)
				}
			})
		})
	}
}

// The command does not wait for a slow server, and the button works once.
func TestAnAllowedCallOfAServerIsMadeOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		out := &outside{takes: 40 * time.Second}
		h := openCron(t, newStore(t), withServer(out))
		defer h.close()
		h.end(h.send(groupOfAsker, "mail_send {}", member("7")))
		want(t, "calls before the button", out.made("send"), 0)
		allow := h.asked(0).Rows[0][0].Text
		for range 3 {
			began := time.Now()
			e := h.end(h.send(groupOfAsker, allow, member("7")))
			if e.Text != "It is being done; the result follows." || time.Since(began) > 5*time.Second {
				t.Errorf("after %s: %q", time.Since(began), e.Text)
			}
		}
		time.Sleep(time.Minute)
		want(t, "calls", out.made("send"), 1)
		want(t, "results that the person gets", countOf(h, "done by the server"), 1)
		if e := h.end(h.send(groupOfAsker, allow, member("7"))); e.Text != "done by the server" {
			t.Errorf("the same answer later: %q", e.Text)
		}
		want(t, "calls", out.made("send"), 1)
	})
}

// The process ends during the call: the call may have been made, so it is not repeated.
func TestACallOfAServerIsNotRepeatedByTheNextProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, out := newStore(t), &outside{takes: time.Hour}
		c, dead := cord(st)
		h := openCron(t, c, withServer(out))
		h.end(h.send(groupOfAsker, "mail_send {}", member("7")))
		h.end(h.send(groupOfAsker, h.asked(0).Rows[0][0].Text, member("7")))
		time.Sleep(time.Second)
		want(t, "calls", out.made("send"), 1)
		dead.Store(true)
		time.Sleep(30 * time.Second)
		next := openCron(t, st, withServer(out))
		defer next.close()
		time.Sleep(time.Minute)
		want(t, "calls", out.made("send"), 1)
		want(t, "sentences to the person", countOf(next, "The gateway stopped during the call of mail_send; it may or may not have happened."), 1)
		h.abandon()
	})
}

// The rule for turns of jobs applies to tools of servers; a tool that only reads may run.
func TestAToolOfAServerThatActsIsRefusedInAJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		out := &outside{}
		h := openCron(t, newStore(t), withServer(out))
		defer h.close()
		h.put(once("j", "mail_read {}\nmail_send {}", time.Second))
		time.Sleep(2 * time.Minute)
		if out.made("read") == 0 {
			t.Error("the job has not read")
		}
		want(t, "calls that send", out.made("send"), 0)
		want(t, "questions", h.questionsAsked(), 0)
	})
}

// countOf counts the messages with a text in the group of the tests.
func countOf(h *jobHarness, text string) (n int) {
	for _, one := range h.asker.texts("5") {
		if one == text {
			n++
		}
	}
	return n
}
