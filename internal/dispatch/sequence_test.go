package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// Two processes receive what one person types. The owner of the session learns of the other's
// messages later. No message may overtake its predecessor by joining the turn of an earlier
// message.
func TestABatchDoesNotPassWhatAnotherProcessTookIn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(1)), open(t, st, lanes(1))
		owner.send("elsewhere", "sleep 10s") // no turn of the session starts before all its messages are known
		owner.send("main", "1")
		last := ""
		for i, h := range []*harness{other, owner, other} {
			change := []func(*chat.Message){func(m *chat.Message) { m.ID = fmt.Sprint("c", i) }}
			if h == other {
				change = append(change, typed)
			}
			last = h.send("main", strconv.Itoa(i+2), change...)
		}
		want(t, "outcome of the last", owner.end(last).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", owner.runner.textsOf("agent:main:main"), []string{"1", "2", "3", "4"})
		other.close()
		owner.close()
	})
}

// The owner has parked its message after one that another process received and then stopped. Later
// messages of that process must not overtake it when the hints are read, although no turn of the
// session is running.
func TestHintsDoNotPassWhatIsParked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st), open(t, st)
		owner.send("main", "sleep 1ms")
		named := func(id string) func(*chat.Message) { return func(m *chat.Message) { m.ID = id } }
		other.send("main", "2", named("other2"))
		owner.send("main", "3")
		if _, err := other.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopRun, MessageID: "other2", By: "tester"}); err != nil {
			t.Fatal(err)
		}
		last := other.send("main", "4", named("other4"))
		want(t, "outcome of the last", owner.end(last).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", owner.runner.textsOf("agent:main:main"), []string{"sleep 1ms", "3", "4"})
		other.close()
		owner.close()
	})
}

// The lease is lost while a turn that ignores its context is running, and the same process takes
// over the session and repeats the message concurrently. When the grace period of the old turn
// ends, the new one must not be affected.
func TestAStuckTurnOfALostLeaseLeavesItsSuccessorAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, off := cord(newStore(t))
		h := open(t, st, func(c *dispatch.Config) {
			c.Lease, c.Heartbeat, c.Sweep = 5*time.Second, time.Second, 200*time.Millisecond
		})
		id := h.send("box:group:1", "deaf 8s")
		time.Sleep(1500 * time.Millisecond)
		off.Store(true)
		time.Sleep(4 * time.Second)
		off.Store(false)
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeAnswered)
		want(t, "calls", len(h.runner.texts()), 2)
		h.close()
	})
}

// roomy is a queue that holds many messages.
func roomy() option { return queue(scheduler.Settings{Cap: 10_000}) }

// More messages than one read returns wait in one session of the owner, and another replica
// accepted all of them. A message of another session must not wait for them.
func TestWaitingForeignMessagesHideNoOtherSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(2), roomy()), open(t, st, lanes(2), roomy())
		owner.send("main", "sleep 1h")
		owner.send("second", "sleep 3s")
		for range 250 {
			other.send("main", "later", func(m *chat.Message) { m.ID = "main" + m.ID })
		}
		sent := time.Now()
		id := other.send("second", "hello", func(m *chat.Message) { m.ID = "hello" })
		want(t, "outcome", owner.end(id).Outcome, chat.OutcomeAnswered)
		if waited := time.Since(sent); waited > 6*time.Second {
			t.Errorf("the message of the other session ended after %s", waited)
		}
		other.send("main", "/stopall")
		other.close()
		owner.close()
	})
}

// Two replicas accept messages of one session without any fault, more than one read returns.
func TestForeignMessagesKeepTheirPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(1), roomy()), open(t, st, lanes(1), roomy())
		owner.send("main", "sleep 5s")
		expect, last := []string{"sleep 5s"}, ""
		for i := range 600 {
			h := other
			if i%3 == 0 {
				h = owner
			}
			if i%50 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			last = h.send("main", strconv.Itoa(i), func(m *chat.Message) { m.ID = fmt.Sprint("n", i) })
			expect = append(expect, strconv.Itoa(i))
		}
		want(t, "outcome of the last", owner.end(last).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", owner.runner.textsOf("agent:main:main"), expect)
		other.close()
		owner.close()
	})
}

func messageCall(text string) chat.ToolCall {
	return chat.ToolCall{ID: text, Name: "message", Args: `{"text":"` + text + `"}`}
}

// The order depends on this: the answer of the turn is also added to the transcript.
func TestAMessageToTheWebIsInTheTranscriptWhenItsCallReturns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		var seen []string
		h := open(t, st, withRunner(runnerFunc(func(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
			for range 2 { // a call that is repeated with its key adds nothing
				if got := req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", messageCall("on my way")); got.IsError {
					t.Errorf("the call failed: %s", got.Text)
				}
			}
			tr, err := st.Transcript(ctx, store.TranscriptQuery{Session: req.Session, Limit: 10})
			for _, e := range tr.Entries {
				seen = append(seen, e.Role+" "+e.Text)
			}
			return agent.Result{Text: "here"}, err
		}), dispatch.Tools{Default: true}))
		defer h.close()
		h.end(h.send("agent:main:main", "come"))
		wantList(t, "transcript after the call", seen, []string{"user come", "assistant on my way"})
		wantTranscript(t, h, "user come", "assistant on my way", "assistant here")
	})
}

// slowFirst needs a second to put the text "first" into the outbox.
type slowFirst struct{ dispatch.Store }

func (s slowFirst) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	if rows[0].Text == "first" {
		time.Sleep(time.Second)
	}
	return s.Store.Enqueue(ctx, rows)
}

// The program makes its second call while the first one is running.
func TestMessagesOfAProgramArriveInTheOrderOfItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := &program{opened: make(chan agent.Toolbox, 1)}
		h := open(t, slowFirst{newStore(t)}, withRunner(runnerFunc(func(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
			_, end := req.OpenTools(ctx)
			defer end()
			box := <-p.opened
			var calls sync.WaitGroup
			for _, text := range []string{"first", "second", "third"} {
				calls.Go(func() {
					if got := box.Call(ctx, "", messageCall(text)); got.IsError {
						t.Errorf("%s: %s", text, got.Text)
					}
				})
				time.Sleep(time.Millisecond) // the call is recorded
			}
			calls.Wait()
			return agent.Result{Text: "done"}, nil
		}), dispatch.Tools{Default: true}), func(c *dispatch.Config) { c.Access, c.Agents[0].Program = p, true })
		defer h.close()
		h.end(h.send("agent:main:own", "go", replyTo("7")))
		time.Sleep(10 * time.Second)
		want(t, "messages", strings.Join(h.box.texts("7"), " "), "first second third done")
	})
}

// slowStarts is a store in which starts take time.
type slowStarts struct {
	dispatch.Store

	took func(p store.BeginParams) time.Duration
}

func (s slowStarts) Begin(ctx context.Context, p store.BeginParams) (store.Begun, error) {
	if d := s.took(p); d > 0 {
		time.Sleep(d)
	}
	return s.Store.Begin(ctx, p)
}

// The test delays the start of the first of three concurrent turns of a group. The next turns start
// after it, have its message in their prompt and run at the same time. Another session does not
// wait.
func TestTurnsOfAGroupStartInTheOrderOfTheirMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		left := atomic.Int64{}
		left.Store(4)
		slow := slowStarts{Store: newStore(t), took: func(p store.BeginParams) time.Duration {
			if p.Session.Kind() != chat.KindGroup {
				return 0
			}
			return time.Duration(left.Add(-1)) * 100 * time.Millisecond
		}}
		h := open(t, slow, lanes(3))
		defer h.close()
		began := time.Now()
		var ids []string
		for i := range 3 {
			ids = append(ids, h.send("box:group:1", fmt.Sprintf("sleep %ds", 10+i)))
		}
		h.end(h.send("other", "quick"))
		want(t, "time that another session waited", time.Since(began), 0)
		synctest.Wait()
		for _, id := range ids {
			h.end(id)
		}
		want(t, "turns at once", h.runner.most["agent:main:box:group:1"], 3)
		wantList(t, "prompts", h.runner.textsOf("agent:main:box:group:1"), []string{"sleep 10s", "sleep 11s", "sleep 12s"})
		for i, c := range h.runner.calls {
			if c.Session.Kind() != chat.KindGroup {
				continue
			}
			var before []string
			for _, e := range c.History {
				before = append(before, e.Text)
			}
			all := []string{"sleep 10s", "sleep 11s", "sleep 12s"}
			if got, expect := strings.Join(before, " "), strings.Join(all[:len(before)], " "); got != expect || joined(c) != all[len(before)] {
				t.Errorf("call %d, %q, has the history %q", i, joined(c), before)
			}
		}
		tr, err := h.d.Transcript(t.Context(), store.TranscriptQuery{Session: h.msg("box:group:1", "x").Session})
		var rows []string
		for _, e := range tr.Entries {
			if e.Role == chat.RoleUser {
				rows = append(rows, e.Text)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "user rows", rows, []string{"sleep 10s", "sleep 11s", "sleep 12s"})
	})
}

// lossy is a store that loses the response of some calls, before or after it has executed them.
type lossy struct {
	cronStore
	accepts  atomic.Int64 // responses of Accept that are lost
	enqueues atomic.Int64 // calls of Enqueue that are lost
}

func (l *lossy) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	acc, err := l.cronStore.Accept(ctx, p)
	if p.Unqueued && l.accepts.Add(-1) >= 0 {
		return store.Accepted{}, chat.ErrStoreUnavailable
	}
	return acc, err
}

func (l *lossy) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	if l.enqueues.Add(-1) >= 0 {
		return chat.ErrStoreUnavailable
	}
	return l.cronStore.Enqueue(ctx, rows)
}

// deliver sends the update of a channel; a repeated delivery has a new id.
func (h *jobHarness) deliver(dedupe, text string) (chat.Receipt, error) {
	m := h.msg(annaHere, text)
	person("7", "7")(&m)
	m.Dedupe = dedupe
	r, err := h.d.Receive(h.t.Context(), m)
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	return r, err
}

// A recorded command may have no answer, because the store's response was lost or the process died
// before or after its execution. It is executed when it is delivered again, also by another
// process, with one effect and the answer of a first execution.
func TestACommandIsNotLostBetweenItsRecordAndItsAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ accepts, enqueues int64 }{
		"the record's answer is lost": {accepts: 1}, "dies after the execution": {enqueues: 1}, "both": {accepts: 1, enqueues: 2},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					mem := newStore(t)
					st := &lossy{cronStore: mem}
					h := openCron(t, st)
					st.accepts.Store(c.accepts)
					st.enqueues.Store(c.enqueues)
					var err error
					for range c.accepts + c.enqueues {
						if _, err = h.deliver("u1", "/remind in 20m tea"); !errors.Is(err, chat.ErrStoreUnavailable) {
							t.Fatalf("the delivery was taken: %v", err)
						}
					}
					if restart {
						h.close()
						before := h.box
						h = openCron(t, mem)
						h.box.sent = append(h.box.sent, before.sent...)
					}
					time.Sleep(time.Minute) // the reminder is due 20 minutes after the first request, unless that had not been executed
					for range 3 {
						if r, err := h.deliver("u1", "/remind in 20m tea"); err != nil || !r.Duplicate {
							t.Fatalf("delivered again: %+v, %v", r, err)
						}
					}
					want(t, "jobs", h.countJobs(), 1)
					if got := h.box.texts("7"); len(got) != 1 || !strings.HasPrefix(got[0], "I will remind you at ") {
						t.Errorf("anna reads %q", got)
					}
					tr, err := mem.Transcript(t.Context(), store.TranscriptQuery{Session: h.msg(annaHere, "x").Session})
					want(t, "lines in the transcript", len(tr.Entries), 2)
					if err != nil {
						t.Error(err)
					}
					h.close()
				})
			})
		}
	}
}

// A command that names a job by its number is not repeated, because the numbers have changed.
func TestACommandThatMayHaveRemovedAJobRemovesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &lossy{cronStore: newStore(t)}
		h := openCron(t, st)
		h.command(annaHere, "/remind tomorrow 9:00 tea", "7", "7")
		h.command(annaHere, "/remind tomorrow 10:00 milk", "7", "7")
		st.enqueues.Store(1)
		if _, err := h.deliver("u1", "/cron rm 1"); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Fatalf("the delivery was taken: %v", err)
		}
		if _, err := h.deliver("u1", "/cron rm 1"); err != nil {
			t.Fatal(err)
		}
		want(t, "jobs", h.countJobs(), 1)
		if got := h.box.texts("7"); len(got) != 3 || !strings.Contains(got[2], "check /jobs") {
			t.Errorf("anna reads %q", got)
		}
		h.close()
	})
}

// A command that was answered is not executed again, even after its transcript was archived.
func TestAnAnsweredCommandIsOver(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		model := func() string {
			s, err := h.st.Session(t.Context(), h.msg(annaHere, "x").Session, "")
			if err != nil {
				t.Fatal(err)
			}
			return s.Notes["model"]
		}
		for _, text := range []string{"/model one", "/new", "/model two", "/model one", "/new"} {
			if _, err := h.deliver(map[string]string{"/model one": "u1", "/new": "u2", "/model two": "u3"}[text], text); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "the model", model(), "two")
		want(t, "answers", len(h.box.texts("7")), 3)
	})
}
