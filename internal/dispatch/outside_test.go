package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/tool"
)

// outside has the tools of another server: one that reads, and one that sends, counts its calls and is slow.
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

// obeying makes the calls that the lines of a message name, one in each round, and answers with their results.
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

// In a turn for the person's own words, the agent calls a tool of another server, which only reads, and then one that acts.
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

// After text was forwarded, or read by a tool, a later turn for the person's own words asks before it acts, until the conversation is
// reset.
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
