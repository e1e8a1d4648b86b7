package storetest

import (
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func cronNameTests() []test {
	return []test{
		{"NameThatExistsIsRefused", nameRefused},
		{"NameThatExistsIsReplaced", nameReplaced},
		{"GivenKeyCountsBeforeTheName", keyBeforeName},
		{"OneNameMakesOneJob", oneNameMakesOneJob},
	}
}

// named puts a new job with a rule for its name.
func (w *world) named(st cron.JobStore, name string, rule cron.NameRule, change func(*cron.PutParams)) (cron.PutResult, error) {
	j := w.draft()
	j.Name = name
	p := putParams(j)
	p.Name, p.IfNameExists = name, rule
	p.Change = func(old *cron.Job, _ time.Time) (*cron.Job, error) {
		if old != nil {
			next := *old
			next.Payload.Text = "replaced"
			return &next, nil
		}
		return &j, nil
	}
	if change != nil {
		change(&p)
	}
	return st.PutJob(w.ctx, p)
}

func (w *world) refusedFor(err error, ids ...string) {
	w.Helper()
	exists, ok := errors.AsType[*cron.NameExistsError](err)
	if !ok {
		w.Fatalf("got %v, want a *NameExistsError", err)
	}
	equal(w, "the jobs of that name", *exists, cron.NameExistsError{Name: "tea", IDs: ids})
}

func nameRefused(w *world) {
	first := w.job(func(j *cron.Job) { j.Name = "tea" })
	w.job(func(j *cron.Job) { j.Name, j.Owner = "tea", "bob" })
	before := w.revision()
	_, err := w.named(w.cron(), "tea", cron.NameRefuse, nil)
	w.refusedFor(err, first.ID)
	equal(w, "revision of the list", w.revision(), before)
	r := try(w.named(w.cron(), "Tea", cron.NameRefuse, nil)).ok(w)
	equal(w, "another name", r.Created, true)
	w.clock.advance(time.Second)
	r = try(w.named(w.cron(), "tea", cron.NameNew, nil)).ok(w)
	second := r.Job
	equal(w, "a second one", r.Created, true)
	for _, rule := range []cron.NameRule{cron.NameRefuse, cron.NameReplace} {
		_, err = w.named(w.cron(), "tea", rule, nil)
		w.refusedFor(err, first.ID, second.ID)
	}
}

func nameReplaced(w *world) {
	j := w.job(func(j *cron.Job) { j.Name = "tea" })
	audit := &cron.Audit{Who: "ann", Verb: "add", Object: "x"}
	r := try(w.named(w.cron(), "tea", cron.NameReplace, func(p *cron.PutParams) { p.Audit = audit })).ok(w)
	j.Payload.Text = "replaced"
	equal(w, "result", r, cron.PutResult{Job: j, Updated: true})
	equal(w, "stored", w.stored(j.ID), j)
	equal(w, "audit rows", len(w.audits()), 1)
	r = try(w.named(w.cron(), "water", cron.NameReplace, nil)).ok(w)
	equal(w, "nothing to replace: made", r.Created, true)
}

func keyBeforeName(w *world) {
	named := w.job(func(j *cron.Job) { j.Name = "tea" })
	keyed := w.job(func(j *cron.Job) { j.Key = "given" })
	given := func(p *cron.PutParams) { p.Key, p.KeyGiven = "given", true }
	r := try(w.named(w.cron(), "tea", cron.NameRefuse, given)).ok(w)
	equal(w, "the job with the key", r.Job.ID, keyed.ID)
	derived := func(p *cron.PutParams) { p.Key = named.Key }
	_, err := w.named(w.cron(), "tea", cron.NameRefuse, derived)
	w.refusedFor(err, named.ID)
}

// oneNameMakesOneJob: the rule is checked in the transaction, so only one of many concurrent calls creates the job.
func oneNameMakesOneJob(w *world) {
	made := make([]bool, racers)
	w.race(racers, func(st store.Store, i int) error {
		r, err := w.named(w.cronOf(st), "tea", cron.NameRefuse, nil)
		made[i] = r.Created
		if _, refused := errors.AsType[*cron.NameExistsError](err); refused || errors.Is(err, chat.ErrConflict) {
			return nil
		}
		return err
	})
	count := 0
	for _, m := range made {
		if m {
			count++
		}
	}
	equal(w, "jobs made", count, 1)
	equal(w, "jobs", len(w.jobIDs(cron.JobFilter{Visible: "ann", Limit: many})), 1)
}
