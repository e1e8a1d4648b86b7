package dispatch_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testmodel"
)

// reminding is a runner that tries to set a reminder in every turn and answers with the result,
// "none" without tools. With waiting it first waits for input.
type reminding struct {
	waiting bool

	mu      sync.Mutex
	results map[string]string // result by run
}

func (r *reminding) Run(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	for r.waiting && len(req.TakeInput()) == 0 {
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return agent.Result{}, context.Cause(ctx)
		}
	}
	text := "none"
	if req.Tools != nil {
		text = req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", chat.ToolCall{ID: "a", Name: "remind", Args: `{"when":"in 5h","text":"tea"}`}).Text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.results == nil {
		r.results = map[string]string{}
	}
	r.results[req.RunID] = text
	return agent.Result{Text: text}, nil
}

func (r *reminding) of(run string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[run]
}

func withRunner(r agent.Runner, tools dispatch.Tools) option {
	return func(c *dispatch.Config) { c.Agents[0].Runner, c.Agents[0].Tools = r, tools }
}

func external(m *chat.Message) { m.Content.External = true }

func from(channel string) func(*chat.Message) {
	return func(m *chat.Message) { m.Channel = channel }
}

// Requests with tools that read times have the time in the zone of their owner; other requests do
// not.
func TestAModelThatCanPlanKnowsTheClockOfThePerson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		tools dispatch.Tools
		zone  string
		clock bool
	}{
		{"all tools, no zone chosen", dispatch.Tools{Default: true}, "", true},
		{"remind, with a zone", dispatch.Tools{Names: []string{"remind"}}, "Asia/Tokyo", true},
		{"no tool that reads times", dispatch.Tools{Names: []string{"sessions"}}, "Asia/Tokyo", false},
		{"no tools", dispatch.Tools{}, "Asia/Tokyo", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runner := &script{}
				h := openCron(t, sqlitetest.Open(t, sqlite.Config{}), withRunner(runner, c.tools))
				defer h.close()
				if c.zone != "" {
					h.command(annaHere, "/timezone "+c.zone, "7", "7")
				}
				h.end(h.send(annaHere, "plan something", person("7", "7")))
				req, started, _ := runner.call(0)
				at := started.UTC()
				if loc, err := schedule.LoadZone(c.zone); err == nil {
					at = at.In(loc)
				}
				want := ""
				if c.clock {
					want = at.Format("Mon 2 Jan 2006 15:04 MST") + " (" + cmp.Or(c.zone, "UTC") + ")"
				}
				if req.Clock != want {
					t.Errorf("the clock is %q, want %q", req.Clock, want)
				}
			})
		})
	}
}

// Only the owner of a turn that was caused by nothing but the owner's words may create with tools.
func TestOnlyThePersonsOwnWordsMakeJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runner := &reminding{}
		h := openCron(t, sqlitetest.Open(t, sqlite.Config{}), withRunner(runner, dispatch.Tools{Default: true}))
		defer h.close()
		for _, tt := range []struct {
			name, session, want string
			change              []func(*chat.Message)
		}{
			{"their own", "agent:main:own", "is set at", nil},
			{"text from outside", "agent:main:own", "text from outside", []func(*chat.Message){external}},
			{"a group", "agent:main:box:group:5", "in a group", nil},
			{"a hook", "agent:main:own", "none", []func(*chat.Message){from("hook")}},
			{"the OpenAI interface", "agent:main:own", "none", []func(*chat.Message){from("api")}},
		} {
			id := h.send(tt.session, tt.name, tt.change...)
			h.end(id)
			if got := runner.of(id); !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
			}
		}
		h.send("agent:main:own", "/cron add in 10s check the mail")
		time.Sleep(time.Minute)
		synctest.Wait()
		runner.mu.Lock()
		var results []string
		for _, text := range runner.results {
			results = append(results, text)
		}
		runner.mu.Unlock()
		if !slices.ContainsFunc(results, func(s string) bool { return strings.Contains(s, "in the turn of a job") }) {
			t.Errorf("the turn of the job has no refusal: %q", results)
		}
	})
}

// What a credential without the rights of an administrator writes into the conversation of another
// principal is text from outside, and has its sender; in its own conversations, and from an
// administrator, it is not.
func TestWordsOfAnotherCredentialAreFromOutside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runner := &reminding{}
		h := open(t, sqlitetest.Open(t, sqlite.Config{}), withRunner(runner, dispatch.Tools{Default: true}))
		defer h.close()
		h.end(h.send(annaHere, "hello", person("7", "7")))
		h.end(h.send("agent:main:work", "hello"))
		write, admin := []string{chat.ScopeWrite}, []string{chat.ScopeAdmin}
		for _, tt := range []struct {
			session, want string
			by            chat.Caller
		}{
			{annaHere, "text from outside", chat.Caller{Principal: "ci", Scopes: write}},
			{bertHere, "text from outside", chat.Caller{Principal: "ci", Scopes: write}}, // it does not exist yet
			{"agent:main:work", "text from outside", chat.Caller{Principal: "ci", Scopes: write}},
			{"agent:main:notes", "is set at", chat.Caller{Principal: "ci", Scopes: write}},
			{"agent:main:fresh", "is set at", chat.Caller{Principal: "gateway", Scopes: admin}},
		} {
			r, err := h.d.ReceiveFrom(t.Context(), h.msg(tt.session, "remind me"), tt.by)
			if err != nil {
				t.Errorf("%s: %v", tt.session, err)
				continue
			}
			h.end(r.RunID)
			if got := runner.of(r.RunID); !strings.Contains(got, tt.want) {
				t.Errorf("%s into %s: got %q, want %q", tt.by.Principal, tt.session, got, tt.want)
			}
		}
		key, err := chat.ParseSessionKey(annaHere, "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := h.st.Transcript(t.Context(), store.TranscriptQuery{Session: key})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(tr.Entries, func(e chat.TranscriptEntry) bool {
			return e.Text == "remind me" && e.Outside && e.Sender.ID == "ci" && e.Sender.Name == "the credential ci"
		}) {
			t.Errorf("the entry has not its sender: %+v", tr.Entries)
		}
	})
}

func TestListedToolsAreThereInEveryTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runner := &reminding{}
		h := open(t, sqlitetest.Open(t, sqlite.Config{}), withRunner(runner, dispatch.Tools{Default: true, Names: []string{"remind"}}))
		defer h.close()
		id := h.send("agent:main:own", "x", from("api"))
		h.end(id)
		if got := runner.of(id); !strings.Contains(got, "is set at") {
			t.Errorf("in a turn of the OpenAI interface: got %q, want the reminder", got)
		}
		id = h.send("agent:main:own", "y", from("hook"))
		h.end(id)
		if got := runner.of(id); !strings.Contains(got, "text from outside") {
			t.Errorf("in a turn of a hook: got %q, want the refusal", got)
		}
	})
}

// Another principal writes into a turn while it runs.
func TestWordsOfAnotherPersonEndTheRightToCreate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runner := &reminding{waiting: true}
		h := open(t, sqlitetest.Open(t, sqlite.Config{}), withRunner(runner, dispatch.Tools{Default: true}))
		defer h.close()
		id := h.send("agent:main:shared", "wait")
		time.Sleep(5 * time.Second)
		h.send("agent:main:shared", "make a job for me", mode(chat.ModeSteer), func(m *chat.Message) { m.Principal = "mallory" })
		h.end(id)
		if got := runner.of(id); !strings.Contains(got, "several people") {
			t.Errorf("got %q, want the refusal", got)
		}
	})
}

// What the tool message writes into another conversation is known there once, whatever happens
// there meanwhile; a new conversation knows nothing of what came before it.
func TestTextOfTheMessageToolIsKnownThereOnce(t *testing.T) {
	for when, known := range map[string]int{"nothing runs there": 1, "a turn runs there": 1, "it has just begun anew": 1, "it begins anew afterwards": 0, "two texts": 2} {
		t.Run(when, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				model, end := testmodel.StartInMemory(t)
				defer end()
				model.Answer(func(call testmodel.Call) testmodel.Reply {
					switch {
					case strings.Contains(call.Last(), "ask there"):
						return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "a", Name: "message", Args: `{"text":"Shall I order filters?","session":"agent:main:there"}`}}}
					case strings.Contains(call.Last(), "take your time"):
						return testmodel.Reply{Delay: 2 * time.Minute, Pieces: []string{"I did."}}
					}
					return testmodel.Reply{Pieces: []string{"Done."}}
				})
				h := open(t, newStore(t), func(c *dispatch.Config) {
					runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m", FirstByte: time.Hour}, model.Transport(), nil)
					if err != nil {
						t.Fatal(err)
					}
					c.Agents[0].Runner, c.Agents[0].Tools = runner, dispatch.Tools{Default: true}
				})
				defer h.close()
				h.end(h.send("agent:main:there", "hello"))
				var running string
				switch when {
				case "a turn runs there":
					running = h.send("agent:main:there", "take your time")
					time.Sleep(time.Second)
				case "it has just begun anew":
					h.end(h.send("agent:main:there", "/new"))
				}
				h.end(h.send("agent:main:here", "ask there"))
				if when == "two texts" {
					h.end(h.send("agent:main:here", "ask there once more"))
				}
				time.Sleep(time.Minute)
				if running != "" {
					want(t, "the turn that ran", h.end(running).Text, "I did.")
				}
				if known == 0 {
					h.end(h.send("agent:main:there", "/new"))
				}
				for i, words := range []string{"yes, do it", "and then?"} {
					h.end(h.send("agent:main:there", words))
					calls := model.Calls()
					var said strings.Builder
					for _, line := range calls[len(calls)-1].Messages {
						said.WriteString(line.Content + "\n")
					}
					want(t, fmt.Sprintf("turn %d: the text in:\n%s", i, said.String()), strings.Count(said.String(), "Shall I order filters?"), known)
					want(t, fmt.Sprintf("turn %d: its source in:\n%s", i, said.String()), strings.Count(said.String(), "wrote here:\n> Shall I order filters?"), known)
				}
			})
		})
	}
}

// A process is disconnected from the store after its model has called the reminder tool, received
// the result and a message that joined the turn. The next process first publishes the recorded
// text, then calls the model after the recorded round, with the message in its place.
func TestATurnThatIsTakenOverContinuesBehindItsRounds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		defer end()
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch {
			case len(call.Results()) == 0 && call.Number > 1:
				return testmodel.Reply{Pieces: []string{"Other words."}, Calls: []testmodel.ToolCall{{ID: "z", Name: "remind", Args: `{"when":"in 9h","text":"other"}`}}}
			case len(call.Results()) == 0:
				return testmodel.Reply{Delay: 10 * time.Second, Pieces: []string{"First words."}, Calls: []testmodel.ToolCall{{ID: "a", Name: "remind", Args: `{"when":"in 5h","text":"tea"}`}}}
			case call.Number == 2:
				return testmodel.Reply{HangFirst: true}
			default:
				return testmodel.Reply{Pieces: []string{"Last words."}}
			}
		})
		withModel := func(c *dispatch.Config) {
			runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m", FirstByte: time.Hour}, model.Transport(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Agents[0].Runner, c.Agents[0].Tools = runner, dispatch.Tools{Default: true}
		}
		st := newStore(t)
		c, off := cord(st)
		h := open(t, c, withModel)
		id := h.send("agent:main:own", "remind me of the tea")
		time.Sleep(5 * time.Second)
		joined := h.send("agent:main:own", "and hurry", mode(chat.ModeSteer))
		time.Sleep(7 * time.Second) // the first result is recorded, and the model has the second request
		want(t, "questions before the process is cut off", len(model.Calls()), 2)
		off.Store(true)

		next := open(t, st, withModel)
		defer next.close()
		e := next.end(id)
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		want(t, "text", e.Text, "First words.\n\nLast words.")
		want(t, "questions", len(model.Calls()), 3)
		jobs := 0
		last := model.Calls()[2]
		for _, r := range last.Results() {
			if strings.Contains(r.Text, "is set at") {
				jobs++
			}
		}
		want(t, "results that the model gets", jobs, 1)
		want(t, "the message that joined is after the round", last.Last(), "and hurry")
		want(t, "the first message is without it", last.Messages[0].Content, "remind me of the tea")
		want(t, "outcome of the message that joined", next.end(joined).Outcome, chat.OutcomeMerged)
		next.mu.Lock()
		var deltas []chat.Event
		for _, event := range next.events {
			if event.Kind == chat.EventDelta && event.RunID == id {
				deltas = append(deltas, event)
			}
		}
		next.mu.Unlock()
		if len(deltas) == 0 || !deltas[0].Replace || deltas[0].Delta != "First words." || deltas[1].Replace {
			t.Errorf("deltas of the second attempt: got %+v, want the recorded text first, as a replacement", deltas)
		}
		rounds, err := st.Rounds(t.Context(), id)
		want(t, "rounds that are left", len(rounds), 0)
		want(t, "reading them", err, nil)
		h.abandon()
	})
}

// program is a branching runner that makes its calls like a program: it opens its tools and calls
// what was opened.
type program struct {
	branching

	opened chan agent.Toolbox
}

func (p *program) Open(_ context.Context, box agent.Toolbox) (agent.ToolAccess, func()) {
	p.opened <- box
	return agent.ToolAccess{}, func() {}
}

func (p *program) OpenKept(ctx context.Context, _ string, box agent.Toolbox) (agent.ToolAccess, func()) {
	return p.Open(ctx, box)
}

func (p *program) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if strings.HasPrefix(joined(req), "[") {
		_, end := req.OpenTools(ctx)
		defer end()
		req.Tools = <-p.opened
	}
	return p.branching.Run(ctx, req, emit)
}

// A program makes more concurrent calls than run in parallel, and each waits longer than the time
// limit of other calls.
func TestAProgramWaitsForTasksAsLongAsItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := &program{opened: make(chan agent.Toolbox, 1)}
		h := open(t, newStore(t), team(&p.branching), func(c *dispatch.Config) {
			c.Access = p
			for i := range c.Agents {
				c.Agents[i].Program, c.Agents[i].Runner = true, p
			}
		})
		defer h.close()
		const calls = 6
		var all []asked
		for range calls {
			all = append(all, delegated("sleep 2m"))
		}
		begin := time.Now()
		e := h.end(h.send("agent:main:own", calling(all...)))
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		want(t, "answer", e.Text, strings.Repeat("begun+", calls-1)+"begun")
		if took := time.Since(begin); took > 3*time.Minute {
			t.Errorf("%d tasks of two minutes beside each other took %v", calls, took)
		}
		h.wantSlots()
	})
}
