package teste2e

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/cron"
	"laneway/internal/wire"
)

// whySlot is a slot with its verdict, and how the sentence begins.
type whySlot struct {
	job, id string
	at      time.Time
	text    string
}

// TestEveryVerdictAboutASlotIsOneSentenceInCallCommandAndChat makes a situation for each verdict that the source declares.
func TestEveryVerdictAboutASlotIsOneSentenceInCallCommandAndChat(t *testing.T) {
	source, err := os.ReadFile("../cron/explain.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tWhy\w+ +Why = "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < 20 {
		t.Fatalf("the source declares %d verdicts", len(declared))
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		w := &whyWorld{t: t, g: g, c: connect(t, g), events: watch(t, g)}
		slots := w.situations(database)
		for _, v := range declared {
			why := cron.Why(v[1])
			slot, ok := slots[why]
			if !ok {
				t.Errorf("the verdict %q has no situation here", why)
				continue
			}
			if why == cron.WhyHeld {
				w.run("hold", "--reason", "moving")
			}
			w.compare(why, slot)
			if why == cron.WhyHeld {
				w.run("release", "--yes")
			}
		}
	})
}

type whyWorld struct {
	t      *testing.T
	g      *Gateway
	c      *Client
	events *runEvents
	asked  int
}

// daily is 09:00 UTC of the day so many days ago, the slot of every job here.
func daily(ago int) time.Time {
	return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -ago).Add(9 * time.Hour)
}

// situations makes the jobs, changes them by calls, and writes what takes days or a crash into the tables.
func (w *whyWorld) situations(database string) map[cron.Why]whySlot {
	t, db := w.t, writable(w.t, w.g, database)
	ids := map[string]string{}
	cronAt := func(expr, tz string) map[string]any {
		return map[string]any{"kind": "cron", "expr": expr, "tz": tz}
	}
	for _, name := range []string{"digest", "paused", "disabled", "broken", "moved", "last year"} {
		ids[name] = addJob(t, w.c, name, cronAt("0 9 * * *", "UTC"), nil).ID
	}
	ids["ending"] = addJob(t, w.c, "ending", cronAt("0 9 * * *", "UTC"), map[string]any{"endsAtMs": time.Now().Add(36 * time.Hour).UnixMilli()}).ID
	ids["gap"] = addJob(t, w.c, "gap", cronAt("30 2 * * *", "Europe/Berlin"), map[string]any{"dst": map[string]any{"gap": "skip"}}).ID
	made := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	execute(t, db, fmt.Sprintf(`UPDATE cron_jobs SET created_at = %d, activated_at = %[1]d WHERE owner <> 'system'`, made.UnixMilli()))
	execute(t, db, `UPDATE cron_jobs SET schedule = '{"kind":"weekly"}' WHERE id = '`+ids["broken"]+`'`)
	row := func(job string, ago int, state cron.RunState, members string) {
		at, finished := daily(ago).UnixMilli(), "NULL"
		if state.Final() {
			finished = strconv.FormatInt(at+6206, 10)
		}
		execute(t, db, fmt.Sprintf(`INSERT INTO cron_run_logs (id, job_id, job_name, owner, agent, lane, scheduled_for, trigger, state, fire_at, started_at, finished_at, duration_ms, attempt,
				reason, error, node, claimed_at, next_attempt_at)
			SELECT 'schedule:' || id || ':%d', id, name, owner, agent, lane, %[1]d, 'schedule', '%[2]s', %[1]d, %[1]d + 6, %[3]s, 6200, 1, %[4]s FROM cron_jobs WHERE id = '%[5]s'`,
			at, state, finished, cmp.Or(members, fmt.Sprintf(`NULL, '', 'gw-1', %d, NULL`, at)), ids[job]))
	}
	row("digest", 2, cron.RunOK, "")
	row("digest", 3, cron.RunError, fmt.Sprintf(`NULL, 'the model refused the key', 'gw-1', %d, NULL`, daily(3).UnixMilli()))
	row("digest", 4, cron.RunRunning, "")
	row("digest", 5, cron.RunRetrying, fmt.Sprintf(`NULL, 'overloaded', 'gw-1', %d, %d`, daily(5).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()))
	row("digest", 6, cron.RunQueued, "")
	row("digest", 7, cron.RunSkipped, fmt.Sprintf(`'overlap', '', 'gw-1', %d, NULL`, daily(7).UnixMilli()))
	row("digest", 8, cron.RunMissed, fmt.Sprintf(`'window', '', 'gw-1', %d, NULL`, daily(8).Add(81*time.Minute).UnixMilli()))
	row("digest", 9, cron.RunCancelled, fmt.Sprintf(`'stopped', 'wrong text', 'gw-1', %d, NULL`, daily(9).UnixMilli()))
	row("digest", 10, cron.RunInterrupted, fmt.Sprintf(`NULL, 'the gateway ended three times', 'gw-1', %d, NULL`, daily(10).UnixMilli()))
	row("last year", 3, cron.RunOK, "")
	execute(t, db, fmt.Sprintf(`INSERT INTO cron_outages (from_at, until_at) VALUES (%d, %d), (%d, NULL)`,
		daily(8).Add(-2*time.Minute).UnixMilli(), daily(8).Add(81*time.Minute).UnixMilli(), daily(1).Add(-2*time.Minute).UnixMilli()))
	object(t, w.c, "cron.pause", map[string]any{"id": ids["paused"], "note": "holidays"})
	object(t, w.c, "cron.update", map[string]any{"id": ids["disabled"], "patch": map[string]any{"enabled": false}})
	object(t, w.c, "cron.update", map[string]any{"id": ids["moved"], "patch": map[string]any{"schedule": cronAt("0 8 * * *", "UTC")}})
	object(t, w.c, "cron.remove", map[string]any{"id": ids["last year"]})
	slots := map[cron.Why]whySlot{
		cron.WhyRan:         {job: "digest", at: daily(2), text: "It ran at "},
		cron.WhyFailed:      {job: "digest", at: daily(3), text: "It ran at "},
		cron.WhyRunning:     {job: "digest", at: daily(4), text: "It has been running since "},
		cron.WhyRetrying:    {job: "digest", at: daily(5), text: "Attempt 1 failed (overloaded); the next one is at "},
		cron.WhyWaiting:     {job: "digest", at: daily(6), text: "It was claimed at "},
		cron.WhySkipped:     {job: "digest", at: daily(7), text: "Another run of the job was active"},
		cron.WhyMissed:      {job: "digest", at: daily(8), text: "No replica fired jobs from "},
		cron.WhyCancelled:   {job: "digest", at: daily(9), text: "It was stopped: wrong text."},
		cron.WhyInterrupted: {job: "digest", at: daily(10), text: "It ran at "},
		cron.WhyUnknown:     {job: "digest", at: daily(11), text: "The ledger has no row for this slot, and nothing explains it."},
		cron.WhyHeld:        {job: "digest", at: daily(12), text: "The gateway is held"},
		cron.WhyNoReplica:   {job: "digest", at: daily(1), text: "No replica has fired jobs since "},
		cron.WhyUnplanned:   {job: "digest", at: daily(1).Add(time.Hour), text: "It is no slot of the schedule. The nearest slots are "},
		cron.WhyMadeLater:   {job: "digest", at: made.AddDate(0, 0, -1), text: "The job was made at Wed 1 Jan 00:00."},
		cron.WhyForgotten:   {job: "digest", at: daily(60), text: "The ledger keeps its rows since "},
		cron.WhyNotDue:      {job: "digest", at: daily(-3), text: "It is due in "},
		cron.WhyPaused:      {job: "paused", at: daily(-3), text: "The job has been paused since "},
		cron.WhyDisabled:    {job: "disabled", at: daily(-3), text: "The job is disabled"},
		cron.WhyEnded:       {job: "ending", at: daily(-3), text: "The job ends at "},
		cron.WhyInvalid:     {job: "broken", at: daily(2), text: "The stored job cannot be understood: "},
		cron.WhyChanged:     {job: "moved", at: daily(2), text: "It is no slot of the present schedule, which was changed at "},
		cron.WhyClock:       {job: "gap", at: time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC), text: "The clock went forward at Sun 29 Mar 03:00"},
		cron.WhyRemoved:     {job: "last year", at: daily(2), text: "The job was removed, and the ledger has no slot at that time."},
	}
	for why, slot := range slots {
		slot.id = ids[slot.job]
		slots[why] = slot
	}
	return slots
}

// compare asks about a slot in three ways. It asks the first way again at the end: a sentence with a duration changes with the clock.
func (w *whyWorld) compare(why cron.Why, slot whySlot) {
	w.t.Helper()
	at := slot.at.Format("2006-01-02T15:04:05Z")
	for {
		before := w.called(slot.id, at)
		first, command, _ := strings.Cut(w.run("cron", "why", slot.job, at), "\n")
		command, _, _ = strings.Cut(command, "Changed since: ")
		w.asked++
		key := fmt.Sprint("why-", w.asked)
		say(w.t, w.c, "agent:main:main", key, "/cron why "+slot.job+" "+at)
		chat := w.events.await(w.t, key).text
		if w.called(slot.id, at) != before {
			continue
		}
		verdict, sentence, _ := strings.Cut(before, "\n")
		if verdict != string(why) || !strings.HasPrefix(sentence, slot.text) {
			w.t.Errorf("the verdict is %s: %s\nwant %s: %s", verdict, sentence, why, slot.text)
		}
		if command = strings.TrimSuffix(command, "\n"); command != sentence || chat != sentence || !strings.HasSuffix(first, "  "+string(why)) {
			w.t.Errorf("%s\nby cron.explain: %s\nby laneway cron why (%s): %s\nby /cron why: %s", why, sentence, first, command, chat)
		}
		return
	}
}

// called is the verdict of cron.explain and its sentence.
func (w *whyWorld) called(id, at string) string {
	w.t.Helper()
	var reply wire.CronExplainResult
	if err := w.c.Into(&reply, "cron.explain", map[string]any{"id": id, "at": at}); err != nil || len(reply.Slots) != 1 {
		w.t.Fatalf("cron.explain %s %s: %+v, %v", id, at, reply, err)
	}
	s := reply.Slots[0]
	text := s.Why + "\n" + s.Text
	if s.Cure != "" {
		text += "\nWhat to do: " + s.Cure
	}
	return text
}

func (w *whyWorld) run(args ...string) string {
	w.t.Helper()
	out, errs, code := w.g.CLI(w.t.Context(), "", args...)
	if code != 0 {
		w.t.Fatalf("laneway %q: %d\n%s%s", args, code, out, errs)
	}
	return out
}
