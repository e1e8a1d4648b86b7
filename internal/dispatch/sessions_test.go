package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
	"laneway/internal/history"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/usage"
)

func TestARepeatedResetSparesTheNewConversation(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		key, by := chat.MainKey("main"), chat.Caller{Principal: "tester", Scopes: []string{chat.ScopeWrite}}
		o := &chat.IdempotencyKey{Owner: "tester", Method: "sessions.reset", Key: "k", Hash: "h"}
		old := h.send("main", "sleep 1h")
		time.Sleep(time.Second)
		reset := func() string {
			t.Helper()
			id, err := h.d.Reset(t.Context(), key, by, o)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := reset()
		want(t, "the old turn", h.end(old).Outcome, chat.OutcomeStopped)
		next := h.send("main", "sleep 5s")
		time.Sleep(time.Second)
		want(t, "transcript of the repeated reset", reset(), first)
		want(t, "the turn of the new conversation", h.end(next).Outcome, chat.OutcomeAnswered)
		o.Hash = "other"
		if _, err := h.d.Reset(t.Context(), key, by, o); !errors.Is(err, chat.ErrKeyReused) {
			t.Errorf("other params: %v", err)
		}
	})
}

func TestARepeatedDeleteSparesTheNewSession(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		p := store.DeleteParams{Session: chat.MainKey("main"), IdempotencyKey: &chat.IdempotencyKey{Owner: "tester", Method: "sessions.delete", Key: "k", Hash: "h"}}
		remove := func() {
			t.Helper()
			out, err := h.d.Delete(t.Context(), p, chat.Caller{Principal: "tester"})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "deleted", out.Deleted, true)
		}
		h.end(h.send("main", "hello"))
		remove()
		next := h.send("main", "sleep 5s")
		time.Sleep(time.Second)
		remove()
		want(t, "the turn of the new session", h.end(next).Outcome, chat.OutcomeAnswered)
	})
}

// The access check before the acceptance and the acceptance itself are two steps. A caller that
// creates the session in between owns it.
func TestOfTwoWhoMakeASessionAtOnceOneOwnsIt(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		for round := range 50 {
			key := fmt.Sprintf("room%d", round)
			names := []string{"ann", "bob"}
			got := make(chan error, len(names))
			for _, name := range names {
				m := h.msg(key, "hello from "+name)
				go func() {
					_, err := h.d.ReceiveFrom(t.Context(), m, chat.Caller{Principal: name, Own: true, Scopes: []string{"operator.write"}})
					got <- err
				}()
			}
			refused := 0
			for range names {
				if err := <-got; err != nil {
					refused++
					if e, ok := errors.AsType[*chat.Error](err); !ok || e.Code != chat.CodeSessionNotFound || e.Details["key"] != "agent:main:"+key {
						t.Errorf("refused with %v", err)
					}
				}
			}
			want(t, "refused in "+key, refused, 1)
		}
	})
}

func TestCommandsReachNoSessionOfAnother(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("main", "sleep 5s")
		time.Sleep(time.Second)
		for _, text := range []string{"/stop", "/stopall", "/queue", "/new"} {
			_, err := h.d.ReceiveFrom(t.Context(), h.msg("main", text), chat.Caller{Principal: "bob", Own: true, Scopes: []string{"operator.admin"}})
			if !errors.Is(err, chat.ErrSessionNotFound) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if err := h.d.Defer(t.Context(), h.msg("main", "note"), chat.Caller{Principal: "bob", Own: true}); !errors.Is(err, chat.ErrSessionNotFound) {
			t.Errorf("a deferred text: %v", err)
		}
		want(t, "the turn", h.end(id).Outcome, chat.OutcomeAnswered)
	})
}

// hosting is a runner that keeps a resource for each session.
type hosting struct {
	stepping

	ended *[]string
}

func (hosting) Processes() agent.Processes { return agent.Processes{Living: 1, Most: 2, Memory: 3} }

func (r hosting) EndSession(key chat.SessionKey) { *r.ended = append(*r.ended, key.String()) }

// wherever is a runner that answers with the directory that was chosen for its session.
type wherever struct{}

func (wherever) Run(_ context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	answer := agent.NewAnswer(0, emit)
	return agent.Result{Text: "in " + req.Dir, StopReason: agent.StopNormal}, answer.Append("in " + req.Dir)
}

// The choice applies to one conversation, until the operator removes the directory from the list.
func TestAConversationChoosesAmongTheDirectoriesOfItsAgent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, messages := newStore(t), 0
		in := func(dirs ...string) *harness {
			return open(t, st, runBy(wherever{}), func(c *dispatch.Config) { c.Agents[0].Dirs = dirs })
		}
		own := func(m *chat.Message) { // message ids must be unique across the processes
			messages++
			m.ID = fmt.Sprintf("message-%d", messages)
		}
		h := in("/srv/app", "/srv/site")
		say := func(session, text, answer string) {
			t.Helper()
			got, _, _ := strings.Cut(h.end(h.send(session, text, own)).Text, "\n")
			want(t, text, got, answer)
		}
		say("agent:main:a", "/dir", "The agent works in /srv/app.")
		say("agent:main:a", "/dir 2", "From the next turn on, the agent works in /srv/site.")
		say("agent:main:a", "hello", "in /srv/site")
		say("agent:main:a", "/dir", "The agent works in /srv/site.")
		say("agent:main:b", "hello", "in ")
		h.close()
		h = in("/srv/app", "/srv/site")
		say("agent:main:a", "hello", "in /srv/site")
		say("agent:main:a", "/dir default", "From the next turn on, the agent works in /srv/app.")
		say("agent:main:a", "hello", "in ")
		say("agent:main:a", "/dir 2", "From the next turn on, the agent works in /srv/site.")
		h.close()
		h = in("/srv/app")
		say("agent:main:a", "hello", "in ")
		say("agent:main:a", "/dir", "The agent works in /srv/app.")
		h.close()
	})
}

// The conversation was reset or deleted.
func TestAnAgentFreesConversationsThatAreOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var ended []string
		h := open(t, newStore(t), runBy(hosting{ended: &ended}))
		for _, session := range []string{"anew", "deleted", "kept"} {
			h.end(h.send("agent:main:"+session, "hello"))
		}
		h.end(h.send("agent:main:anew", "/new"))
		if _, err := h.d.Delete(t.Context(), store.DeleteParams{Session: chat.SessionKey{Agent: "main", Rest: "deleted"}}, chat.Caller{Principal: "tester"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantList(t, "freed", ended, []string{"agent:main:anew", "agent:main:deleted"})
		want(t, "programs", fmt.Sprint(h.d.Status(t.Context()).Programs), "[{main 1 2 3 0}]")
		h.close()
	})
}

// listsCounted is a store that counts the lists of sessions.
type listsCounted struct {
	dispatch.Store
	lists atomic.Int32
}

func (s *listsCounted) ListSessions(ctx context.Context, f store.SessionFilter) ([]store.Session, int, error) {
	s.lists.Add(1)
	return s.Store.ListSessions(ctx, f)
}

// Every process takes this picture once a second while a client is connected.
func TestStatusCountsNoSessions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &listsCounted{Store: newStore(t)}
		h := open(t, st)
		want(t, "the error of the store", h.d.Status(t.Context()).StoreError, "")
		want(t, "lists of sessions", st.lists.Load(), 0)
	})
}

// The deleted session has a background task with a background task, and another session refers to
// one of its files.
func TestADeletionRemovesRunningSubTurnsAndFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "laneway.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		keep, dir := keepFiles(t)
		h := open(t, db, team(&branching{}), keep)
		defer h.close()
		upload := func(name string) chat.Attachment {
			up, err := h.d.Uploads.SaveFile("tester", chat.Upload{Attachment: chat.Attachment{Name: name}}, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			return up.Attachment
		}
		own, shared := upload("own"), upload("shared")
		with := func(files ...chat.Attachment) func(m *chat.Message) {
			return func(m *chat.Message) { m.Content.Attachments = files }
		}
		deep := calling(spawns("sleep 20m", false), asked{Tool: "spawn", Args: map[string]any{"task": "sleep 10m", "wait": true}})
		want(t, "outcome", h.end(h.send("agent:main:room", calling(spawns(deep, false)), with(own, shared))).Outcome, chat.OutcomeAnswered)
		h.end(h.send("agent:main:other", "hello", with(shared)))
		synctest.Wait()
		want(t, "tasks that run", len(h.tasks(store.TaskFilter{Open: true})), 3)
		out, err := h.d.Delete(t.Context(), store.DeleteParams{Session: chat.SessionKey{Agent: "main", Rest: "room"}}, chat.Caller{Principal: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "deleted", out.Deleted, true)
		want(t, "tasks", len(h.tasks(store.TaskFilter{})), 0)
		for name, f := range map[string]chat.Attachment{"own": own, "shared": shared} {
			_, err := dir.Root().Stat(f.Path)
			want(t, "the file "+name+" is there", err == nil, name == "shared")
		}
		h.wantSlots()
	})
}

// rollingUp configures the agent main for summaries. Its model keeps the facts of its input.
func rollingUp(st store.Store, zone *time.Location) option {
	return func(c *dispatch.Config) {
		c.Agents[0].ContextWindow, c.Agents[0].EstimateUsage = 8000, true
		c.Agents[0].Runner = runnerFunc(func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
			if !strings.HasPrefix(req.SystemPrompt, "You keep the table of contents") {
				return agent.Result{Text: "noted"}, nil
			}
			if req.Tools != nil || req.Journal != nil || req.OutputDir != nil || req.Params["max_tokens"] == nil {
				return agent.Result{}, agent.NewError(chat.FailBadRequest, "a summary with tools", nil)
			}
			var facts []string
			for _, e := range req.History {
				facts = append(facts, factWord.FindAllString(e.Text, -1)...)
			}
			return agent.Result{Text: "They said " + strings.Join(facts, " "), Usage: chat.Usage{InputTokens: 100, OutputTokens: 10}}, nil
		})
		c.Cron.RollUp, c.Cron.RollUpAgent = history.NewRollup(history.RollupConfig{Store: st, Zone: zone}).Run, "main"
	}
}

type runnerFunc func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error)

func (f runnerFunc) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	return f(ctx, req, emit)
}

// ofAnn makes a message one of ann.
func ofAnn(m *chat.Message) { m.Principal = "telegram:1:7" }

func tocOf(t *testing.T, st store.Store, level store.TocLevel) []store.TocNode {
	t.Helper()
	list, err := st.Toc(t.Context(), store.TocQuery{Level: level, Limit: store.MaxTocNodes})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// until sleeps until a time of day, in UTC, of today or, if that has passed, of tomorrow.
func until(hour, minute int) {
	now := time.Now().UTC()
	at := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, time.UTC)
	if at.Before(now) {
		at = at.AddDate(0, 0, 1)
	}
	after(at.Sub(now))
}

// A person writes on sixteen days, starting on a Saturday, the first of January. A process runs
// only around the times of the jobs, because an idle process costs the test the most time.
func TestDaysAndWeeksAreRolledUpByBuiltInJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		for i := range 16 {
			until(0, 55)
			h := openCron(t, st, rollingUp(st, time.UTC))
			h.n.Store(int64(i)) // each message has its own id
			until(1, 10)
			switch now := time.Now().UTC(); {
			case now.Day() == 1: // first day of the month
				until(3, 10)
			case now.Weekday() == time.Sunday:
				until(2, 10)
			}
			h.end(h.send("agent:main:box:direct:7", fmt.Sprintf("fact-%d", i), ofAnn))
			h.close()
		}
		until(0, 55)
		h := openCron(t, st, rollingUp(st, time.UTC))
		until(2, 10)
		days, weeks, months := tocOf(t, st, store.TocDay), tocOf(t, st, store.TocWeek), tocOf(t, st, store.TocMonth)
		if len(days) != 16 || len(weeks) != 2 || len(months) != 0 {
			t.Fatalf("%d days, %d weeks and %d months", len(days), len(weeks), len(months))
		}
		for _, n := range slices.Concat(days, weeks, months) {
			if n.Made != 1 || n.Stale || n.Owner != "telegram:1:7" {
				t.Errorf("made %d times: %+v", n.Made, n)
			}
		}
		if first := weeks[0]; first.Period != "2000-W01" || first.Text != "They said fact-2 fact-3 fact-4 fact-5 fact-6 fact-7 fact-8" {
			t.Errorf("the first whole week is %+v", first)
		}
		if last := days[0]; last.Period != "2000-01-16" || last.Text != "They said fact-15" || last.Entries != 2 || last.Session.String() != "agent:main:box:direct:7" {
			t.Errorf("the last day is %+v", last)
		}
		rolledAt(t, h)
		rows, err := h.d.Meter.Rows(t.Context(), usage.Query{From: "2000-01-01", To: "2000-12-31", By: usage.ByPrincipal, Principal: "system"})
		if err != nil || len(rows) == 0 {
			t.Fatalf("the usage of roll-ups is %+v, %v", rows, err)
		}
		requests := int64(0)
		for _, r := range rows {
			requests += r.Requests
		}
		if want := int64(16 + 2); requests != want {
			t.Errorf("%d requests were counted, want %d", requests, want)
		}
		h.close()
	})
}

// rolledAt checks when the jobs ran, and their ledger.
func rolledAt(t *testing.T, h *jobHarness) {
	t.Helper()
	page, err := h.jobs.Runs(t.Context(), cron.RunFilter{Query: "summaries made: ", Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, r := range page.Runs {
		ran[r.JobName]++
		at, hour := r.StartedAt.UTC(), map[string]int{"summaries of each day": 1, "summaries of each week": 2, "summaries of each month": 3}[r.JobName]
		if at.Hour() != hour || at.Minute() > 5 || r.State != cron.RunOK {
			t.Errorf("%s ran at %s: %s", r.JobName, at, r.State)
		}
		if r.JobName == "summaries of each week" && at.Weekday() != time.Sunday || r.JobName == "summaries of each month" && at.Day() != 1 {
			t.Errorf("%s ran at %s", r.JobName, at)
		}
	}
	if ran["summaries of each day"] != 17 || ran["summaries of each week"] != 3 || ran["summaries of each month"] != 1 {
		t.Errorf("the ledger has %v", ran)
	}
}

func TestRollUpsAreOffUntilAnAgentIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		jobs := func(want int) (list []cron.Job) {
			t.Helper()
			page, err := st.Jobs(t.Context(), cron.JobFilter{IncludeSystem: true, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				if strings.HasPrefix(j.Key, "system:rollup-") {
					list = append(list, j)
				}
			}
			if len(list) != want {
				t.Fatalf("there are %d jobs of summaries, want %d", len(list), want)
			}
			return list
		}
		openCron(t, st).close()
		jobs(0)
		openCron(t, st, rollingUp(st, time.UTC)).close()
		for _, j := range jobs(3) {
			if j.Agent != "main" || j.JitterMs != 300_000 || j.Overlap != cron.OverlapSkip || j.Schedule.TZ != "UTC" {
				t.Errorf("the job is %+v", j)
			}
		}
		openCron(t, st, rollingUp(st, time.UTC), func(c *dispatch.Config) { c.Cron.Rules.DefaultTZ = "Europe/Berlin" }).close()
		for _, j := range jobs(3) {
			if j.Schedule.TZ != "Europe/Berlin" {
				t.Errorf("the zone is %s", j.Schedule.TZ)
			}
		}
		openCron(t, st).close()
		jobs(0)
	})
}

// A day that the agent refuses is skipped, and the next run tries it again.
func TestWhatTheAgentRefusesHoldsUpNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		var refuses atomic.Bool
		refuses.Store(true)
		opts := []option{rollingUp(st, time.UTC), func(c *dispatch.Config) {
			willing := c.Agents[0].Runner
			c.Agents[0].Runner = runnerFunc(func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
				if refuses.Load() && len(req.History) > 0 && strings.Contains(req.History[0].Text, "fact-1") {
					return agent.Result{}, agent.NewError(chat.FailRefusal, "the model declined", nil)
				}
				return willing.Run(ctx, req, emit)
			})
		}}
		h := openCron(t, st, opts...)
		h.end(h.send("agent:main:one", "fact-1", ofAnn))
		h.end(h.send("agent:main:two", "fact-2", ofAnn))
		h.close()
		after(24 * time.Hour)
		until(0, 55)
		h = openCron(t, st, opts...)
		until(1, 10)
		h.close()
		if list := tocOf(t, st, store.TocDay); len(list) != 1 || list[0].Text != "They said fact-2" {
			t.Errorf("there is %+v", list)
		}
		refuses.Store(false)
		until(0, 55)
		h = openCron(t, st, opts...)
		until(1, 10)
		if list := tocOf(t, st, store.TocDay); len(list) != 2 {
			t.Errorf("there is %+v", list)
		}
		h.close()
	})
}

func TestTocShowsThePersonsOwnAndInAGroupThatGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, rollingUp(st, time.UTC))
		h.end(h.send("agent:main:telegram:direct:7", "fact-1", ofAnn))
		h.end(h.send("agent:main:telegram:group:-1", "fact-2", ofAnn))
		h.end(h.send("agent:main:telegram:direct:8", "fact-3", func(m *chat.Message) { m.Principal = "telegram:1:8" }))
		h.close()
		after(24 * time.Hour)
		until(0, 55)
		h = openCron(t, st, rollingUp(st, time.UTC))
		until(1, 10)
		h.n.Store(3) // after the messages of the first process
		n := 0
		toc := func(session, text string) string {
			t.Helper()
			n++
			to := fmt.Sprint("box-", n)
			h.send(session, text, typed, replyTo(to), ofAnn)
			synctest.Wait()
			return strings.Join(h.box.texts(to), "|")
		}
		if got := toc("agent:main:telegram:direct:7", "/toc"); !strings.Contains(got, "They said fact-1") || !strings.Contains(got, "agent:main:telegram:group:-1\nThey said fact-2") || strings.Contains(got, "fact-3") {
			t.Errorf("/toc is %q", got)
		}
		if got := toc("agent:main:telegram:group:-1", "/toc"); !strings.Contains(got, "fact-2") || strings.Contains(got, "fact-1") {
			t.Errorf("/toc in a group is %q", got)
		}
		if got := toc("agent:main:telegram:group:-1", "/toc week"); !strings.Contains(got, "in a group there are only summaries of its days") {
			t.Errorf("/toc week in a group is %q", got)
		}
		if got := toc("agent:main:telegram:direct:7", "/toc year"); !strings.Contains(got, "write /toc day") {
			t.Errorf("/toc year is %q", got)
		}
		if got := toc("agent:main:telegram:direct:7", "/toc month"); got != "There are no summaries yet." {
			t.Errorf("/toc month is %q", got)
		}
		h.close()
	})
}
