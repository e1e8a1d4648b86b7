package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"laneway/internal/agent"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

const longSession = "agent:main:long"

// line returns a message of some 50 tokens with a fact.
func line(n int) string { return fmt.Sprintf("fact-%d ", n) + strings.Repeat("words ", 20) }

// talkUntil sends messages until done returns true.
func (h *harness) talkUntil(what string, done func() bool) {
	h.t.Helper()
	for n := range 200 {
		if end := h.end(h.send(longSession, line(n))); end.Outcome != chat.OutcomeAnswered {
			h.t.Fatalf("turn %d ended %+v", n, end)
		}
		if synctest.Wait(); done() {
			return
		}
	}
	h.t.Fatalf("not in 200 turns: %s", what)
}

// count reads a counter under the lock of the model.
func (s *scripted) count(of *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *of
}

// compactionSession returns the session in which a conversation is compacted.
func compactionSession(t *testing.T, st dispatch.Store) string {
	t.Helper()
	key, err := chat.ParseSessionKey(longSession, "main")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return "agent:main:cron:compact:" + tr.SessionID
}

// In a lane of one slot, no message waits for a summary.
func TestASummaryHoldsNoSlotOfItsLane(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
		h := open(t, newStore(t), compacting(model), lanes(1))
		for i := range 80 {
			before := time.Now()
			h.end(h.send(longSession, line(i)))
			if took := time.Since(before); took > 1100*time.Millisecond {
				t.Fatalf("message %d waited, its turn took %s", i, took)
			}
		}
		h.close()
		if model.count(&model.summarised) == 0 {
			t.Error("nothing was summarised")
		}
	})
}

// Summaries take no slots, so they have their own limit.
func TestSummariesAreWrittenEightAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
		h := open(t, newStore(t), compacting(model))
		const conversations = 20
		for i := range 40 {
			var ids []string
			for c := range conversations {
				ids = append(ids, h.send(fmt.Sprintf("agent:main:c%d", c), line(i)))
			}
			for _, id := range ids {
				h.end(id)
			}
		}
		time.Sleep(10 * time.Minute)
		h.close()
		model.mu.Lock()
		defer model.mu.Unlock()
		want(t, "summaries at once", model.mostSums, 8)
		if model.summarised < conversations {
			t.Errorf("%d summaries of %d conversations", model.summarised, conversations)
		}
	})
}

// Its message was ended while it waited for a slot, so this process has seen no turn of it.
func TestACompactionThatNeverRanIsBegunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 4000, takes: time.Second, sums: time.Second}
		h := open(t, st, compacting(model), func(c *dispatch.Config) {
			c.Lanes = []scheduler.Lane{{Name: "main", Limit: 1}, {Name: "team", Limit: 1}}
		})
		inTeam := func(m *chat.Message) { m.Lane = "team" }
		waiting := func() bool {
			key, err := chat.ParseSessionKey(compactionSession(t, st), "main")
			if err != nil {
				t.Fatal(err)
			}
			rows, _, err := st.PendingInputs(t.Context(), key, 0, 10)
			return err == nil && len(rows) > 0
		}
		model.hold.Store(true)
		blocker := h.send("agent:main:blocker", "held") // in the lane of compactions
		for n := 0; !waiting(); n++ {
			if n == 100 {
				t.Fatal("no compaction was begun")
			}
			h.end(h.send(longSession, line(n), inTeam))
			synctest.Wait()
		}
		h.end(h.send(compactionSession(t, st), "/stopall", typed))
		h.end(h.send("agent:main:blocker", "/stop", typed))
		h.end(blocker)
		model.hold.Store(false)
		time.Sleep(16 * time.Minute)
		h.talkUntil("a summary", func() bool { list, _ := summaries(t, st, longSession); return len(list) > 0 })
		h.close()
	})
}

// The part of the summary that was written is neither sent nor stored in a session that a deletion
// of the conversation would not reach.
func TestAStoppedCompactionLeavesNoneOfItsText(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 8000, takes: time.Second, sums: time.Hour, writes: "They said fact-0 and "}
		h := open(t, st, compacting(model))
		for i := range 12 {
			h.end(h.send(longSession, line(i), replyTo("1")))
		}
		h.end(h.send(longSession, "/compact", replyTo("1"), typed))
		time.Sleep(10 * time.Second)
		session := compactionSession(t, st)
		h.end(h.send(session, "/stop", typed))
		time.Sleep(10 * time.Second)
		key, err := chat.ParseSessionKey(session, "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key})
		if err != nil || len(tr.Entries) == 0 {
			t.Fatalf("the session of the compaction has %d rows, %v", len(tr.Entries), err)
		}
		for _, e := range tr.Entries {
			if strings.Contains(e.Text, "fact-0") {
				t.Errorf("its transcript has %q", e.Text)
			}
		}
		for _, text := range h.box.texts("1") {
			if strings.Contains(text, "They said") {
				t.Errorf("the person got %q", text)
			}
		}
		list, _ := summaries(t, st, longSession)
		want(t, "summaries", len(list), 0)
		h.close()
	})
}

// The summary of the old conversation is not added to the new one.
func TestAResetOrDeletionBesideACompactionLeavesNoSummary(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	ends := map[string]func(h *harness){
		"reset": func(h *harness) { h.end(h.send(longSession, "/reset", typed)) },
		"delete": func(h *harness) {
			key := chat.SessionKey{Agent: "main", Rest: "long"}
			if out, err := h.d.Delete(h.t.Context(), store.DeleteParams{Session: key}, chat.Caller{Principal: "tester"}); err != nil || !out.Deleted {
				h.t.Fatalf("%+v, %v", out, err)
			}
		},
	}
	for name, end := range ends {
		for kind, openStore := range stores(t) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := openStore(t)
					model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
					h := open(t, st, compacting(model))
					h.end(h.send(longSession, "fact-9999"))
					h.talkUntil("a summary is being written", func() bool { return model.count(&model.summing) > 0 })
					end(h)
					h.end(h.send(longSession, "hello again"))
					time.Sleep(2 * time.Minute)
					list, rows := summaries(t, st, longSession)
					if len(list) != 0 || rows > 4 { // a command, its answer, a message, its answer
						t.Errorf("%d summaries in %d rows: %+v", len(list), rows, list)
					}
					h.talkUntil("the new conversation has a summary", func() bool { list, _ := summaries(t, st, longSession); return len(list) > 0 })
					model.mu.Lock()
					if strings.Contains(model.conversation, "fact-9999") {
						t.Errorf("the new conversation has the old one:\n%s", model.conversation)
					}
					model.mu.Unlock()
					h.close()
					if err := st.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The turns of the conversation run alternately on the two replicas.
func TestTwoReplicasCompactAConversationOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for kind, openStore := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := openStore(t)
				model := &scripted{window: 4000, takes: time.Second, sums: 10 * time.Second}
				a, b := open(t, st, compacting(model)), open(t, st, compacting(model))
				b.n.Store(100_000)
				const turns = 150
				for i := range turns {
					h := a
					if i%2 == 1 {
						h = b
					}
					if end := h.end(h.send(longSession, line(i))); end.Outcome != chat.OutcomeAnswered {
						t.Fatalf("turn %d ended %+v", i, end)
					}
				}
				time.Sleep(time.Minute)
				a.close()
				b.close()
				list, rows := summaries(t, st, longSession)
				model.mu.Lock()
				defer model.mu.Unlock()
				if len(list) < 5 || rows != 2*turns+len(list) || model.summarised != len(list) || model.over > 0 {
					t.Errorf("%d summaries in %d rows, the model has written %d; %d requests over the window", len(list), rows, model.summarised, model.over)
				}
				for i, e := range list {
					if i > 0 && e.Covers.To <= list[i-1].Covers.To {
						t.Errorf("summary %d covers %+v after %+v", i, e.Covers, list[i-1].Covers)
					}
				}
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The other replica has made the summary that this one started.
func TestAReplicaThatLostItsLeaseCompactsAgainLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		model := &scripted{window: 4000, takes: time.Second, sums: 10 * time.Second}
		h := open(t, c, compacting(model))
		h.talkUntil("a summary is being written", func() bool { return model.count(&model.summing) > 0 })
		off.Store(true)
		other := open(t, st, compacting(model))
		time.Sleep(40 * time.Second)
		list, _ := summaries(t, st, longSession)
		want(t, "summaries after the takeover", len(list), 1)
		off.Store(false)
		other.close()
		time.Sleep(16 * time.Minute)
		h.talkUntil("a second summary", func() bool { list, _ := summaries(t, st, longSession); return len(list) > 1 })
		h.close()
	})
}

// unanswered is a store that adds a summary and loses the response.
type unanswered struct {
	cronStore

	lost atomic.Int64
}

func (u *unanswered) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	e, added, err = u.cronStore.AppendSummary(ctx, p)
	if u.lost.Add(-1) >= 0 {
		return chat.TranscriptEntry{}, false, chat.ErrStoreUnavailable
	}
	return e, added, err
}

// The person is informed that the summary was made.
func TestASummaryWhoseCommitWasNotAnsweredIsReported(t *testing.T) {
	for kind, openStore := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &unanswered{cronStore: openStore(t)}
				model := &scripted{window: 8000, takes: time.Second, sums: time.Second}
				h := open(t, st, compacting(model))
				for i := range 12 {
					h.end(h.send(longSession, line(i), replyTo("1")))
				}
				st.lost.Store(2)
				h.end(h.send(longSession, "/compact", replyTo("1"), typed))
				time.Sleep(time.Minute)
				texts := h.box.texts("1")
				if last := texts[len(texts)-1]; !strings.HasPrefix(last, "Summarised the rows 1 to ") {
					t.Errorf("the person got %q", last)
				}
				list, _ := summaries(t, st, longSession)
				want(t, "summaries", len(list), 1)
				h.close()
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The job uses one conversation for months.
func TestTheSharedSessionOfAJobIsCompacted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 4000, takes: time.Second, sums: 10 * time.Second}
		h := openCron(t, st, compacting(model))
		h.put(cron.Job{ID: "watch", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000}, Payload: cron.Payload{Text: line(0)}}, func(j *cron.Job) { j.Session = "session:" + longSession })
		time.Sleep(2 * time.Hour)
		h.close()
		runs := h.runs("watch")
		for _, r := range runs {
			if r.State != cron.RunOK {
				t.Fatalf("run %s is %s, %s", r.ID, r.State, r.Error)
			}
		}
		list, _ := summaries(t, st, longSession)
		if len(runs) < 100 || len(list) < 4 || model.over > 0 {
			t.Errorf("%d runs, %d summaries, %d requests over the window", len(runs), len(list), model.over)
		}
	})
}

// countingEndpoint is an endpoint that counts a token for a number of letters, and one for each
// character of another script. It refuses input larger than its window. With tools it makes one
// call in each turn of a person.
type countingEndpoint struct {
	window   int
	perToken float64
	tools    bool

	mu        sync.Mutex
	turn      int // tokens of the last request of a person's turn
	summaries []int
	most      int
	refused   int
}

type endpointRequest struct {
	Messages []struct {
		Role      string
		Content   string
		ToolCalls []json.RawMessage `json:"tool_calls"` //nolint:tagliatelle // as the API names it
	}
	Tools []json.RawMessage
}

// RoundTrip implements [http.RoundTripper].
func (e *countingEndpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var req endpointRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, m := range req.Messages {
		all.WriteString(m.Role + m.Content)
		for _, c := range m.ToolCalls {
			all.Write(c)
		}
	}
	for _, tool := range req.Tools {
		all.Write(tool)
	}
	letters, others := 0, 0
	for _, r := range all.String() {
		if r < unicode.MaxASCII {
			letters++
		} else {
			others++
		}
	}
	tokens := int(float64(letters)/e.perToken) + others
	if !strings.HasPrefix(req.Messages[0].Content, "You keep the notes") {
		time.Sleep(time.Second) // in the time of the bubble: a summary is faster than a turn
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.most = max(e.most, tokens)
	answer := func(status int, v any) (*http.Response, error) {
		text, err := json.Marshal(v)
		return &http.Response{
			StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))),
		}, err
	}
	if tokens > e.window {
		e.refused++
		return answer(http.StatusBadRequest, map[string]any{"error": map[string]any{"message": "maximum context length exceeded"}})
	}
	message := map[string]any{"role": "assistant", "content": "Noted. " + strings.Repeat("yes ", 40)}
	switch last := req.Messages[len(req.Messages)-1]; {
	case strings.HasPrefix(req.Messages[0].Content, "You keep the notes"):
		e.summaries = append(e.summaries, e.turn)
		message["content"] = "They talked."
	case e.tools && last.Role == "user" && len(req.Tools) > 0:
		message = map[string]any{"role": "assistant", "content": "", "tool_calls": []any{map[string]any{
			"id": "a", "type": "function", "function": map[string]any{"name": "sessions", "arguments": `{"action":"list"}`},
		}}}
	default:
		e.turn = tokens
	}
	return answer(http.StatusOK, map[string]any{
		"model": "m", "choices": []any{map[string]any{"message": message, "finish_reason": "stop"}},
		"usage": map[string]any{"prompt_tokens": tokens, "completion_tokens": int(180 / e.perToken)},
	})
}

// open starts a gateway whose only agent is the endpoint.
func (e *countingEndpoint) open(t *testing.T, st dispatch.Store) *harness {
	t.Helper()
	gauge := agent.NewGauge("e")
	runner, err := openai.New(openai.Config{BaseURL: "http://model", Model: "m", ContextWindow: e.window, Gauge: gauge}, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := build(t, st, func(c *dispatch.Config) {
		a := &c.Agents[0]
		a.Runner, a.Gauge, a.ContextWindow, a.Compacts, a.Info.Model, a.Tools = runner, gauge, e.window, true, "m", dispatch.Tools{Default: e.tools}
	})
	if err := h.d.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start()
	return h
}

// With any tokenizer and messages of 4 % of the window, nothing larger than the window is ever
// sent.
func TestCompactionStartsWhenTheProviderCountsThreeQuarters(t *testing.T) {
	const window = 16_000
	for _, perToken := range []float64{2, 3.3, 4} {
		for _, tools := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v characters a token, tools %t", perToken, tools), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					e := &countingEndpoint{window: window, perToken: perToken, tools: tools}
					h := e.open(t, newStore(t))
					text := strings.Repeat("we talk of roses, ", int(window*0.04*perToken)/18)
					for i := range 90 {
						if end := h.end(h.send("agent:main:long", text)); end.Outcome != chat.OutcomeAnswered {
							t.Fatalf("turn %d ended %+v", i, end)
						}
					}
					h.close()
					e.mu.Lock()
					defer e.mu.Unlock()
					if len(e.summaries) < 2 {
						t.Fatalf("there were %d compactions in 90 turns", len(e.summaries))
					}
					for i, tokens := range e.summaries {
						if fill := float64(tokens) / window; fill < 0.70 || fill > 0.80 {
							t.Errorf("compaction %d started when the provider counted %.0f %% of the window, want 70 to 80", i+1, 100*fill)
						}
					}
					if e.refused > 0 || e.most > window {
						t.Errorf("%d requests were larger than the window; the largest has %.0f %% of it", e.refused, 100*float64(e.most)/window)
					}
					t.Logf("compactions started at %v of %d tokens; the largest request has %.0f %%", e.summaries, window, 100*float64(e.most)/window)
				})
			})
		}
	}
}

// A token has four letters, or one of the characters that follow.
func TestAConversationThatChangesItsScriptStaysInItsWindow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := &countingEndpoint{window: 16_000, perToken: 4}
		h := e.open(t, newStore(t))
		for i := range 120 {
			text := strings.Repeat("we talk of roses, ", 140)
			if i/20%2 == 1 {
				text = strings.Repeat("玫瑰在花园里开放。", 80)
			}
			if end := h.end(h.send("agent:main:long", text)); end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("turn %d ended %+v", i, end)
			}
		}
		if end := h.end(h.send("agent:main:new", strings.Repeat("玫瑰在花园里开放。", 1000))); end.Outcome != chat.OutcomeAnswered {
			t.Errorf("a first message in another script ended %+v", end)
		}
		h.close()
		if e.refused > 0 || e.most > e.window {
			t.Errorf("%d requests were larger than the window; the largest has %d of %d tokens", e.refused, e.most, e.window)
		}
	})
}

// A conversation that fills 60 % of the window by the provider's count is not compacted by the next
// process.
func TestARestartKeepsHowAnEndpointCountsTokens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e, st := &countingEndpoint{window: 16_000, perToken: 4}, newStore(t)
		say := func(h *harness, id string) {
			text := strings.Repeat("we talk of roses, ", 140)
			if end := h.end(h.send("agent:main:long", text, func(m *chat.Message) { m.ID = id })); end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("a turn ended %+v", end)
			}
		}
		h := e.open(t, st)
		for i := range 14 {
			say(h, fmt.Sprint("before", i))
		}
		h.close()
		h = e.open(t, st)
		say(h, "after")
		h.close()
		if fill := float64(e.turn) / float64(e.window); fill < 0.55 || len(e.summaries) > 0 {
			t.Errorf("after the restart the provider counts %.0f %% of the window, and there were %d compactions; want the whole conversation", 100*fill, len(e.summaries))
		}
	})
}
