package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

func cronListTests() []test {
	return []test{
		{"ListsOfJobsAreThoseOfAModel", listsOfModel},
		{"TotalsOfJobsAndRunsStopAtAThousand", totalsOfJobsStop},
		{"RevisionChangesWithTheList", revisionChanges},
		{"OneOwnersListShowsNothingOfOthers", ownersList},
		{"QueryTakesWildcardsAsText", queryTakesText},
	}
}

func (w *world) jobIDs(f cron.JobFilter) []string {
	w.Helper()
	p := try(w.cron().Jobs(w.ctx, f)).ok(w)
	var ids []string
	for _, j := range p.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// totalsOfJobsStop: a total that is asked for further, as the retention of the ledger does, counts
// further.
func totalsOfJobsStop(w *world) {
	if w.h.Exec == nil { // an engine without SQL
		return
	}
	const rows = chat.Counted + 2
	j := w.job(func(j *cron.Job) { j.Owner, j.Name = "ann", "many" })
	w.ran(w.node(), 1)
	many := func(table, columns, changed string) string {
		return fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO %s (%s, %s) SELECT %s, %s FROM %s, n`, rows-1, table, changed, columns, strings.ReplaceAll(changed, ",", " || n.i,")+" || n.i", columns, table)
	}
	w.h.Exec(w.tb, many("cron_jobs", "owner, name, schedule, payload, delivery, alert, policy", "id, key"))
	w.h.Exec(w.tb, many("cron_run_logs", "job_name, owner, scheduled_for, trigger, state, finished_at", "id, job_id"))
	defer w.h.Exec(w.tb, "DELETE FROM cron_jobs WHERE id <> '"+j.ID+"'")
	defer w.h.Exec(w.tb, "DELETE FROM cron_run_logs WHERE job_id <> '"+j.ID+"'")
	for _, tt := range []struct {
		limit, offset, count, total int
		more                        bool
	}{
		{1, 0, 0, chat.Counted, true}, {1, chat.Counted, 0, chat.Counted + 1, true}, {1, chat.Counted + 1, 0, rows, false}, {2, 0, rows, rows, false},
	} {
		for _, query := range []string{"", "MANY"} {
			if tt.count == 0 {
				p := try(w.cron().Jobs(w.ctx, cron.JobFilter{SortBy: "id", Query: query, Limit: tt.limit, Offset: tt.offset, WithoutPayload: true})).ok(w)
				equal(w, fmt.Sprintf("jobs of %+v, query %q", tt, query), []any{p.Total, p.More, len(p.Jobs)}, []any{tt.total, tt.more, tt.limit})
			}
			r := try(w.cron().Runs(w.ctx, cron.RunFilter{Query: query, Limit: tt.limit, Offset: tt.offset, Count: tt.count})).ok(w)
			equal(w, fmt.Sprintf("runs of %+v, query %q", tt, query), []any{r.Total, r.More, len(r.Runs)}, []any{tt.total, tt.more, tt.limit})
		}
	}
}

func revisionChanges(w *world) {
	seen := []string{w.revision()}
	changed := func(what string) {
		w.clock.advance(time.Millisecond)
		now := w.revision()
		if slices.Contains(seen, now) {
			w.Errorf("the revision of the list is %s again after a job was %s", now, what)
		}
		equal(w, "revision that is read again", w.revision(), now)
		seen = append(seen, now)
	}
	j := w.job(nil)
	changed("made")
	w.alter(j.ID, func(j *cron.Job) { j.Name, j.UpdatedAt = "x", w.clock.now() })
	changed("changed")
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil // removes the job
	}})).ok(w)
	w.job(nil)
	changed("removed and another was made")
}

// ownersList: jobs of other owners and of the gateway are in no figure of an owner's list, and
// their changes do not affect it.
func ownersList(w *world) {
	page := func() cron.JobPage {
		w.Helper()
		p := try(w.cron().Jobs(w.ctx, cron.JobFilter{Visible: "anna", IncludeSystem: true, Limit: 10})).ok(w)
		p.Jobs = slices.DeleteFunc(p.Jobs, func(j cron.Job) bool { return j.Owner == "anna" })
		return p
	}
	nothing := page()
	others := w.job(func(j *cron.Job) { j.Owner = "otto" })
	w.job(func(j *cron.Job) { j.Owner = cron.SystemOwner })
	equal(w, "the list when only others have jobs", page(), nothing)
	equal(w, "jobs", nothing.Total, 0)
	mine := w.job(func(j *cron.Job) { j.Owner = "anna" })
	one := page()
	if one.Revision == nothing.Revision || one.Total != 1 || len(one.Jobs) != 0 {
		w.Errorf("with a job of one's own the list is %+v, before %+v", one, nothing)
	}
	w.clock.advance(time.Millisecond)
	w.alter(others.ID, func(j *cron.Job) { j.Name, j.UpdatedAt = "x", w.clock.now() })
	equal(w, "the list after a change of another's job", page(), one)
	w.alter(mine.ID, func(j *cron.Job) { j.Name, j.UpdatedAt = "y", w.clock.now() })
	if after := page(); after.Revision == one.Revision {
		w.Errorf("the revision is %s after a change of one's own job, too", after.Revision)
	}
}

func queryTakesText(w *world) {
	a := w.job(func(j *cron.Job) { j.Name = `50%_\done` })
	w.job(func(j *cron.Job) { j.Name = `50 xx done` })
	for _, q := range []string{`50%`, `%_`, `_\d`, `\done`} {
		equal(w, "jobs with "+q, w.jobIDs(cron.JobFilter{Query: q, Limit: many}), []string{a.ID})
	}
}

// listedJob is a job of the model with the rows of its ledger.
type listedJob struct {
	cron.Job

	runs []cron.Run
}

// meets reports whether the job meets a condition at a moment.
func (j *listedJob) meets(c cron.JobCondition, now time.Time) bool {
	has := func(state cron.RunState, due time.Time) bool {
		return slices.ContainsFunc(j.runs, func(r cron.Run) bool { return r.State == state && (due.IsZero() || !r.FireAt.After(due)) })
	}
	switch due := now.Add(-cron.LateAfter); c {
	case cron.JobsFailing:
		return j.State.ConsecutiveErrors > 0
	case cron.JobsPaused:
		return j.Pause != nil
	case cron.JobsRunning:
		return has(cron.RunRunning, time.Time{})
	case cron.JobsLate:
		return j.MayFire() && !j.State.NextRunAt.IsZero() && !j.State.NextRunAt.After(due) || has(cron.RunQueued, due)
	case cron.JobsInvalid:
		return j.Invalid != ""
	case cron.JobsUnsent:
		return !j.State.DeliveryPause.Since.IsZero()
	}
	return true
}

// value is the sort key of the job; the zero value comes last.
func (j *listedJob) value(by string) (number int64, text string) {
	switch by {
	case "name":
		return 0, j.Name
	case "updatedAt":
		return j.UpdatedAt.UnixMilli(), ""
	case "lastRunAt":
		return unixMilli(j.State.LastRunAt), ""
	case "failing":
		return int64(j.State.ConsecutiveErrors), ""
	case "id":
		return 0, j.ID
	}
	return unixMilli(j.State.NextRunAt), ""
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// before is the order of a list.
func (j *listedJob) before(o *listedJob, f cron.JobFilter) int {
	an, at := j.value(f.SortBy)
	bn, bt := o.value(f.SortBy)
	zero := func(n int64, t string) int { return map[bool]int{true: 1}[n == 0 && t == ""] }
	order := cmp.Or(cmp.Compare(an, bn), strings.Compare(at, bt))
	if f.Descending {
		order = -order
	}
	return cmp.Or(zero(an, at)-zero(bn, bt), order, strings.Compare(j.ID, o.ID))
}

func (j *listedJob) fits(f cron.JobFilter, now time.Time) bool {
	found := strings.Contains(strings.ToLower(strings.Join([]string{j.ID, j.Name, j.DisplayName, j.Key, j.Description}, "\x00")), strings.ToLower(f.Query))
	return (j.Owner != cron.SystemOwner || f.IncludeSystem) && (f.Visible == "" || j.Owner == f.Visible) && (f.Agent == "" || j.Agent == f.Agent) && found &&
		(f.Target == "" || j.Delivery.Channel == f.Target || j.Delivery.To == f.Target) && (f.Condition == "" || j.meets(f.Condition, now)) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, j.ID)) && (f.Enabled == nil || j.MayFire() == *f.Enabled) && (f.Kind == "" || j.Schedule.Kind == f.Kind) &&
		(f.LastState == "" || j.State.LastState == f.LastState) && (!f.NeverRan || j.State.LastState == "")
}

// listsOfModel creates random jobs and runs, and compares every order, filter and page with a
// simple model.
func listsOfModel(w *world) {
	random := rand.New(rand.NewPCG(5, 7)) // the same jobs each time
	node := w.node()
	all := make([]*listedJob, 60)
	for i := range all {
		all[i] = &listedJob{Job: w.randomJob(random)}
	}
	w.pass(2*time.Minute, node)
	for i, j := range all {
		w.randomRuns(random, j, node, i)
	}
	now := w.clock.now()
	var ids []string
	for _, j := range all {
		j.Job = w.stored(j.ID)
		ids = append(ids, j.ID)
	}
	yes, no := true, false
	filters := []cron.JobFilter{
		{Enabled: &yes},
		{Enabled: &no, Visible: "ann"},
		{Kind: schedule.KindCron},
		{LastState: cron.RunError},
		{NeverRan: true},
		{Visible: "bob", IncludeSystem: true},
		{Query: ids[4][1:]},
		{Query: "KEY of " + ids[5]},
		{Query: "no such words"},
		{},
		{IncludeSystem: true},
		{Visible: "bob"},
		{Agent: "other"},
		{Target: "telegram"},
		{Target: `4"2`},
		{Target: "42"},
		{Query: "ROT"},
		{Query: "grün"},
		{IDs: ids[3:9]},
		{IDs: ids[:30], Query: "o", Agent: "main"},
		{Condition: cron.JobsFailing, Target: "telegram"},
		{Condition: cron.JobsFailing},
		{Condition: cron.JobsPaused},
		{Condition: cron.JobsRunning},
		{Condition: cron.JobsLate},
		{Condition: cron.JobsInvalid},
		{Condition: cron.JobsUnsent},
	}
	for _, f := range filters {
		for _, by := range []string{"", "name", "updatedAt", "lastRunAt", "failing", "id"} {
			for _, down := range []bool{false, true} {
				f.SortBy, f.Descending = by, down
				w.compareList(f, all, now)
			}
		}
	}
	try(w.cron().Jobs(w.ctx, cron.JobFilter{Limit: 5, After: "no cursor"})).fails(w, chat.ErrInvalid)
	page := try(w.cron().Jobs(w.ctx, cron.JobFilter{Limit: 5})).ok(w)
	try(w.cron().Jobs(w.ctx, cron.JobFilter{Limit: 5, SortBy: "name", After: page.Next})).fails(w, chat.ErrInvalid)
}

func (w *world) randomJob(random *rand.Rand) cron.Job {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	some := func(d time.Duration) time.Time { return w.clock.now().Add(time.Duration(random.IntN(5)) * d) }
	return w.job(func(j *cron.Job) {
		j.Owner, j.Agent = pick("ann", "ann", "bob", cron.SystemOwner), pick("main", "other")
		j.Name, j.Description = pick("", "rot", "Grün", "blau", "Z"), pick("", "ein ROTES Wort")
		j.UpdatedAt = some(time.Second)
		if random.IntN(4) == 0 {
			w.firesAt(j, schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *"})
		}
		j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: pick("telegram", "web"), To: pick("42", `4"2`, "")}
		j.State.Next = w.clock.now().Add(time.Minute + some(30*time.Second).Sub(w.clock.now()))
		j.State.NextRunAt = j.State.Next
		if random.IntN(4) == 0 {
			j.Enabled, j.State.Next, j.State.NextRunAt = false, time.Time{}, time.Time{}
		}
		if random.IntN(4) == 0 {
			j.Pause = &cron.Pause{By: "ann", At: w.clock.now()}
		}
		if random.IntN(6) == 0 {
			j.Invalid = "not understood"
		}
		if random.IntN(2) == 0 {
			j.State.LastRunAt, j.State.LastState, j.State.ConsecutiveErrors = some(time.Minute), cron.RunError, random.IntN(3)
		}
		if random.IntN(4) == 0 {
			j.State.DeliveryPause = cron.DeliveryPause{Since: w.clock.now(), Reason: "blocked", Channel: "web", ChatID: "1"}
		}
	})
}

// randomRuns creates rows of the ledger: finished runs, and runs that wait or run.
func (w *world) randomRuns(random *rand.Rand, j *listedJob, node string, n int) {
	w.Helper()
	for i := range random.IntN(20) {
		slot := w.clock.now().Add(-time.Duration(i+1) * time.Hour)
		row := skippedRow(j.Job, slot, cron.ReasonOverlap)
		if i%3 == 1 {
			row.State, row.Reason = cron.RunMissed, cron.ReasonWindow
		}
		try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Skipped: &row, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) { return &old, nil }})).ok(w)
		j.runs = append(j.runs, row)
	}
	if n%5 != 0 || !j.MayFire() {
		return
	}
	slot := w.clock.now().Add(time.Duration(random.IntN(2)) * -time.Minute)
	made := try(w.cron().EnqueueRuns(w.ctx, cron.EnqueueParams{Node: node, JobID: j.ID, Make: func(d cron.DueJob, _ time.Time) ([]cron.Launch, error) {
		return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: slot, At: slot})}, nil
	}})).ok(w)
	run := made.Launched[0].Run
	if n%10 == 0 {
		w.begin(made.Launched[0])
		run.State = cron.RunRunning
	}
	j.runs = append(j.runs, run)
}

// compareList reads a list by cursors, and as one page, and compares it with the model.
func (w *world) compareList(f cron.JobFilter, all []*listedJob, now time.Time) {
	w.Helper()
	var want []*listedJob
	counts := cron.JobCounts{}
	for _, j := range all {
		if j.fits(cron.JobFilter{Visible: f.Visible, IncludeSystem: f.IncludeSystem}, now) {
			counts.All++
			for c, n := range map[cron.JobCondition]*int{
				cron.JobsFailing: &counts.Failing, cron.JobsPaused: &counts.Paused, cron.JobsRunning: &counts.Running, cron.JobsLate: &counts.Late, cron.JobsInvalid: &counts.Invalid,
			} {
				if j.meets(c, now) {
					*n++
				}
			}
		}
		if j.fits(f, now) {
			want = append(want, j)
		}
	}
	slices.SortFunc(want, func(a, b *listedJob) int { return a.before(b, f) })
	what := fmt.Sprintf("%+v", f)
	f.Limit, f.Counts, f.Outcomes, f.WithoutPayload = 7, true, 14, true
	var got []string
	for pages := 0; ; pages++ {
		p := try(w.cron().Jobs(w.ctx, f)).ok(w)
		equal(w, "total of "+what, p.Total, len(want))
		equal(w, "counts of "+what, p.Counts, counts)
		for _, j := range p.Jobs {
			got = append(got, j.ID)
			at := slices.IndexFunc(all, func(m *listedJob) bool { return m.ID == j.ID })
			equal(w, "outcomes of a job", p.Outcomes[j.ID], latestOutcomes(all[at].runs))
		}
		if f.After = p.Next; f.After == "" || pages > len(all) {
			break
		}
	}
	ids := make([]string, len(want))
	for i, j := range want {
		ids[i] = j.ID
	}
	equal(w, "pages of "+what, fmt.Sprint(got), fmt.Sprint(ids))
}

func latestOutcomes(runs []cron.Run) []cron.RunOutcome {
	var out []cron.RunOutcome
	for _, r := range runs {
		if r.State.Final() {
			out = append(out, cron.RunOutcome{Slot: time.UnixMilli(r.ScheduledFor.UnixMilli()).UTC(), State: r.State, Reason: r.Reason})
		}
	}
	slices.SortFunc(out, func(a, b cron.RunOutcome) int { return b.Slot.Compare(a.Slot) })
	return out[:min(len(out), 14)]
}
