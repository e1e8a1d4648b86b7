package storetest

import (
	"fmt"
	"slices"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

func cronListTests() []test {
	return []test{
		{"FiltersOfJobs", filtersOfJobs},
		{"OrdersOfJobs", ordersOfJobs},
		{"ListsOfJobsAreThoseOfAModel", listsOfModel},
		{"PagesNeitherSkipNorRepeat", pagesOfJobs},
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

func filtersOfJobs(w *world) {
	usual := w.job(nil)
	off := w.job(func(j *cron.Job) { j.Enabled, j.Agent, j.Description = false, "other", "Grüße an ALLE" })
	paused := w.job(func(j *cron.Job) {
		j.Pause, j.State.Next, j.State.NextRunAt = &cron.Pause{By: "ann", At: w.clock.now()}, time.Time{}, time.Time{}
	})
	failed := w.job(func(j *cron.Job) {
		w.firesAt(j, schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *"})
		j.State.LastState = cron.RunError
	})
	system := w.job(func(j *cron.Job) { j.Owner = cron.SystemOwner })
	bob := w.job(func(j *cron.Job) { j.Owner = "bob" })
	yes, no := true, false
	for name, tt := range map[string]struct {
		f    cron.JobFilter
		want []cron.Job
	}{
		"all":      {cron.JobFilter{}, []cron.Job{usual, off, paused, failed, bob}},
		"system":   {cron.JobFilter{IncludeSystem: true}, []cron.Job{usual, off, paused, failed, bob, system}},
		"owner":    {cron.JobFilter{Visible: "bob"}, []cron.Job{bob}},
		"no other": {cron.JobFilter{Visible: "bob", IncludeSystem: true}, []cron.Job{bob}},
		"enabled":  {cron.JobFilter{Visible: "ann", Enabled: &yes}, []cron.Job{usual, failed}},
		"disabled": {cron.JobFilter{Visible: "ann", Enabled: &no}, []cron.Job{off, paused}},
		"kind":     {cron.JobFilter{Kind: schedule.KindCron}, []cron.Job{failed}},
		"state":    {cron.JobFilter{LastState: cron.RunError}, []cron.Job{failed}},
		"no state": {cron.JobFilter{Visible: "ann", NeverRan: true}, []cron.Job{usual, off, paused}},
		"agent":    {cron.JobFilter{Agent: "other"}, []cron.Job{off}},
		"id":       {cron.JobFilter{Query: usual.ID[1:]}, []cron.Job{usual}},
		"name":     {cron.JobFilter{Query: "NAME OF " + off.ID}, []cron.Job{off}},
		"key":      {cron.JobFilter{Query: "Key of " + paused.ID}, []cron.Job{paused}},
		"text":     {cron.JobFilter{Query: "an alle"}, []cron.Job{off}},
		"nothing":  {cron.JobFilter{Query: "no such words"}, nil},
	} {
		tt.f.Limit, tt.f.SortBy = many, "id"
		var want []string
		for _, j := range tt.want {
			want = append(want, j.ID)
		}
		slices.Sort(want)
		equal(w, "jobs by "+name, w.jobIDs(tt.f), want)
	}
}

func ordersOfJobs(w *world) {
	at := func(minutes int) time.Time { return w.clock.now().Add(time.Duration(minutes) * time.Minute) }
	make4 := func(id, name string, next, updated time.Time) {
		w.job(func(j *cron.Job) {
			j.ID, j.Name, j.State.Next, j.State.NextRunAt, j.UpdatedAt = id, name, next, next, updated
			j.Enabled = !next.IsZero()
		})
	}
	make4("a", "delta", at(3), at(9))
	make4("b", "beta", time.Time{}, at(7))
	make4("c", "alpha", at(1), at(8))
	make4("d", "beta", at(3), at(6))
	for _, tt := range []struct {
		by   string
		down bool
		want string
	}{
		{"", false, "[c a d b]"},
		{"nextRunAt", false, "[c a d b]"},
		{"nextRunAt", true, "[a d c b]"},
		{"updatedAt", false, "[d b c a]"},
		{"updatedAt", true, "[a c b d]"},
		{"name", false, "[c b d a]"},
		{"name", true, "[a b d c]"},
		{"id", false, "[a b c d]"},
		{"id", true, "[d c b a]"},
	} {
		got := fmt.Sprint(w.jobIDs(cron.JobFilter{SortBy: tt.by, Descending: tt.down, Limit: many}))
		equal(w, fmt.Sprintf("order by %q, descending %v", tt.by, tt.down), got, tt.want)
	}
}

func pagesOfJobs(w *world) {
	var want []string
	for range 25 {
		want = append(want, w.job(nil).ID) // all with the same next fire
	}
	slices.Sort(want)
	var got []string
	for offset := 0; ; offset += 7 {
		p := try(w.cron().Jobs(w.ctx, cron.JobFilter{Limit: 7, Offset: offset})).ok(w)
		equal(w, "total", p.Total, 25)
		if len(p.Jobs) == 0 {
			break
		}
		for _, j := range p.Jobs {
			got = append(got, j.ID)
		}
	}
	equal(w, "all pages", got, want)
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
		return nil, nil //nolint:nilnil // removes the job
	}})).ok(w)
	w.job(nil)
	changed("removed and another was made")
}

// ownersList: jobs of other owners and of the gateway are in no figure of an owner's list, and their changes do not affect it.
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
