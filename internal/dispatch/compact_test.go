package dispatch_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
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
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// scripted is a model with a window: it counts its input, refuses input that is too large, and its
// summaries keep the facts (words such as fact-7).
type scripted struct {
	window       int
	takes, sums  time.Duration // durations of a turn and of a summary
	fails        atomic.Bool   // summaries fail
	hold         atomic.Bool   // a turn with the word held runs until it is stopped
	writes       string        // what it has written of a summary before it waits
	release      chan struct{} // a summary waits until this is closed; nil = it takes the time sums
	mu           sync.Mutex
	largest      int
	over, asked  int
	summarised   int
	summing      int      // summaries that are being written
	mostSums     int      // maximum of summing
	inputs       int      // tokens of all requests
	facts        []string // in the last request of a person's turn
	conversation string   // that request
}

var factWord = regexp.MustCompile(`fact-\d+`)

// answerTokens is the part of the window that is reserved for an answer.
func (s *scripted) answerTokens() int { return s.window / 4 }

func (s *scripted) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	isSummary := strings.HasPrefix(req.SystemPrompt, "You keep the notes")
	reserve := s.answerTokens()
	if most, ok := req.Params["max_tokens"].(int); ok {
		reserve = most
	}
	system, lines := agent.Conversation(req, "", agent.Room{Window: s.window, Reserve: reserve})
	total := agent.EstimateTokens(system) + reserve
	var texts strings.Builder
	for _, line := range lines {
		total += agent.EstimateTokens(line.Text) + 6
		texts.WriteString(line.Text + "\n")
	}
	all := texts.String()
	takes := s.takes
	if isSummary {
		takes = s.sums
		s.sum(1)
		defer s.sum(-1)
		emit(agent.Event{Kind: agent.EventDelta, Text: s.writes})
	}
	if s.hold.Load() && agent.Prompt(req) == "held" {
		takes = time.Hour
	}
	timer := time.NewTimer(takes)
	select {
	case <-timer.C:
	case <-s.released(isSummary):
	case <-ctx.Done():
		return agent.Result{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.inputs += total - reserve
	s.largest = max(s.largest, total)
	if total > s.window {
		s.over++
		return agent.Result{}, agent.NewError(chat.FailContextLength, "too long", nil)
	}
	facts := slices.Compact(slices.Sorted(slices.Values(factWord.FindAllString(all, -1))))
	answer := "Noted. " + strings.Repeat("yes ", 30)
	used := chat.Usage{InputTokens: total - reserve, OutputTokens: agent.EstimateTokens(answer), Model: "m"}
	if isSummary {
		if s.fails.Load() {
			return agent.Result{}, agent.NewError(chat.FailServer, "no summary today", nil)
		}
		s.summarised++
		return agent.Result{Text: "They said " + strings.Join(facts, " "), Usage: used}, nil
	}
	s.facts, s.conversation = facts, all
	return agent.Result{Text: answer, Usage: used}, nil
}

// released returns what a summary waits for in addition to its time.
func (s *scripted) released(isSummary bool) <-chan struct{} {
	if !isSummary {
		return nil
	}
	return s.release
}

// sum counts concurrent summaries.
func (s *scripted) sum(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summing += n
	s.mostSums = max(s.mostSums, s.summing)
}

func compacting(s *scripted) option {
	return func(c *dispatch.Config) {
		c.Agents[0].Runner, c.Agents[0].Compacts, c.Agents[0].ContextWindow = s, true, s.window
	}
}

// summaries returns the entries of a transcript that cover other entries, and its length.
func summaries(t *testing.T, st dispatch.Store, session string) (list []chat.TranscriptEntry, rows int) {
	t.Helper()
	key, err := chat.ParseSessionKey(session, "main")
	if err != nil {
		t.Fatal(err)
	}
	for after := int64(0); ; {
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key, After: after, FromStart: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Entries) == 0 {
			return list, rows
		}
		rows += len(tr.Entries)
		for _, e := range tr.Entries {
			if after = e.Seq; e.Covers.To > 0 {
				list = append(list, e)
			}
		}
	}
}

// The test has 600 turns, 2,000 in make chaos. The window is never exceeded, no turn waits, and
// nothing is deleted.
func TestManyTurnsInAWindowOfEightThousandTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inBubble(t, func(t *testing.T) {
		turns := testrun.Size(600, 2000)
		st := newStore(t)
		model := &scripted{window: 8000, takes: time.Second, sums: 20 * time.Second}
		h := open(t, st, compacting(model))
		slowest := time.Duration(0)
		for i := range turns {
			text := fmt.Sprintf("Message %d. %s", i, strings.Repeat("we talk about this and that ", 3))
			if i%100 == 0 {
				text += fmt.Sprintf(" fact-%d", i/100)
			}
			before := time.Now()
			end := h.end(h.send("agent:main:long", text))
			slowest = max(slowest, time.Since(before))
			if end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("turn %d ended %+v", i, end)
			}
		}
		h.close()
		list, rows := summaries(t, st, "agent:main:long")
		model.mu.Lock()
		defer model.mu.Unlock()
		if model.over > 0 || model.largest > model.window {
			t.Errorf("%d requests were larger than the window of %d; the largest has %d", model.over, model.window, model.largest)
		}
		if slowest > 1100*time.Millisecond {
			t.Errorf("a turn took %s; a summary takes %s, and no turn may wait for it", slowest, model.sums)
		}
		if rows != 2*turns+len(list) || len(list) < turns/200 || len(list) != model.summarised {
			t.Errorf("%d rows with %d summaries of %d, want %d messages and answers", rows, len(list), model.summarised, 2*turns)
		}
		last := int64(0)
		for _, e := range list {
			if e.Covers.From != 1 || e.Covers.To <= last || e.Seq <= e.Covers.To {
				t.Errorf("a summary covers %+v after %d", e.Covers, last)
			}
			last = e.Covers.To
		}
		if len(model.facts) != turns/100 {
			t.Errorf("the last request has the facts %v, want %d", model.facts, turns/100)
		}
		t.Logf("%d turns, %d compactions, %d requests with %d input tokens, the largest of %d with its answer, slowest turn %s",
			turns, len(list), model.asked, model.inputs, model.largest, slowest)
	})
}

// A job that writes each minute of a day beside a conversation takes at most a tenth of the window,
// also after a restart, and no compaction is paid for it.
func TestFrequentJobTakesATenthOfTheWindow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 8000, takes: time.Second, sums: time.Second}
		h := open(t, st, compacting(model))
		size := func(session, text string) int {
			model.mu.Lock()
			before := model.inputs
			model.mu.Unlock()
			sent := h.send(session, text, func(m *chat.Message) { m.ID = session + strings.Fields(text)[1] }) // unlike those before a restart
			if end := h.end(sent); end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("%s: %+v", text, end)
			}
			model.mu.Lock()
			defer model.mu.Unlock()
			return model.inputs - before
		}
		busy, err := chat.ParseSessionKey("agent:main:busy", "main")
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		for hour := range 24 {
			for minute := range 60 {
				e := chat.TranscriptEntry{
					RunID: fmt.Sprint("run-", hour, "-", minute), Role: chat.RoleAssistant, Text: fmt.Sprintf("Minute %d of hour %d: %s", minute, hour, strings.Repeat("all is well ", 6)),
					Origin: &chat.Origin{Kind: chat.OriginJob, Job: "j1", Name: "minutely", By: "agent:main:cron:j1"},
				}
				if _, err := h.st.AppendTranscript(t.Context(), busy, "tester", []chat.TranscriptEntry{e}); err != nil {
					t.Fatal(err)
				}
			}
			if hour%8 == 7 {
				h.close()
				h = open(t, st, compacting(model))
			}
			text := fmt.Sprintf("Hour %d. %s", hour, strings.Repeat("we talk about this and that ", 3))
			quiet := size("agent:main:quiet", text)
			most = max(most, size(busy.String(), text)-quiet)
			model.mu.Lock()
			if !strings.Contains(model.conversation, fmt.Sprintf("Minute 59 of hour %d:", hour)) || !strings.Contains(model.conversation, "job minutely ") {
				t.Errorf("hour %d: the newest of the job is missing: %s", hour, model.conversation)
			}
			model.mu.Unlock()
		}
		if most > model.window/10+50 { // and the line that counts
			t.Errorf("the job takes %d tokens of %d", most, model.window)
		}
		want(t, "summaries", model.summarised, 0)
		t.Logf("1,440 entries of a job take at most %d tokens of %d", most, model.window)
		h.close()
	})
}

// The turns use what fits, and a summary is attempted again after a while.
func TestAConversationGoesOnWhenItsSummariesFail(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 4000, takes: time.Second, sums: time.Second}
		model.fails.Store(true)
		h := open(t, st, compacting(model))
		for i := range 120 {
			if end := h.end(h.send("agent:main:long", fmt.Sprintf("fact-%d ", i)+strings.Repeat("words ", 20))); end.Outcome != chat.OutcomeAnswered {
				t.Fatalf("turn %d ended %+v", i, end)
			}
		}
		list, _ := summaries(t, st, "agent:main:long")
		want(t, "summaries", len(list), 0)
		model.fails.Store(false)
		for range 3 {
			time.Sleep(2 * time.Minute)
			h.end(h.send("agent:main:long", "hello"))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		list, _ = summaries(t, st, "agent:main:long")
		if len(list) == 0 || model.over > 0 {
			t.Errorf("%d summaries, %d requests over the window", len(list), model.over)
		}
		h.close()
	})
}

// A summary does not count among the concurrent turns of a chat user.
func TestAPersonOfOneTurnAtOnceDoesNotWaitForASummary(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
		h := open(t, newStore(t), compacting(model), func(c *dispatch.Config) { c.UserTurns = 1 })
		for i := range 80 {
			before := time.Now()
			h.end(h.send("agent:main:box:direct:7", fmt.Sprintf("fact-%d ", i)+strings.Repeat("words ", 20), func(m *chat.Message) { m.Principal = "telegram:1:7" }))
			if took := time.Since(before); took > 1100*time.Millisecond {
				t.Fatalf("message %d waited, its turn took %s", i, took)
			}
		}
		h.close()
		model.mu.Lock()
		defer model.mu.Unlock()
		if model.summarised == 0 {
			t.Error("nothing was summarised")
		}
	})
}

func TestCompactByHand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 8000, takes: time.Second, sums: time.Hour, release: make(chan struct{})}
		h := open(t, st, compacting(model))
		say := func(text string, change ...func(*chat.Message)) string {
			before := len(h.box.texts("1"))
			h.send("agent:main:a", text, append(change, replyTo("1"))...)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			return strings.Join(h.box.texts("1")[before:], "|")
		}
		want(t, "/compact without a conversation", say("/compact"), "There's nothing to summarise here.")
		for i := range 12 {
			say(fmt.Sprintf("fact-%d ", i) + strings.Repeat("words ", 30))
		}
		want(t, "/compact", say("/compact"), "The older part of this conversation is being summarised. You can continue meanwhile.")
		for range 2 {
			want(t, "another /compact meanwhile", say("/compact"), "This conversation is already being summarised. You can continue meanwhile.")
		}
		if text := say("and meanwhile"); !strings.HasPrefix(text, "Noted.") {
			t.Errorf("a message during a compaction was answered %q", text)
		}
		close(model.release)
		time.Sleep(time.Minute)
		list, rows := summaries(t, st, "agent:main:a")
		if len(list) != 1 || rows != 35 { // the commands and their answers are entries, too
			t.Fatalf("%d summaries in %d rows, want 1 in 35", len(list), rows)
		}
		model.mu.Lock()
		want(t, "requests for a summary after three commands", model.summarised, 1)
		model.mu.Unlock()
		if texts := h.box.texts("1"); !slices.ContainsFunc(texts, func(s string) bool { return strings.HasPrefix(s, "Summarised ") }) {
			t.Errorf("the person got %q", texts)
		}
		say("and now")
		model.mu.Lock()
		defer model.mu.Unlock()
		if !strings.HasPrefix(model.conversation, "[note] Summary of the conversation so far: They said fact-0") || len(model.facts) != 12 {
			t.Errorf("the next request is\n%s", model.conversation)
		}
		if n := strings.Count(model.conversation, "fact-0"); n != 1 {
			t.Errorf("the first message is in the next request besides its summary (%d times)", n)
		}
		h.close()
	})
}

func TestCompactIsRefusedWhereThereIsNoWindow(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		h.send("agent:main:a", "/compact", typed, replyTo("1"))
		synctest.Wait()
		wantList(t, "the answer", h.box.texts("1"), []string{"/compact failed: this agent keeps its conversations by itself; there is nothing to summarise."})
	})
}

// reporting is a model whose endpoint counts tokens differently.
type reporting struct {
	*scripted

	tokens atomic.Int64
}

func (r *reporting) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	res, err := r.scripted.Run(ctx, req, emit)
	res.Usage.InputTokens = int(r.tokens.Load())
	return res, err
}

// The estimate errs high; a session is throttled by the reported count if there is one.
func TestTheThrottleCountsWhatTheProviderCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 8000, takes: time.Second, sums: time.Second}
		counts := &reporting{scripted: model}
		counts.tokens.Store(1000)
		h := open(t, st, compacting(model), func(c *dispatch.Config) { c.Agents[0].Runner = counts },
			queue(scheduler.Settings{Cap: 100, MaxConcurrent: 3}))
		for range 6 {
			h.end(h.send("agent:main:a", strings.Repeat("words ", 250)))
		}
		most := func() int {
			var ids []string
			for range 3 {
				ids = append(ids, h.send("agent:main:a", "side by side"))
			}
			time.Sleep(100 * time.Millisecond)
			n := h.active("main")
			for _, id := range ids {
				h.end(id)
			}
			return n
		}
		want(t, "turns at once at 1,000 of 8,000 tokens, estimated as more than 4,800", most(), 3)
		counts.tokens.Store(5000)
		h.end(h.send("agent:main:a", "one more"))
		want(t, "turns at once at 5,000 tokens", most(), 1)
		h.close()
	})
}

// stores returns the stores of a test in virtual time, each empty. Their goroutines end within the
// bubble.
func stores(t *testing.T) map[string]modelStore {
	t.Helper()
	list := map[string]modelStore{"sqlite": sqliteModel}
	postgres := postgresModel(testpg.DB(t))
	list["postgres"] = func(t *testing.T) cronStore { return unwoken{postgres(t)} }
	return list
}

// unwoken is a store on PostgreSQL without notifications: a connection that listens would keep the
// clock of a bubble from advancing.
type unwoken struct{ cronStore }

// The test kills the process before and after each store operation of a compaction.
func TestAKillInAnyStepOfACompactionLeavesOneSummary(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for kind, open := range stores(t) {
		for _, step := range []string{"Accept", "Begin", "Yield", "Transcript", "AppendSummary", "Finish"} {
			for _, done := range []bool{false, true} { // killed before or after the operation
				t.Run(fmt.Sprintf("%s/%s/%t", kind, step, done), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						st := open(t)
						killInCompaction(t, st, step, done)
						if err := st.Close(); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

func killInCompaction(t *testing.T, plain cronStore, step string, done bool) {
	t.Helper()
	first := newDoomed(plain, step, done)
	model := &scripted{window: 4000, takes: 10 * time.Millisecond, sums: time.Second}
	h := open(t, first, compacting(model))
	for i := range 30 {
		h.end(h.send("agent:main:long", fmt.Sprintf("fact-%d ", i)+strings.Repeat("words ", 4)))
	}
	list, rows := summaries(t, plain, "agent:main:long")
	if len(list) != 0 {
		t.Fatalf("there are %d summaries already", len(list))
	}
	first.armed.Store(true)
	m := h.msg("agent:main:long", "/compact")
	m.Content.Options.Typed = true
	if _, err := h.d.Receive(t.Context(), m); err != nil {
		t.Logf("the command was answered with %v", err)
	}
	time.Sleep(5 * time.Second)
	if !first.off.Load() {
		t.Fatalf("a compaction does not call %s", step)
	}
	next := open(t, plain, compacting(model))
	next.n.Store(1000)
	time.Sleep(time.Minute)
	synctest.Wait()
	want(t, "the outcome of the next turn", next.end(next.send("agent:main:long", "hello")).Outcome, chat.OutcomeAnswered)
	if list, _ = summaries(t, plain, "agent:main:long"); len(list) == 0 && (step == "Accept" || step == "Transcript") { // the command was not executed
		next.send("agent:main:long", "/compact", typed)
	}
	time.Sleep(time.Minute)
	list, now := summaries(t, plain, "agent:main:long")
	if len(list) != 1 || now < rows+3 {
		t.Errorf("%d summaries in %d rows (%d before): %+v", len(list), now, rows, list)
	}
	next.close()
	h.abandon()
}

// doomed is a store whose process is killed before or after one operation, once it is armed.
type doomed struct {
	*power

	step  string
	done  bool
	armed atomic.Bool
}

func newDoomed(st cronStore, step string, done bool) *doomed {
	return &doomed{power: &power{cronStore: st, off: &atomic.Bool{}}, step: step, done: done}
}

// at runs an operation, and ends the process before or after it.
func (d *doomed) at(ctx context.Context, step string, run func() error) error {
	mine := d.armed.Load() && step == d.step
	if mine && !d.done {
		d.off.Store(true)
	}
	if err := d.dead(ctx); err != nil {
		return err
	}
	err := run()
	if mine {
		d.off.Store(true)
		return d.dead(ctx)
	}
	return err
}

func (d *doomed) Accept(ctx context.Context, p store.AcceptParams) (out store.Accepted, err error) {
	err = d.at(ctx, "Accept", func() (err error) { out, err = d.power.Accept(ctx, p); return err })
	return out, err
}

func (d *doomed) Begin(ctx context.Context, p store.BeginParams) (out store.Begun, err error) {
	err = d.at(ctx, "Begin", func() (err error) { out, err = d.power.Begin(ctx, p); return err })
	return out, err
}

func (d *doomed) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	return d.at(ctx, "Yield", func() error { return d.power.Yield(ctx, c, runID, away) })
}

func (d *doomed) Transcript(ctx context.Context, q store.TranscriptQuery) (out store.Transcript, err error) {
	err = d.at(ctx, "Transcript", func() (err error) { out, err = d.power.Transcript(ctx, q); return err })
	return out, err
}

func (d *doomed) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	err = d.at(ctx, "AppendSummary", func() (err error) { e, added, err = d.power.AppendSummary(ctx, p); return err })
	return e, added, err
}

func (d *doomed) Finish(ctx context.Context, p store.FinishParams) (out store.Finished, err error) {
	err = d.at(ctx, "Finish", func() (err error) { out, err = d.power.Finish(ctx, p); return err })
	return out, err
}

func (d *doomed) Record(ctx context.Context, c store.Claim, runID string, row store.JournalRow) error {
	return d.at(ctx, "Record "+row.Kind, func() error { return d.power.Record(ctx, c, runID, row) })
}
