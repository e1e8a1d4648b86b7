package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

const (
	// longestExplained is the longest period whose slots are explained in one call.
	longestExplained = 26 * time.Hour
	// mostExplained is the maximum number of these slots.
	mostExplained = 100
	// rowsBefore is how many earlier rows are searched for one that stands for many slots.
	rowsBefore = 50
	// rulesApart is how far after its moment the run of a slot is searched that other rules of the zone have planned.
	rulesApart = 3 * time.Hour
	// mostHistory is how many outages, and how many changes, an explanation reads.
	mostHistory = 100
)

// Explain explains the outcome of slots, by the ledger, the changes of the job and the outages.
func (ed *Editor) Explain(ctx context.Context, p cron.ExplainParams, by chat.Caller) (out cron.Explained, err error) {
	e := cron.Evidence{}
	if e.Now, err = ed.store.Now(ctx); err != nil {
		return out, err
	}
	j, err := ed.jobs.Job(ctx, p.ID, visible(by))
	switch {
	case err == nil:
		e.Job = &j
		if t, err := ed.planner.Timetable(j); err == nil {
			e.Timetable = &t
		}
	case !errors.Is(err, chat.ErrNotFound):
		return out, err
	}
	out.Zone = cmp.Or(ed.cfg.Rules.DefaultTZ, "UTC")
	if e.Job != nil {
		out.Zone = cmp.Or(j.Schedule.TZ, out.Zone)
	}
	if e.Zone, err = schedule.LoadZone(out.Zone); err != nil { // the row is invalid, which explains the outcome
		out.Zone, e.Zone = "UTC", time.UTC
	}
	one := p.From.IsZero()
	if one && p.At == "" && p.Moment.IsZero() {
		p.Moment = e.Newest()
	}
	if p.From, p.Until, err = stretch(p, e.Now, out.Zone); err != nil {
		return out, err
	}
	if err := ed.evidence(ctx, p, by, &e); err != nil {
		return out, err
	}
	if e.Job == nil && len(e.Rows) == 0 {
		return out, jobNotFound(p.ID)
	}
	slots := []time.Time{p.From}
	if !one {
		slots = e.SlotsOf(p.From, p.Until, mostExplained)
	}
	for _, at := range slots {
		out.Slots = append(out.Slots, cron.Explain(at, e))
	}
	return out, nil
}

// stretch is the requested period; see [cron.After] for that of a moment.
func stretch(p cron.ExplainParams, now time.Time, zone string) (from, until time.Time, err error) {
	switch {
	case p.At != "":
		if p.Moment, err = schedule.ParsePast(p.At, now, zone); err != nil {
			return from, until, wireFault(err)
		}
	case !p.From.IsZero():
		if p.Until.Before(p.From) || p.Until.Sub(p.From) > longestExplained {
			return from, until, chat.Errorf(chat.CodeInvalid, "untilMs must be after fromMs, by at most 26 hours").With("field", "untilMs")
		}
		return p.From, p.Until, nil
	}
	from = p.Moment.Truncate(time.Second)
	return from, cron.After(from), nil
}

// evidence reads the evidence from the store.
func (ed *Editor) evidence(ctx context.Context, p cron.ExplainParams, by chat.Caller, e *cron.Evidence) error {
	id, key := p.ID, ""
	if e.Job != nil {
		key = e.Job.Key
	}
	f := cron.RunFilter{Visible: visible(by), JobID: id, IncludeActive: true, Since: p.From, Until: p.Until, Limit: mostExplained}
	during, err := ed.jobs.Runs(ctx, f)
	if err != nil {
		return err
	}
	f.Since, f.Until, f.Limit = time.Time{}, p.From, rowsBefore
	before, err := ed.jobs.Runs(ctx, f)
	if err != nil {
		return err
	}
	e.Rows = append(during.Runs, before.Runs...)
	if e.Timetable != nil && e.Timetable.Schedule.Release() != "" { // other rules of the zone may have planned the slot later
		f := f
		f.Since, f.Until, f.Ascending, f.Limit = p.Until, p.Until.Add(rulesApart), true, rowsBefore
		after, err := ed.jobs.Runs(ctx, f)
		if err != nil {
			return err
		}
		e.Rows = append(e.Rows, after.Runs...)
	}
	if e.Kept, err = ed.kept(ctx, f, e.Now); err != nil {
		return err
	}
	past, err := ed.store.Past(ctx, id, key, p.From, mostHistory)
	if err != nil {
		return err
	}
	e.Outages, e.Changes = past.Outages, past.Changes
	hold, err := ed.store.Hold(ctx)
	e.Held = hold != nil
	return err
}

// kept is how far back the ledger of a job reaches; zero = to its beginning.
func (ed *Editor) kept(ctx context.Context, f cron.RunFilter, now time.Time) (since time.Time, err error) {
	if ed.cfg.Retention > 0 {
		since = now.Add(-ed.cfg.Retention)
	}
	if ed.cfg.RetentionRuns == 0 {
		return since, nil
	}
	f.Until, f.Ascending, f.Limit = time.Time{}, true, 1
	oldest, err := ed.jobs.Runs(ctx, f)
	if err == nil && oldest.Total >= ed.cfg.RetentionRuns && len(oldest.Runs) == 1 && oldest.Runs[0].ScheduledFor.After(since) {
		since = oldest.Runs[0].ScheduledFor
	}
	return since, err
}
