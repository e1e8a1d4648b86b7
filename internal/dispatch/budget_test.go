package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/usage"
)

// spender is a runner of a model that requests a call in each of its rounds and uses a hundred
// tokens in each. The text of a message is the number of rounds.
type spender struct {
	takes   time.Duration
	answers *atomic.Int64 // counts the answers of the model, which the provider charges; nil = they are not counted
}

func (s spender) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	var res agent.Result
	rounds, first := len(strings.Fields(joined(req))), 1
	if req.Journal != nil { // after the rounds of earlier attempts
		for _, r := range req.Journal.Rounds() {
			res.Usage.InputTokens += r.Usage.InputTokens
			res.Usage.OutputTokens += r.Usage.OutputTokens
			first++
		}
	}
	for n := first; ; n++ {
		if err := req.BeforeRound(ctx); err != nil {
			return res, err
		}
		timer := time.NewTimer(s.takes)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return res, context.Cause(ctx)
		}
		if s.answers != nil {
			s.answers.Add(1)
		}
		used := chat.Usage{InputTokens: 90, OutputTokens: 10, Model: "m"}
		res.Usage.InputTokens += used.InputTokens
		res.Usage.OutputTokens += used.OutputTokens
		res.Usage.Model = "m"
		res.Text += "x"
		emit(agent.Event{Kind: agent.EventDelta, Text: "x"})
		if n == rounds {
			return res, nil
		}
		if req.Journal == nil {
			continue
		}
		call := chat.ToolCall{ID: "a", Name: "sessions", Args: `{}`}
		err := req.Journal.Record(ctx, chat.Round{Number: n, Calls: []chat.ToolCall{call}, Usage: used, Results: make([]*chat.ToolResult, 1)})
		if err != nil {
			return res, err
		}
		if err := req.Journal.RecordResult(ctx, n, 0, chat.ToolResult{Text: "ok"}); err != nil {
			return res, err
		}
	}
}

// caller is a runner whose model calls the first tool of the client until it has a result.
type caller struct{ got chan agent.Request }

func (c caller) Run(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	c.got <- req
	if len(req.Client.Rounds) > 0 {
		return agent.Result{StopReason: agent.StopNormal, Text: "It rains."}, nil
	}
	return agent.Result{StopReason: chat.StopCalls, Calls: []chat.ToolCall{{ID: "call_1", Name: req.Client.Tools[0].Name, Args: `{"city":"Oslo"}`}}}, nil
}

func TestCallsOfClientToolsAreTheEndOfTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		agents := caller{make(chan agent.Request, 2)}
		with := func(c *dispatch.Config) {
			c.Agents[0].Runner, c.Agents[0].Tools = agents, dispatch.Tools{Default: true}
		}
		st := newStore(t)
		h := open(t, st, with)
		client := &chat.ClientTools{Tools: []chat.ClientTool{{Name: "weather"}}}
		want := []chat.ToolCall{{ID: "call_1", Name: "weather", Args: `{"city":"Oslo"}`}}
		id := h.send("agent:main:api:a", "Oslo?", func(m *chat.Message) { m.Content.Client = client })
		if end := h.end(id); end.StopReason != chat.StopCalls || !slices.Equal(end.Calls, want) || end.Message != "" || end.Foreign {
			t.Errorf("the run ended with %+v, want %+v", end, want)
		}
		if req := <-agents.got; req.Tools != nil || req.Journal != nil || req.OpenTools != nil || req.Client.Tools[0].Name != "weather" {
			t.Errorf("the agent was given %+v, want the tools of the client alone", req)
		}
		client.Rounds = []chat.Round{{Number: 1, Calls: want, Results: []*chat.ToolResult{{Text: "rain", Foreign: true}}}}
		second := h.send("agent:main:api:b", "Oslo?", func(m *chat.Message) { m.Content.Client = client })
		if end := h.end(second); end.Text != "It rains." || len(end.Calls) != 0 {
			t.Errorf("with the result the run ended with %+v", end)
		}
		h.close()
		h = open(t, st, with) // another process reads the end from the store
		if end := h.end(id); end.StopReason != chat.StopCalls || !slices.Equal(end.Calls, want) {
			t.Errorf("the store has %+v, want %+v", end, want)
		}
		if end := h.end(second); end.Text != "It rains." || !end.Foreign {
			t.Errorf("the store has %+v, want an answer that came from outside", end)
		}
		h.close()
	})
}

func budgets(b usage.Budgets) option {
	return func(c *dispatch.Config) {
		c.Usage.Budgets = b
		c.Agents[0].Runner, c.Agents[0].Tools = spender{takes: 10 * time.Millisecond}, dispatch.Tools{Default: true}
	}
}

const sixteen = "a b c d e f g h i j k l m n o p"

// tokensOf sums the counted tokens of a store.
func tokensOf(t *testing.T, st usage.Store, by usage.Grouping) map[string]int64 {
	t.Helper()
	rows, err := st.UsageRows(t.Context(), usage.Query{From: "1999-01-01", To: "2100-01-01", By: by})
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, r := range rows {
		sums[r.Name] += r.Counted.Spent().Tokens
	}
	return sums
}

func TestABudgetEndsThirtyTurnsWithinOneRoundEach(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const turns, limit = 30, 10_000
		st := newStore(t)
		h := open(t, st, lanes(turns), budgets(usage.Budgets{Day: usage.Limit{Tokens: limit}}))
		var ids []string
		for i := range turns {
			ids = append(ids, h.send("agent:main:s"+string(rune('a'+i)), sixteen))
		}
		reasons := map[string]int{}
		for _, id := range ids {
			end := h.end(id)
			reasons[string(end.Outcome)+" "+end.Reason]++
		}
		if reasons["failed budget"] == 0 {
			t.Errorf("the turns ended %v, and no one by the budget", reasons)
		}
		if got := tokensOf(t, st, usage.ByNothing)[""]; got < limit || got > limit+turns*100 {
			t.Errorf("%d tokens, want %d to %d", got, limit, limit+turns*100)
		}
		if end := h.end(h.send("agent:main:later", "x")); end.Reason != "budget" || !strings.HasPrefix(end.Message, "The gateway's budget for today is used up (") {
			t.Errorf("a later turn ended %+v", end)
		}
		h.close()
		want(t, "tokens of the restarted gateway", tokensOf(t, st, usage.ByNothing)[""] <= limit+turns*100, true)
		h = open(t, st, budgets(usage.Budgets{Day: usage.Limit{Tokens: limit}}))
		h.n.Store(1000) // other message ids
		want(t, "the end after a restart", h.end(h.send("agent:main:restarted", "x")).Reason, "budget")
		h.close()
		until(23, 59)
		h = open(t, st, budgets(usage.Budgets{Day: usage.Limit{Tokens: limit}}))
		h.n.Store(2000)
		want(t, "the end before midnight", h.end(h.send("agent:main:restarted", "x")).Reason, "budget")
		until(0, 1)
		want(t, "the end on the next day", h.end(h.send("agent:main:restarted", "x")).Outcome, chat.OutcomeAnswered)
		h.close()
	})
}

// A turn that a budget ends in the middle is partial work.
func TestTextBeforeABudgetIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(t), budgets(usage.Budgets{Turn: usage.Limit{Tokens: 250}}))
		end := h.end(h.send("agent:main:a", sixteen, replyTo("1")))
		if end.Reason != "budget" || end.Text != "xxx" || end.Message != "The budget of one turn is used up (300 of 250 tokens); ask for less at once." {
			t.Errorf("the turn ended %+v", end)
		}
		synctest.Wait()
		wantList(t, "what the person got", h.box.texts("1"), []string{end.Message})
		h.close()
	})
}

// The notice is not repeated after a restart or by a second replica.
func TestPeopleGetOneNoticeForEachLevelOfABudget(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		limits := budgets(usage.Budgets{Principal: usage.Limit{Tokens: 1000}})
		h := open(t, st, limits)
		h.end(h.send("agent:main:a", "a b c d e f g", replyTo("1")))
		synctest.Wait()
		want(t, "notices at 70 %", len(h.box.texts("1")), 1)
		h.end(h.send("agent:main:a", "a", replyTo("1")))
		h.close()
		other := open(t, st, limits)
		other.n.Store(1000) // other message ids
		for range 3 {
			other.end(other.send("agent:main:a", "a", replyTo("1")))
		}
		synctest.Wait()
		other.close()
		count := map[string]int{}
		for _, text := range append(h.box.texts("1"), other.box.texts("1")...) {
			count[text]++
		}
		near := "Your budget for today is used to 80 % or more (800 of 1,000 tokens)."
		up := "Your budget for today is used up (1,000 of 1,000 tokens). A new one begins on 2000-01-02 at 00:00 UTC."
		if count[near] != 1 || count[up] != 1 || count["This was not answered. "+up+" Until then there is no further reply here."] != 1 {
			t.Errorf("the person got %v", count)
		}
	})
}

// The limit is one reply in each chat of each person, on every store. The outcome has the reason.
func TestAMessageOverTheBudgetGetsOneReplyADay(t *testing.T) {
	for kind, openStore := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := openStore(t)
				var later atomic.Int64 // only for the clock of the budgets: a day of heartbeats takes too long
				h := open(t, st, budgets(usage.Budgets{Day: usage.Limit{Tokens: 100}}), func(c *dispatch.Config) {
					c.Usage.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
				})
				write := func(person, to string) chat.RunEnd {
					t.Helper()
					id := h.send("agent:main:box:direct:"+to, "a", replyTo(to), func(m *chat.Message) { m.Principal = person })
					end := h.end(id)
					if row, err := st.MessageByID(t.Context(), id); err != nil || row.Outcome != end.Outcome || row.Reason != end.Reason {
						t.Errorf("the message has the outcome %q for %q, %v, and its end %q for %q", row.Outcome, row.Reason, err, end.Outcome, end.Reason)
					}
					return end
				}
				replies := func(to string) (n int) {
					time.Sleep(time.Second)
					for _, text := range h.box.texts(to) {
						if strings.HasPrefix(text, "This was not answered. The gateway's budget for today is used up (100 of 100 tokens).") {
							n++
						}
					}
					return n
				}
				want(t, "outcome of the first message", write("ann", "1").Outcome, chat.OutcomeAnswered)
				for range 3 {
					want(t, "reason", write("ann", "1").Reason, "budget")
				}
				want(t, "replies to three messages", replies("1"), 1)
				write("ann", "2")
				want(t, "replies in another chat", replies("2"), 1)
				write("ben", "1")
				want(t, "replies with one to another person", replies("1"), 2)
				later.Store(int64(24 * time.Hour))
				want(t, "outcome on the next day", write("ann", "1").Outcome, chat.OutcomeAnswered)
				write("ann", "1")
				want(t, "replies on two days", replies("1"), 3)
				h.close()
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAJobOverItsBudgetIsSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		h := openCron(t, st, budgets(usage.Budgets{Job: usage.Limit{Tokens: 250}}))
		h.put(everySecond("burns", "a"), func(j *cron.Job) { j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "7"} })
		h.put(everySecond("other", "a"))
		time.Sleep(2500 * time.Millisecond)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		for _, name := range []string{"burns", "other"} {
			count := map[string]int{}
			for _, r := range h.runs(name) {
				count[string(r.State)+" "+string(r.Reason)]++
				if r.State == cron.RunSkipped && !strings.Contains(r.Error, "budget") {
					t.Errorf("a skipped run has the error %q", r.Error)
				}
			}
			if count["ok "] != 3 || count["skipped budget"] != 5 || len(count) != 2 {
				t.Errorf("%s: the runs are %v, want 3 ok and 5 skipped for the budget", name, count)
			}
		}
		notices := 0
		for _, text := range h.box.texts("7") {
			if strings.Contains(text, "The budget of this job for today is used") {
				notices++
			}
		}
		want(t, "notices for eight fires", notices, 2)
		jobs := tokensOf(t, st, usage.ByJob)
		if len(jobs) != 2 {
			t.Errorf("counters of jobs: %v", jobs)
		}
		h.close()
	})
}

// After a restart, the turn detects what the claim does not know.
func TestAJobIsSkippedByAProcessThatHasNotSeenItsBudget(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		limits := budgets(usage.Budgets{Job: usage.Limit{Tokens: 150}})
		h := openCron(t, st, limits)
		h.put(everySecond("burns", "a"), func(j *cron.Job) { j.Alert = cron.Alert{IncludeSkipped: true, After: 2} })
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		h.close()
		h = openCron(t, st, limits)
		h.jobs = st
		time.Sleep(3 * time.Second)
		synctest.Wait()
		begun, skipped := 0, 0
		for _, r := range h.runs("burns") {
			if r.State == cron.RunSkipped && r.Reason == cron.ReasonBudget {
				if skipped++; r.Attempt > 0 {
					begun++
				}
			} else if r.State != cron.RunOK {
				t.Errorf("a run is %s %s: %s", r.State, r.Reason, r.Error)
			}
		}
		if begun != 1 || skipped < 3 {
			t.Errorf("%d runs were skipped, %d of them when they had begun; want 3 or more and 1", skipped, begun)
		}
		if j := h.job("burns"); j.State.ConsecutiveErrors != 0 || j.State.ConsecutiveSkipped != skipped || !j.Enabled {
			t.Errorf("the job has %d errors and %d skipped runs in a row", j.State.ConsecutiveErrors, j.State.ConsecutiveSkipped)
		}
		h.close()
	})
}

func TestStatusShowsUsageToThoseWhoMaySeeIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(t), budgets(usage.Budgets{Principal: usage.Limit{Tokens: 5000}, Day: usage.Limit{Tokens: 9000}}))
		h.end(h.send("agent:main:a", "a b"))
		h.end(h.send("agent:main:b", "a", func(m *chat.Message) { m.Principal = "other" }))
		for who, lines := range map[string][2]string{
			"all": {"today: 300 tokens\nyour budget: 200 of 5,000 tokens\nbudget of the day: 300 of 9,000 tokens", ""},
			"own": {"today: 200 tokens\nyour budget: 200 of 5,000 tokens", "budget of the day"},
		} {
			h.send("agent:main:a", "/status", typed, replyTo(who), func(m *chat.Message) { m.Own = who == "own" })
			synctest.Wait()
			text := strings.Join(h.box.texts(who), "|")
			have := strings.ReplaceAll(text, "budget of the day: 300 of 9,000 tokens\nyour budget: 200 of 5,000 tokens", "your budget: 200 of 5,000 tokens\nbudget of the day: 300 of 9,000 tokens")
			if !strings.Contains(have, lines[0]) || lines[1] != "" && strings.Contains(text, lines[1]) {
				t.Errorf("%s: /status shows\n%s", who, text)
			}
		}
		h.close()
	})
}

// An endpoint that reports no usage does not disable a budget.
func TestUnreportedUsageIsEstimated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, st, func(c *dispatch.Config) { c.Agents[0].EstimateUsage = true })
		end := h.end(h.send("agent:main:a", strings.Repeat("word ", 60)))
		if end.Usage.InputTokens < 60 || end.Usage.OutputTokens < 60 {
			t.Errorf("the usage is %+v", end.Usage)
		}
		h.close()
		want(t, "tokens", tokensOf(t, st, usage.ByAgent)["main"], int64(end.Usage.InputTokens+end.Usage.OutputTokens))
	})
}

// The test kills the process before and after each step that follows an answer of the model. No
// budget covers the turn.
func TestUsageIsCountedAcrossAKill(t *testing.T) {
	for kind, open := range stores(t) {
		for _, step := range []string{"Record asked", "Record result", "Finish"} {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", kind, step, done), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						st := open(t)
						killWhileUsageIsCounted(t, st, step, done)
						if err := st.Close(); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

func killWhileUsageIsCounted(t *testing.T, plain cronStore, step string, done bool) {
	t.Helper()
	answers := &atomic.Int64{}
	spending := func(c *dispatch.Config) {
		c.Agents[0].Runner, c.Agents[0].Tools = spender{takes: 10 * time.Millisecond, answers: answers}, dispatch.Tools{Default: true}
	}
	first := newDoomed(plain, step, done)
	first.armed.Store(true)
	h := open(t, first, spending)
	id := h.send("agent:main:own", "a b c")
	time.Sleep(5 * time.Second)
	if !first.off.Load() {
		t.Fatalf("a turn does not call %s", step)
	}
	next := open(t, plain, spending)
	time.Sleep(time.Minute)
	if row, err := plain.MessageByID(t.Context(), id); err != nil || row.Outcome != chat.OutcomeAnswered {
		t.Fatalf("the message ended with %q, %v", row.Outcome, err)
	}
	next.close()
	want(t, "tokens", tokensOf(t, plain, usage.ByNothing)[""], 100*answers.Load())
	h.abandon()
}
