package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// asks is a runner that asks its person, with a timeout of one minute, and answers with their
// choice.
type asks struct {
	options []agent.Option
	// act is the action to which an answer for all turns applies.
	act string
	// pause is the time before the question, during which messages may join the turn.
	pause time.Duration
}

func (r asks) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	answer := agent.NewAnswer(0, emit)
	if r.pause > 0 {
		time.Sleep(r.pause)
		req.TakeInput()
	}
	text := "no person can be asked"
	if req.Asker != nil {
		options := r.options
		if options == nil {
			options = []agent.Option{{Label: "Yes", Allow: true}, {Label: "No"}}
		}
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		option, err := req.Asker.Ask(bounded, agent.Question{Text: "delete it", Act: r.act, Options: options})
		if err == nil {
			text = options[option].Label
		} else {
			text = err.Error()
		}
		if cause := agent.Ended(ctx); cause != nil {
			return agent.Result{}, cause
		}
	}
	return agent.Result{Text: text, StopReason: agent.StopNormal}, answer.Append(text)
}

// askerMessage makes a message one of a person in the channel with buttons.
func askerMessage(person string) func(m *chat.Message) {
	return func(m *chat.Message) {
		m.Channel, m.Principal, m.Content.Sender.ID = "asker", "asker:"+person, person
		m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "7"}
	}
}

// runBy makes a runner the only agent.
func runBy(runner agent.Runner) option {
	return func(c *dispatch.Config) { c.Agents[0].Runner = runner }
}

const askerChat = "agent:main:asker:direct:7"

// by7 returns what person 7 receives after a message.
func (h *harness) by7(text string, change ...func(*chat.Message)) string {
	h.t.Helper()
	return h.end(h.send(askerChat, text, append(change, askerMessage("7"))...)).Text
}

// texts returns the commands of the buttons of a choice.
func texts(c *chat.Choice) (list []string) {
	for _, row := range c.Rows {
		for _, b := range row {
			list = append(list, b.Text)
		}
	}
	return list
}

func TestAnAgentAsksItsPersonByButtons(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		q := h.asked(0)
		buttons := texts(q)
		if q.For != "7" || len(q.Rows) != 1 || len(buttons) != 2 || !strings.HasPrefix(buttons[0], "/allow ") || !strings.HasPrefix(buttons[1], "/deny ") ||
			q.Typed != "Write "+buttons[0]+" (Yes) or "+buttons[1]+" (No) within 1m." {
			t.Errorf("asked %+v", q)
		}
		if sent := h.asker.texts("7"); len(sent) != 1 || sent[0] != "The agent main wants to do this for you: delete it\nAllow it?" {
			t.Errorf("sent %q", sent)
		}
		questionID := strings.TrimPrefix(buttons[0], "/allow ")
		// Another person, an unknown option, no option, or no id: the question stays open.
		for _, text := range []string{
			h.end(h.send(askerChat, buttons[0], askerMessage("8"))).Text, h.by7("/answer " + questionID + " 3"), h.by7("/answer " + questionID), h.by7("/allow"),
		} {
			if !strings.HasPrefix(text, "/a") || !strings.Contains(text, " failed: ") {
				t.Errorf("a wrong answer got %q", text)
			}
		}
		want(t, "the answer", h.by7(buttons[0]), "The answer is: Yes.")
		want(t, "the turn", h.end(id).Text, "Yes")
		want(t, "the same answer again", h.by7("/answer "+questionID+" 1"), "The answer is: Yes.")
		if text := h.by7(buttons[1]); !strings.Contains(text, "no open question") {
			t.Errorf("another answer got %q", text)
		}
	}, runBy(asks{}))
}

func TestAnAgentIsRefusedByAButton(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		want(t, "the answer", h.by7(texts(h.asked(0))[1]), "The answer is: No.")
		want(t, "the turn", h.end(id).Text, "No")
	}, runBy(asks{}))
}

func TestOfSeveralOptionsThePersonChoosesOneByItsNumber(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		options := []agent.Option{{Label: "Once", Allow: true}, {Label: "Always", Allow: true}, {Label: "No"}}
		h := open(t, newStore(t), runBy(asks{options: options}))
		id := h.send(askerChat, "go", askerMessage("7"))
		q := h.asked(0)
		buttons := texts(q)
		questionID := strings.TrimPrefix(buttons[2], "/deny ")
		wantList(t, "buttons", buttons, []string{"/answer " + questionID + " 1", "/answer " + questionID + " 2", "/deny " + questionID})
		want(t, "rows", len(q.Rows), 3)
		want(t, "in words", q.Typed, "Write "+buttons[0]+" (Once), "+buttons[1]+" (Always) or "+buttons[2]+" (No) within 1m.")
		if text := h.by7("/allow " + questionID); !strings.Contains(text, "there are several ways; write "+buttons[0]+" (Once) or "+buttons[1]+" (Always)") {
			t.Errorf("without a number: %q", text)
		}
		want(t, "the answer", h.by7(buttons[1]), "The answer is: Always.")
		want(t, "the turn", h.end(id).Text, "Always")
		h.close()
	})
}

// The same question is asked again in another process, after another question, after the answer was
// revoked, and after a reset.
func TestAnAnswerThatCountsAlwaysOutlivesTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		options := []agent.Option{{Label: "Always", Allow: true, Always: true}, {Label: "Once", Allow: true}, {Label: "Never", Always: true}}
		st := newStore(t)
		h := open(t, st, runBy(asks{options: options, act: "delete files"}))
		asked, messages := 0, 0
		own := func(m *chat.Message) { // message ids must be unique across the processes
			messages++
			m.ID = fmt.Sprintf("message-%d", messages)
		}
		turn := func() string {
			t.Helper()
			return h.send(askerChat, "go", askerMessage("7"), own)
		}
		choose := func(id string, option int) {
			t.Helper()
			h.by7(texts(h.asked(asked))[option], own)
			asked++
			want(t, "the turn", h.end(id).Text, options[option].Label)
		}
		want(t, "before", h.by7("/approvals", own), "You haven't allowed anything permanently here.")
		choose(turn(), 1)
		choose(turn(), 2)
		id := turn()
		first := texts(h.asked(asked))[0]
		want(t, "the answer", h.by7(first, own), "The answer is: Always. It counts here until /new; /approvals lists such answers.")
		want(t, "the same answer again", h.by7(first, own), "The answer is: Always. It counts here until /new; /approvals lists such answers.")
		asked++
		want(t, "the turn", h.end(id).Text, "Always")
		h.close()
		h = open(t, st, runBy(asks{options: options, act: "delete files"}))
		asked = 0
		want(t, "in another process", h.end(turn()).Text, "Always")
		h.close()
		h = open(t, st, runBy(asks{options: options, act: "write files"}))
		choose(turn(), 1) // another act
		h.close()
		h = open(t, st, runBy(asks{options: options, act: "delete files"}))
		asked = 0
		list := h.by7("/approvals", own)
		questionID := strings.Fields(strings.TrimPrefix(first, "/answer "))[0]
		if want := questionID + ": main may delete files (Always, "; strings.Count(list, ": main may ") != 1 || !strings.Contains(list, want) {
			t.Errorf("got %q, want one line with %q", list, want)
		}
		want(t, "revoked", h.by7("/approvals revoke "+questionID, own), "Revoked: 1. The agent will ask again, unless it remembers your answer itself; /new makes it forget.")
		choose(turn(), 0)
		want(t, "allowed again", h.end(turn()).Text, "Always")
		h.by7("/new", own)
		choose(turn(), 1)
		h.close()
	})
}

// The stored answer has an act of a runner without a version, as earlier releases wrote it.
func TestApprovalOfEarlierMeaningNoLongerMatches(t *testing.T) {
	options := []agent.Option{{Label: "Always", Allow: true, Always: true}, {Label: "No"}}
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		question := strings.TrimPrefix(texts(h.asked(0))[0], "/allow ")
		_, err := h.st.AnswerQuestion(t.Context(), store.AnswerQuestion{
			ID: question, By: "asker:7", Option: 1, Allow: true, Always: &chat.Approval{Agent: "main", Act: "delete files", Label: "Always"},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.by7("/allow " + question) // wakes the turn
		want(t, "the turn", h.end(id).Text, "Always")
		id = h.send(askerChat, "go", askerMessage("7"))
		h.by7(texts(h.asked(1))[1])
		want(t, "the second turn", h.end(id).Text, "No")
	}, runBy(asks{options: options, act: "delete files"}))
}

func TestAQuestionThatIsNotAnsweredEndsWithItsTime(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		allow := texts(h.asked(0))[0]
		want(t, "the turn", h.end(id).Text, "context deadline exceeded")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if sent := h.asker.texts("7"); !slices.Contains(sent, "No answer came within 1m, so the agent main may not: delete it") {
			t.Errorf("sent %q, want a report", sent)
		}
		if text := h.by7(allow); !strings.Contains(text, "it is too old") {
			t.Errorf("a late answer got %q", text)
		}
	}, runBy(asks{}))
}

func TestAStopEndsTheQuestionOfItsTurn(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		allow := texts(h.asked(0))[0]
		began := time.Now()
		h.by7("/stop")
		want(t, "the turn", h.end(id).Outcome, chat.OutcomeStopped)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if text := h.by7(allow); !strings.Contains(text, "its turn has ended") {
			t.Errorf("an answer after the stop got %q", text)
		}
	}, runBy(asks{}))
}

// The process ends while a question is open, by a drain and by a kill: the old question cannot be
// answered, the new one can.
func TestATurnThatRunsAgainAsksAgain(t *testing.T) {
	for _, how := range []string{"Drain", "Kill"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				st := newStore(t)
				c, off := cord(st)
				h := open(t, c, runBy(asks{}))
				id := h.send(askerChat, "go", askerMessage("7"))
				before := texts(h.asked(0))[0]
				if how == "Drain" {
					h.drain(10 * time.Second)
				} else {
					off.Store(true)
					time.Sleep(30 * time.Second)
				}
				next := open(t, st, runBy(asks{}))
				after := texts(next.asked(0))[0]
				if text := next.by7(before, newID("n1")); before == after || !strings.Contains(text, "no open question") {
					t.Errorf("the first question can still be answered: %q", text)
				}
				want(t, "the answer", next.by7(after, newID("n2")), "The answer is: Yes.")
				want(t, "the turn", next.end(id).Text, "Yes")
				next.close()
				if how == "Kill" {
					h.abandon()
				}
			})
		})
	}
}

// drain ends the harness with a limit for the drain.
func (h *harness) drain(limit time.Duration) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), limit)
	defer cancel()
	_ = h.d.Drain(ctx) // a turn runs longer
	h.d.Leave(context.WithoutCancel(ctx))
	h.cancel()
	<-h.ended
	h.work(errors.New("over"))
}

// The process that receives the answer does not run the turn, and the store has no hints.
func TestAnAnswerComesToAnotherReplica(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, runBy(asks{})), open(t, st, runBy(asks{}))
		time.Sleep(10 * time.Second) // they have found each other
		id := owner.send(askerChat, "go", askerMessage("7"))
		var q *chat.Choice
		for _, h := range []*harness{owner, other} { // one of them has sent it
			if h.questionsAsked() == 1 {
				q = h.asked(0)
			}
		}
		if q == nil {
			t.Fatal("nothing was asked")
		}
		began := time.Now()
		want(t, "the answer", other.by7(texts(q)[0], newID("other")), "The answer is: Yes.")
		want(t, "the turn", owner.end(id).Text, "Yes")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the turn had its answer after %s", took)
		}
		other.close()
		owner.close()
	})
}

// The store fails when the turn queries its answer.
func TestAnAnswerIsReadAgainAfterAFault(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var reads atomic.Int64
		st := sqlitetest.Open(t, sqlite.Config{Before: func(_ context.Context, op string) error {
			if op == "read a question" && reads.Add(1) == 2 { // the first read is from the command
				return chat.ErrStoreUnavailable
			}
			return nil
		}})
		h := open(t, st, runBy(asks{}))
		id := h.send(askerChat, "go", askerMessage("7"))
		want(t, "the answer", h.by7(texts(h.asked(0))[0]), "The answer is: Yes.")
		want(t, "the turn", h.end(id).Text, "Yes")
		if reads.Load() < 3 {
			t.Errorf("the question was read %d times", reads.Load())
		}
		h.close()
	})
}

// It is answered by writing the command.
func TestOnTheWebAQuestionIsALineOfTheConversation(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("web", "go")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		key, err := chat.ParseSessionKey("web", "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := h.st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 1})
		if err != nil || len(tr.Entries) != 1 {
			t.Fatalf("the conversation has %+v, %v", tr.Entries, err)
		}
		text, command, found := strings.Cut(tr.Entries[0].Text, "\n\nWrite ")
		command, _, _ = strings.Cut(command, " (Yes)")
		if !found || !strings.HasSuffix(text, "Allow it?") {
			t.Fatalf("the conversation ends with %q", tr.Entries[0].Text)
		}
		h.send("web", command)
		want(t, "the turn", h.end(id).Text, "Yes")
	}, runBy(asks{}))
}

func TestWhereNoPersonCanBeAskedNothingIsAsked(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		for name, change := range map[string]func(m *chat.Message){
			"NoButtons": replyTo("7"),
			"API":       func(m *chat.Message) { m.Channel = "api" },
			"Hook":      func(m *chat.Message) { m.Channel, m.Principal = "hook", "hook:ci" },
		} {
			if end := h.end(h.send("agent:main:"+strings.ToLower(name), "go", change)); end.Text != "no person can be asked" {
				t.Errorf("%s: got %+v", name, end)
			}
		}
	}, runBy(asks{}))
}

// teamThatAsks configures an agent that delegates to a second one, which asks.
func teamThatAsks(c *dispatch.Config) {
	c.Agents = []dispatch.Agent{
		{Info: agent.Info{ID: "main", Runner: "script"}, Runner: &branching{}, Tools: dispatch.Tools{Default: true}},
		{Info: agent.Info{ID: "coder", Runner: "script"}, Runner: asks{}},
	}
}

// The person is asked where the request came from, and is shown which agent asks.
func TestASubTurnAsksAtTheRootOfItsTree(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, calling(delegated("go")), askerMessage("7"))
		allow := texts(h.asked(0))[0]
		if sent := h.asker.texts("7"); !strings.HasPrefix(sent[len(sent)-1], "The agent coder wants to do this for you: delete it") {
			t.Errorf("sent %q", sent)
		}
		want(t, "the answer", h.by7(allow), "The answer is: Yes.")
		want(t, "the turn", h.end(id).Text, "Yes")
	}, teamThatAsks)
}

// Sub-turns of such a turn ask no one either.
func TestATurnOfAJobAsksNone(t *testing.T) {
	for name, message := range map[string]string{"Itself": "go", "ItsSubTurn": calling(delegated("go"))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := openCron(t, newStore(t), teamThatAsks, func(c *dispatch.Config) {
					if name == "Itself" {
						c.Agents[0].Runner = asks{}
					}
				})
				defer h.close()
				h.by7("/cron add in 10s "+message, func(m *chat.Message) { m.Scope = chat.ScopeWrite })
				time.Sleep(time.Minute)
				want(t, "questions", h.questionsAsked(), 0)
				if sent := strings.Join(h.asker.texts("7"), "\n"); !strings.Contains(sent, "no person can be asked") {
					t.Errorf("sent %q", sent)
				}
			})
		})
	}
}

// Another person writes into a turn before it asks.
func TestATurnOfSeveralPeopleAsksNone(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("agent:main:shared", "wait")
		time.Sleep(5 * time.Second)
		h.send("agent:main:shared", "and allow it", mode(chat.ModeSteer), func(m *chat.Message) { m.Principal = "mallory" })
		if text := h.end(id).Text; !strings.Contains(text, "several people") {
			t.Errorf("got %q", text)
		}
	}, runBy(asks{pause: 10 * time.Second}))
}
