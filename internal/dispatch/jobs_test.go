package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// jobHarness is a harness whose jobs fire.
type jobHarness struct {
	*harness

	jobs cron.JobStore
	stop func()
}

// cronStore is a store that has jobs.
type cronStore = dispatch.Store

func openCron(t *testing.T, st cronStore, opts ...option) *jobHarness {
	t.Helper()
	return openWatched(t, st, nil, opts...)
}

// openWatched is openCron with a function that receives every cron event; may be nil.
func openWatched(t *testing.T, st cronStore, watch func(cron.Event), opts ...option) *jobHarness {
	t.Helper()
	h := &jobHarness{jobs: st}
	h.harness = build(t, st, append([]option{func(c *dispatch.Config) { c.Cron.Fires, c.Cron.Enabled = true, true }}, opts...)...)
	if watch != nil {
		h.d.Jobs.Subscribe(watch, func() bool { return false })
	}
	h.start()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.d.Jobs.Run(ctx); err != nil {
			t.Errorf("RunCron ended with %v", err)
		}
	}()
	h.stop = func() { cancel(); <-done }
	synctest.Wait()
	return h
}

func (h *jobHarness) close() {
	h.t.Helper()
	h.stop()
	h.harness.close()
}

// runs lists the ledger of a job, the oldest first.
func (h *jobHarness) runs(job string) []cron.Run {
	h.t.Helper()
	page, err := h.jobs.Runs(h.t.Context(), cron.RunFilter{JobID: job, IncludeActive: true, Ascending: true})
	if err != nil {
		h.t.Fatal(err)
	}
	return page.Runs
}

// put stores a job whose first fire is at next.
func (h *jobHarness) put(j cron.Job, change ...func(*cron.Job)) cron.Job {
	h.t.Helper()
	j.Owner, j.Principal, j.Agent, j.Enabled, j.Session = "gateway", "gateway", "main", true, cron.Isolated
	j.Retry, j.Timeout, j.PauseAfter = cron.DefaultRetry(), cron.DefaultTimeout, cron.DefaultPauseAfter
	j.Key, j.Name = j.ID, j.ID
	if j.Payload.Kind == "" {
		j.Payload.Kind = cron.PayloadAgentTurn
	}
	for _, f := range change {
		f(&j)
	}
	_, err := h.jobs.PutJob(h.t.Context(), cron.PutParams{Owner: j.Owner, Key: j.Key, Change: func(_ *cron.Job, now time.Time) (*cron.Job, error) {
		s, err := schedule.Compile(j.Schedule)
		if err != nil {
			return nil, err
		}
		fire, _ := j.Timetable(s).First(now)
		j.State.Next, j.State.NextRunAt, j.State.ActivatedAt, j.CreatedAt = fire.Slot, fire.At, now, now
		return &j, nil
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.d.Jobs.Nudge()
	return j
}

func everySecond(id, text string) cron.Job {
	return cron.Job{ID: id, Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Text: text}}
}

func TestAJobFiresOnItsMillisecondAndOnce(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("tick", "hello"))
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		runs := h.runs("tick")
		ended := 0
		for _, r := range runs {
			if r.State != cron.RunOK {
				continue
			}
			ended++
			if late := r.StartedAt.Sub(r.ScheduledFor); late < 0 || late > 5*time.Millisecond {
				t.Errorf("run %s began %s after its slot", r.ID, late)
			}
			if r.Summary != "hello" || r.Attempt != 1 || len(r.Attempts) != 1 || r.Attempts[0].State != cron.AttemptOK {
				t.Errorf("run %s: %+v", r.ID, r)
			}
		}
		if ended != 10 {
			t.Errorf("%d runs have ended, want 10: %+v", ended, runs)
		}
	})
}

func TestAFailedRunIsTriedAgainAndThenAnError(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(cron.Job{ID: "bad", Schedule: schedule.Spec{Kind: schedule.KindAt, At: time.Now().Add(time.Second)}, Payload: cron.Payload{Text: "fail"}})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		runs := h.runs("bad")
		if len(runs) != 1 || runs[0].State != cron.RunError || len(runs[0].Attempts) != 4 {
			t.Fatalf("runs: %+v", runs)
		}
		for i, a := range runs[0].Attempts {
			if a.State != cron.AttemptError || a.Number != i+1 {
				t.Errorf("attempt %d: %+v", i+1, a)
			}
		}
		job, err := h.jobs.Job(t.Context(), "bad", "")
		if err != nil || job.Enabled || job.State.ConsecutiveErrors != 1 || job.State.RunCount != 1 {
			t.Errorf("the job is %+v (%v)", job, err)
		}
	})
}

// Two slots of an outage are caught up for a job that its first run removes. Subscribers receive
// both starts and both ends.
func TestEveryRunOfARemovedJobIsAStartedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, step := steppedStore(t)
		var mu sync.Mutex
		got := map[cron.Action]int{}
		h := openWatched(t, st, func(e cron.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Job.ID == "tick" && e.Job.Owner == "gateway" {
				got[e.Action]++
			}
		})
		h.put(everySecond("tick", "hello"), func(j *cron.Job) {
			j.Schedule.EveryMs, j.DeleteAfter, j.Missed = 60_000, true, cron.MissedPolicy{Rule: cron.MissedFireAll, MaxCatchup: 2}
		})
		after(time.Second)
		step(150 * time.Second)
		after(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		want(t, "runs that ended well", len(h.runs("tick")), 2)
		want(t, "started and finished", fmt.Sprint(got[cron.ActionStarted], got[cron.ActionFinished]), "2 2")
		h.close()
	})
}

// person makes a message one of a chat user in a chat of the box.
func person(user, chatID string) func(*chat.Message) {
	return func(m *chat.Message) {
		replyTo(chatID)(m)
		m.Principal, m.Scope = "box:"+user, "operator.write"
	}
}

// command sends a command and returns its answer.
func (h *jobHarness) command(session, text, user, chatID string) string {
	h.t.Helper()
	before := len(h.box.texts(chatID))
	h.send(session, text, person(user, chatID))
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
	texts := h.box.texts(chatID)
	if len(texts) != before+1 {
		h.t.Fatalf("%q was answered with %q", text, texts[before:])
	}
	return texts[before]
}

func (h *jobHarness) countJobs() int {
	h.t.Helper()
	page, err := h.jobs.Jobs(h.t.Context(), cron.JobFilter{Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	return page.Total
}

const annaHere, bertHere = "agent:main:box:direct:7", "agent:main:box:direct:8"

func TestAReminderArrivesOnTimeWithoutTheAgent(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		answer := h.command(annaHere, "/remind in 20m call Anna", "7", "7")
		if !strings.HasPrefix(answer, "I will remind you at ") || !strings.HasSuffix(answer, ": call Anna") {
			t.Errorf("the answer is %q", answer)
		}
		time.Sleep(18 * time.Minute)
		h.send(annaHere, "sleep 9m", person("7", "7")) // a busy conversation delays no command
		time.Sleep(time.Minute + 59*time.Second)
		synctest.Wait()
		if got := h.box.texts("7"); len(got) != 1 {
			t.Fatalf("too early: %q", got)
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		wantList(t, "sent", h.box.texts("7")[1:], []string{"Reminder: call Anna"})
		wantList(t, "asked of the agent", h.runner.texts(), []string{"sleep 9m"})
		want(t, "jobs left", h.countJobs(), 0)
		h.send(annaHere, "/stopall", person("7", "7"))
	})
}

func TestAJobMadeInAChatAsksTheAgentAndAnswersThere(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.command(annaHere, "/cron add every 30m look at the mail", "7", "7")
		time.Sleep(30*time.Minute + time.Second)
		synctest.Wait()
		wantList(t, "sent", h.box.texts("7")[1:], []string{"look at the mail"})
		wantList(t, "asked of the agent", h.runner.texts(), []string{"look at the mail"})
		h.command(annaHere, "/cron rm 1", "7", "7")
	})
}

// Before, the second /cron add under a name left two jobs that both fired.
func TestAJobOfAChatIsReplacedByItsName(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.command(annaHere, "/cron add every 2h water the plants", "7", "7")
		if answer := h.command(annaHere, "/cron add every 3h water the plants", "7", "7"); !strings.Contains(answer, "a job with this name already exists: 1. water the plants (every 2h)") {
			t.Errorf("the second answer is %q", answer)
		}
		want(t, "jobs", h.countJobs(), 1)
		if answer := h.command(annaHere, "/cron replace every 3h water the plants", "7", "7"); !strings.Contains(answer, "(every 3h)") {
			t.Errorf("the answer to replace is %q", answer)
		}
		want(t, "jobs after the replacement", h.countJobs(), 1)
		if answer := h.command(annaHere, "/cron add every 3h water the plants", "7", "7"); !strings.HasPrefix(answer, "That is already planned") && !strings.HasPrefix(answer, "Planned") {
			t.Errorf("the same again is %q", answer)
		}
		want(t, "jobs after the same again", h.countJobs(), 1)
		h.command(annaHere, "/cron new every 4h water the plants", "7", "7")
		want(t, "jobs after new", h.countJobs(), 2)
	})
}

func TestTheSameWishTwiceIsOneJobAndInAnotherChatASecond(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.command(annaHere, "/remind tomorrow 9:00 tea", "7", "7")
		if answer := h.command(annaHere, "/remind tomorrow 9:00 tea", "7", "7"); !strings.HasPrefix(answer, "That is already planned") {
			t.Errorf("the second answer is %q", answer)
		}
		want(t, "jobs", h.countJobs(), 1)
		h.command("agent:main:box:group:-5", "/remind tomorrow 9:00 tea", "7", "-5")
		want(t, "jobs", h.countJobs(), 2)
	})
}

func TestACommandReachesNoJobOfAnotherPerson(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.command(annaHere, "/remind tomorrow 9:00 secret", "7", "7")
		page, err := h.jobs.Jobs(t.Context(), cron.JobFilter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		before, id := page.Jobs[0], page.Jobs[0].ID
		for _, text := range []string{"/jobs", "/cron list", "/cron pause 1", "/cron resume 1", "/cron run 1", "/cron rm 1", "/cron rm secret", "/cron rm " + id} {
			if answer := h.command(bertHere, text, "8", "8"); strings.Contains(answer, "secret") && !strings.Contains(text, "secret") {
				t.Errorf("%s answers %q", text, answer)
			}
		}
		after, err := h.jobs.Job(t.Context(), id, "")
		if err != nil || after.Pause != nil || !after.UpdatedAt.Equal(before.UpdatedAt) || len(h.runs(id)) > 0 {
			t.Errorf("the job was touched: %+v, %v", after, err)
		}
		// In a group, even the owner sees only the jobs that reply there.
		if answer := h.command("agent:main:box:group:-5", "/jobs", "7", "-5"); strings.Contains(answer, "secret") {
			t.Errorf("the group got %q", answer)
		}
		if answer := h.command(annaHere, "/jobs", "7", "7"); !strings.Contains(answer, "1. secret, at ") {
			t.Errorf("the owner got %q", answer)
		}
	})
}

func TestBadPlansGetASentenceAndStoreNothing(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		for _, text := range []string{
			"/remind", "/remind soon tea", "/remind in 20m", "/remind every 59s tea", "/remind in 9000h tea", "/remind 1999-12-31 9:00 tea", "/remind every 99999999999d x",
			"/cron add", `/cron add "* * * * * *" x`, `/cron add "0 0 30 2 *" x`, "/cron add 61 * * * * x", "/cron add @every 1s x", "/cron add in 20m " + strings.Repeat("x", 66_000),
			`/cron add "0 0 0 1 1 * 2030" x`, `/cron add "*/0 * * * *" x`, `/cron add "0 0 * * 5#6" x`, `/cron add "0 0 * * 9#1" x`,
			`/cron add "` + strings.Repeat("1,", 124) + `1 * * * *" x`, `/cron add "٣ * * * *" x`, `/cron add "0 0 31 2 *" x`, `/cron add "60 24 * * *" x`,
			"/remind 2200-01-01 9:00 tea", "/remind in -5m tea", "/remind every -5m tea",
		} {
			answer := h.command(annaHere, text, "7", "7")
			if !strings.Contains(answer, " failed: ") || strings.Contains(answer, "schedule.") || strings.Contains(answer, "internal") || len(answer) > 400 {
				t.Errorf("%.60q was answered with %q", text, answer)
			}
			if n := h.countJobs(); n != 0 {
				t.Fatalf("%.60q stored %d jobs", text, n)
			}
		}
		h.command(annaHere, "/remind tomorrow 9:00 one", "7", "7")
		if answer := h.command(annaHere, "/remind tomorrow 9:00 two", "7", "7"); !strings.Contains(answer, "too many jobs") {
			t.Errorf("over the limit: %q", answer)
		}
		want(t, "jobs", h.countJobs(), 1)
	}, func(c *dispatch.Config) { c.Cron.MaxJobsOfUser = 1 })
}

func TestAnOperatorNeedsTheScopeOfTheCallToChangeJobsByACommand(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		scope := func(s string) func(*chat.Message) { return func(m *chat.Message) { m.Scope = s } }
		id := h.send("main", "/remind every 10s tea", scope("operator.write"))
		if text := h.end(id).Text; !strings.Contains(text, "operator.admin") {
			t.Errorf("the answer is %q", text)
		}
		want(t, "jobs", h.countJobs(), 0)
		h.send("main", "/remind every 10s tea", scope("operator.admin"))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:main"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(tr.Entries, func(e chat.TranscriptEntry) bool { return e.Text == "Reminder: tea" && e.Role == chat.RoleAssistant }) {
			t.Errorf("the conversation that asked got no answer: %+v", tr.Entries)
		}
		h.send("main", "/cron rm 1")
	})
}

func storeQuery(session string) store.TranscriptQuery {
	key, err := chat.ParseSessionKey(session, "main")
	if err != nil {
		panic(err)
	}
	return store.TranscriptQuery{Session: key, Limit: 50}
}

func TestAJobOfOneMomentFiresAgainWhenItIsAddedWithAnother(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		by := chat.Caller{Principal: "gateway", Scopes: []string{"operator.admin"}}
		add := func(in time.Duration) cron.Put {
			t.Helper()
			m := cron.Members{}
			text := `{"name":"tea","key":"tea","sessionTarget":"isolated","deleteAfterRun":false,"payload":{"kind":"agentTurn","message":"tea"},` +
				`"schedule":{"kind":"at","at":"` + time.Now().Add(in).UTC().Format(time.RFC3339Nano) + `"}}`
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			put, err := h.d.Jobs.Add(t.Context(), m, by, nil)
			if err != nil {
				t.Fatal(err)
			}
			return put
		}
		id := add(10 * time.Second).Job.ID
		after(20 * time.Second)
		second := add(10 * time.Second)
		if second.Job.ID != id || !second.Job.Enabled || second.Job.State.NextRunAt.IsZero() {
			t.Fatalf("the second add gave %+v", second)
		}
		after(20 * time.Second)
		want(t, "runs", len(h.runs(id)), 2)
		add(time.Hour)
		if _, err := h.d.Jobs.Update(t.Context(), id, cron.Members{"enabled": json.RawMessage("false")}, "", by); err != nil {
			t.Fatal(err)
		}
		want(t, "one that a caller disabled before it fired is enabled", add(2*time.Hour).Job.Enabled, false)
	})
}

// Runs of a person above the daily limit are skipped with a row, and the person receives one alert;
// a day later runs start again.
func TestRunsOfAPersonOverTheDaysNumberAreSkippedWithOneAlert(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.command(annaHere, "/cron add every 30m look at the mail", "7", "7")
		h.command(annaHere, "/cron add every 40m look at the door", "7", "7")
		h.command("agent:main:box:direct:8", "/cron add every 2h water the flowers", "8", "8") // the limit of another person is not affected
		before := len(h.box.texts("7"))
		time.Sleep(4*time.Hour + time.Second)
		synctest.Wait()
		got := h.box.texts("7")[before:]
		const note = `does not run now: your runs of the last 24 hours are used up`
		if len(got) != 4 || !strings.Contains(got[3], note) {
			t.Errorf("got %q, want three answers and one note", got)
		}
		want(t, "asked of the agent", len(h.runner.texts()), 3+2)
		want(t, "answers of the other person's job", len(h.box.texts("8")), 1+2)
		skipped := 0
		for _, r := range h.runs("") {
			if r.State == cron.RunSkipped && r.Reason == cron.ReasonBudget {
				skipped++
			}
		}
		want(t, "rows of skipped slots", skipped, 8+6-3)
		time.Sleep(22 * time.Hour) // the first three were more than a day ago
		synctest.Wait()
		if n := len(h.box.texts("7")); n <= before+4 {
			t.Errorf("anna has %d messages, want more a day later", n)
		}
	}, func(c *dispatch.Config) { c.Cron.MaxRunsPerDay = 3 })
}

// The ledger keeps the runs of a removed job, so its person can ask about them, in private only:
// the ledger does not have where the job answered.
func TestARemovedJobIsExplainedToItsPersonAlone(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.command(annaHere, "/cron add every 30m look at the mail", "7", "7")
		slot := time.Now().Add(30 * time.Minute).UTC().Format("2006-01-02T15:04:05Z")
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		ask := "/cron why look at the mail " + slot
		ran := h.command(annaHere, ask, "7", "7")
		if !strings.HasPrefix(ran, "It ran at ") {
			t.Fatalf("before the removal: %q", ran)
		}
		h.command(annaHere, "/cron rm 1", "7", "7")
		want(t, "after the removal", h.command(annaHere, ask, "7", "7"), ran)
		want(t, "without a time: its last run", h.command(annaHere, "/cron why look at the mail", "7", "7"), ran)
		want(t, "another time", h.command(annaHere, "/cron why Look at the mail 2020-01-01 09:00", "7", "7"), "The job was removed, and the ledger has no slot at that time.")
		for name, answer := range map[string]string{
			"another person": h.command(bertHere, ask, "8", "8"), "a group": h.command("agent:main:box:group:-5", ask, "7", "-5"),
		} {
			if !strings.Contains(answer, "there is no job") {
				t.Errorf("%s got %q", name, answer)
			}
		}
	})
}
