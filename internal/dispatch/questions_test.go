package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

const groupOfAsker = "agent:main:asker:group:5"

// member is a person of a group whose channel has buttons.
func member(id string) func(*chat.Message) {
	return func(m *chat.Message) {
		m.Channel, m.Principal, m.Scope, m.Content.Sender.ID = "asker", "asker:"+id, chat.ScopeWrite, id
		m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "5"}
	}
}

// asked waits for the n-th message with buttons and returns its choice.
func (h *harness) asked(n int) *chat.Choice {
	h.t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	var choices []*chat.Choice
	h.asker.change(func() {
		for _, r := range h.asker.sent {
			if r.Choice != nil {
				choices = append(choices, r.Choice)
			}
		}
	})
	if len(choices) <= n {
		h.t.Fatalf("%d questions were asked, want %d", len(choices), n+1)
	}
	return choices[n]
}

func (h *harness) questionsAsked() (n int) {
	time.Sleep(2 * time.Second)
	synctest.Wait()
	h.asker.change(func() {
		for _, r := range h.asker.sent {
			if r.Choice != nil {
				n++
			}
		}
	})
	return n
}

// questionText returns the text of a question.
func (h *harness) questionText(n int) (text string) {
	h.asker.change(func() {
		for _, r := range h.asker.sent {
			if r.Choice == nil {
				continue
			}
			if n == 0 {
				text = r.Text
			}
			n--
		}
	})
	return text
}

func jobsOf(t *testing.T, st dispatch.Store, owner string) int {
	t.Helper()
	page, err := st.Jobs(t.Context(), cron.JobFilter{Visible: owner, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Jobs)
}

// In a group, there is no job without the button and one job with it, and only the asked person's
// answer counts.
func TestAToolActsInAGroupWhenItsPersonPressesTheButton(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, runner := newStore(t), &reminding{}
		h := openCron(t, st, withRunner(runner, dispatch.Tools{Default: true}))
		defer h.close()
		id := h.send(groupOfAsker, "remind us", member("7"))
		h.end(id)
		if got := runner.of(id); !strings.Contains(got, "is asked whether this may be done, because it was asked for in a group") {
			t.Errorf("the model gets %q", got)
		}
		choice := h.asked(0)
		want(t, "jobs before the button", jobsOf(t, st, ""), 0)
		want(t, "who may press", choice.For, "7")
		allow, deny := choice.Rows[0][0].Text, choice.Rows[0][1].Text

		other := h.end(h.send(groupOfAsker, allow, member("8")))
		if !strings.Contains(other.Text, "no open question like this") || jobsOf(t, st, "") != 0 {
			t.Errorf("an answer of another person: %q and %d jobs", other.Text, jobsOf(t, st, ""))
		}
		for range 2 {
			if e := h.end(h.send(groupOfAsker, allow, member("7"))); !strings.Contains(e.Text, "Reminder ") {
				t.Errorf("the answer to the button: %q", e.Text)
			}
		}
		want(t, "jobs of the person", jobsOf(t, st, "asker:7"), 1)
		want(t, "jobs of all", jobsOf(t, st, ""), 1)
		if e := h.end(h.send(groupOfAsker, deny, member("7"))); !strings.Contains(e.Text, "no open question") {
			t.Errorf("to deny what was allowed: %q", e.Text)
		}
		key, err := chat.ParseSessionKey(groupOfAsker, "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		notes := 0
		for _, e := range tr.Entries {
			if e.Role == chat.RoleSystem && strings.Contains(e.Text, "Tool remind") && strings.Contains(e.Text, ": Reminder ") {
				notes++
			}
		}
		want(t, "notes of the call for later turns", notes, 1)
	})
}

func TestADeniedCallIsNotMade(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, withRunner(&reminding{}, dispatch.Tools{Default: true}))
		defer h.close()
		h.end(h.send(groupOfAsker, "remind us", member("7")))
		row := h.asked(0).Rows[0]
		want(t, "answer", h.end(h.send(groupOfAsker, row[1].Text, member("7"))).Text, "It is not done.")
		if e := h.end(h.send(groupOfAsker, row[0].Text, member("7"))); !strings.Contains(e.Text, "no open question") {
			t.Errorf("to allow what was denied: %q", e.Text)
		}
		want(t, "jobs", jobsOf(t, st, ""), 0)
	})
}

func TestAQuestionIsTooOldAfterTenMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, withRunner(&reminding{}, dispatch.Tools{Default: true}))
		defer h.close()
		h.end(h.send(groupOfAsker, "remind us", member("7")))
		allow := h.asked(0).Rows[0][0].Text
		time.Sleep(store.QuestionLife)
		if e := h.end(h.send(groupOfAsker, allow, member("7"))); !strings.Contains(e.Text, "no open question") {
			t.Errorf("a late answer: %q", e.Text)
		}
		want(t, "jobs", jobsOf(t, st, ""), 0)
	})
}

// The question is asked in one process and answered in the next one.
func TestAQuestionSurvivesARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, withRunner(&reminding{}, dispatch.Tools{Default: true}))
		h.end(h.send(groupOfAsker, "remind us", member("7")))
		allow := h.asked(0).Rows[0][0].Text
		h.close()
		next := openCron(t, st, withRunner(&reminding{}, dispatch.Tools{Default: true}))
		defer next.close()
		if e := next.end(next.send(groupOfAsker, allow, member("7"), newID("n1"))); !strings.Contains(e.Text, "Reminder ") {
			t.Errorf("the answer in the next process: %q", e.Text)
		}
		want(t, "jobs", jobsOf(t, st, "asker:7"), 1)
	})
}

func newID(id string) func(*chat.Message) { return func(m *chat.Message) { m.ID = id } }

// The process ends between the answer and the call and, in the second case, between the call and
// its record.
func TestAnAllowedCallIsMadeByTheNextProcess(t *testing.T) {
	for _, op := range []string{"store a job", "end a question"} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var off atomic.Bool
				st := sqlitetest.Open(t, sqlite.Config{Before: func(ctx context.Context, called string) error {
					if (called == op || called == "end a question") && off.Load() {
						<-ctx.Done()
						return chat.ErrStoreUnavailable
					}
					return nil
				}})
				c, dead := cord(st)
				h := openCron(t, c, withRunner(&reminding{}, dispatch.Tools{Default: true}))
				h.end(h.send(groupOfAsker, "remind us", member("7")))
				allow := h.asked(0).Rows[0][0].Text
				off.Store(true)
				go func() {
					_, _ = h.d.Receive(t.Context(), func() chat.Message { m := h.msg(groupOfAsker, allow); member("7")(&m); return m }()) // the process dies during it
				}()
				time.Sleep(time.Second)
				dead.Store(true)
				time.Sleep(30 * time.Second)
				off.Store(false)
				next := openCron(t, st, withRunner(&reminding{}, dispatch.Tools{Default: true}))
				defer next.close()
				time.Sleep(time.Minute)
				want(t, "jobs", jobsOf(t, st, "asker:7"), 1)
				answers := 0
				for _, text := range next.asker.texts("5") {
					if strings.HasPrefix(text, "Reminder ") {
						answers++
					}
				}
				want(t, "answers to the person", answers, 1)
				h.abandon()
			})
		})
	}
}

// The question cannot be asked of members of a group without buttons, in hooks, and in turns of
// jobs.
func TestWithoutAButtonToolsThatActAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, runner := newStore(t), &reminding{}
		h := openCron(t, st, withRunner(runner, dispatch.Tools{Names: []string{"remind"}}))
		defer h.close()
		for name, change := range map[string]func(*chat.Message){
			"a hook":                   func(m *chat.Message) { m.Channel, m.Principal, m.Content.External = "hook", "hook:ci", true },
			"the OpenAI interface":     func(m *chat.Message) { m.Channel, m.Content.External = "api", true },
			"a channel without button": func(m *chat.Message) { replyTo("5")(m); m.Principal, m.Content.External = "box:7", true },
		} {
			id := h.send("agent:main:of-"+strings.Fields(name)[1], name, change)
			h.end(id)
			if got := runner.of(id); !strings.Contains(got, "without a confirmation by a button, and there is none here") {
				t.Errorf("%s: got %q", name, got)
			}
		}
		want(t, "questions", h.questionsAsked(), 0)
		want(t, "jobs", jobsOf(t, st, ""), 0)
	})
}

// Text from outside requests a job in a session of a credential, which has no buttons.
func TestACredentialAnswersInWords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, withRunner(&reminding{}, dispatch.Tools{Default: true}))
		defer h.close()
		h.end(h.send("agent:main:own", "make a job", external))
		time.Sleep(2 * time.Second)
		key, err := chat.ParseSessionKey("agent:main:own", "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		answer := ""
		for _, e := range tr.Entries {
			if _, rest, ok := strings.Cut(e.Text, "Write /allow "); ok {
				id, _, _ := strings.Cut(rest, " ")
				answer = "/allow " + id
			}
		}
		if answer == "" {
			t.Fatalf("the transcript has no question: %+v", tr.Entries)
		}
		if e := h.end(h.send("agent:main:other", answer, func(m *chat.Message) { m.Principal = "mallory" })); !strings.Contains(e.Text, "no open question") {
			t.Errorf("another credential: %q", e.Text)
		}
		if e := h.end(h.send("agent:main:own", answer, external, newID("forwarded"))); strings.Contains(e.Text, "Reminder ") || jobsOf(t, st, "tester") != 0 {
			t.Errorf("an answer from outside counts: %q", e.Text)
		}
		if e := h.end(h.send("agent:main:own", answer)); !strings.Contains(e.Text, "Reminder ") {
			t.Errorf("the credential: %q", e.Text)
		}
		want(t, "jobs", jobsOf(t, st, "tester"), 1)
	})
}

// The call of a turn is repeated under its key, as in a turn that runs again.
func TestARepeatedCallAsksOnce(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.end(h.send(groupOfAsker, "twice", member("7")))
		want(t, "questions", h.questionsAsked(), 1)
	}, withRunner(&repeating{}, dispatch.Tools{Default: true}))
}

// A turn asks more questions than a person is shown.
func TestOpenQuestionsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, withRunner(&repeating{calls: store.MaxQuestions + 5}, dispatch.Tools{Default: true}))
		defer h.close()
		e := h.end(h.send(groupOfAsker, "many", member("7")))
		if !strings.Contains(e.Text, "too many questions wait for this person's answer") {
			t.Errorf("the last call: %q", e.Text)
		}
		time.Sleep(time.Minute)
		want(t, "questions", h.questionsAsked(), store.MaxQuestions)
		want(t, "jobs", jobsOf(t, st, ""), 0)
	})
}

// repeating is a runner that makes the same call twice under one key, or the given number of calls
// with separate keys.
type repeating struct{ calls int }

func (r *repeating) Run(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	text := ""
	for i := range max(r.calls, 2) {
		key := req.IdempotencyKey + "/1/1"
		if r.calls > 0 {
			key = fmt.Sprintf("%s/1/%d", req.IdempotencyKey, i+1)
		}
		text = req.Tools.Call(ctx, key, chat.ToolCall{ID: "a", Name: "remind", Args: `{"when":"in 5h","text":"tea"}`}).Text
	}
	return agent.Result{Text: text}, nil
}

const inWords = "Write /queue queue, followup, interrupt, collect, steer or default"

// A choice of a command is shown on every channel: as buttons for the person who gave the command
// where the channel supports buttons, otherwise in words.
func TestAChoiceIsButtonsWhereThereAreSomeAndWordsElsewhere(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		h.send("agent:main:asker:direct:7", "/queue", func(m *chat.Message) {
			m.Channel, m.Content.Sender.ID = "asker", "7"
			m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "7", Thread: "3"}
		})
		h.send("agent:main:box:direct:7", "/queue", replyTo("7"))
		id := h.send("web", "/queue")
		time.Sleep(2 * time.Second)
		synctest.Wait()

		h.asker.mu.Lock()
		got := h.asker.sent
		h.asker.mu.Unlock()
		if len(got) != 1 || got[0].Choice == nil || got[0].Choice.For != "7" || len(got[0].Choice.Rows) != 2 || strings.Contains(got[0].Text, "Write") || got[0].Target.Thread != "3" {
			t.Errorf("the channel with buttons got %+v", got)
		}
		h.box.mu.Lock()
		plain := h.box.sent
		h.box.mu.Unlock()
		if len(plain) != 1 || plain[0].Choice != nil || !strings.Contains(plain[0].Text, "lane main.\n\n"+inWords) {
			t.Errorf("the channel without buttons got %+v", plain)
		}
		if end := h.end(id); !strings.Contains(end.Text, inWords) {
			t.Errorf("a caller without a channel gets %q", end.Text)
		}
		key, err := chat.ParseSessionKey("agent:main:asker:direct:7", "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := h.st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 5})
		if err != nil || len(tr.Entries) != 2 || !strings.Contains(tr.Entries[1].Text, inWords) {
			t.Errorf("those who look at the conversation read %+v, %v", tr.Entries, err)
		}
	})
}

// A choice that was not delivered is offered again, with its buttons.
func TestAChoiceSurvivesAFailedAttempt(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		failed := 0
		h.asker.fail = func(chat.Reply) error {
			if failed++; failed < 3 {
				return chat.ErrStoreUnavailable
			}
			return nil
		}
		h.send("agent:main:asker:direct:7", "/queue", func(m *chat.Message) {
			m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "7"}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(h.asker.sent) != 1 || h.asker.sent[0].Attempt != 3 || h.asker.sent[0].Choice == nil {
			t.Errorf("delivered was %+v", h.asker.sent)
		}
	})
}
