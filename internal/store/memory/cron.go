package memory

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// crons are the tables cron_jobs, cron_run_logs and audit_log.
type crons struct {
	jobs    map[string]*cron.Job
	keys    map[jobKey]string // ids
	ledger  map[string]*ledgerRow
	message map[string]*ledgerRow // by the message of the current attempt
	audit   []auditRow
	changes int // of jobs, for the revision of a list
	places  int // given to ledger rows
	// finished are the rows that ended in the current operation.
	finished []cron.Run
}

// jobKey is what makes a job unique besides its id.
type jobKey struct{ owner, key string }

// ledgerRow is one row of cron_run_logs with the message of its current attempt; a row that was only recorded has none.
type ledgerRow struct {
	cron.Run

	message string
	place   int // order of arrival
}

// auditRow is one row of audit_log.
type auditRow struct {
	cron.Audit

	id string
	at time.Time
}

var _ cron.JobStore = (*Store)(nil)

func newCrons() crons {
	return crons{
		jobs: map[string]*cron.Job{}, keys: map[jobKey]string{},
		ledger: map[string]*ledgerRow{}, message: map[string]*ledgerRow{},
	}
}

func (c *crons) write(a *cron.Audit, now time.Time) {
	if a != nil {
		c.audit = append(c.audit, auditRow{Audit: *a, id: newID(), at: now})
	}
}

// visible finds a job that the principal may see, or returns nil.
func (c *crons) visible(id, principal string) *cron.Job {
	j := c.jobs[id]
	if j == nil || (principal != "" && j.Owner != principal) {
		return nil
	}
	return j
}

// store puts a job in the place of the one with its id.
func (c *crons) store(j cron.Job) error {
	key := jobKey{j.Owner, j.Key}
	if other, taken := c.keys[key]; taken && other != j.ID {
		return chat.ErrConflict
	}
	if old := c.jobs[j.ID]; old != nil {
		delete(c.keys, jobKey{old.Owner, old.Key})
	}
	c.keys[key] = j.ID
	c.jobs[j.ID] = &j
	c.changes++
	return nil
}

func (c *crons) remove(j *cron.Job) {
	delete(c.keys, jobKey{j.Owner, j.Key})
	delete(c.jobs, j.ID)
	c.changes++
}

// active lists the runs of a job that are not over, oldest first.
func (c *crons) active(jobID string) []*ledgerRow {
	return c.rows(func(r *ledgerRow) bool { return r.JobID == jobID && r.State.Active() })
}

// rows lists the selected rows in the order of their arrival.
func (c *crons) rows(want func(r *ledgerRow) bool) []*ledgerRow {
	var list []*ledgerRow
	for _, r := range c.ledger {
		if want(r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *ledgerRow) int { return cmp.Compare(a.place, b.place) })
	return list
}

// add puts a row into the ledger unless the run has one.
func (c *crons) add(r cron.Run, message string) *ledgerRow {
	if c.ledger[r.ID] != nil {
		return nil
	}
	c.places++
	row := &ledgerRow{Run: keptRun(r), message: message, place: c.places}
	c.ledger[r.ID] = row
	if message != "" {
		c.message[message] = row
	}
	return row
}

// record puts a finished row into the ledger.
func (c *crons) record(r cron.Run, now time.Time) *ledgerRow {
	r.ClaimedAt, r.FinishedAt = now, now
	row := c.add(r, "")
	if row != nil {
		c.finished = append(c.finished, c.run(row))
	}
	return row
}

// takeFinished returns the rows that ended since the last call: those of one operation.
func (c *crons) takeFinished() []cron.Run {
	list := c.finished
	c.finished = nil
	return list
}

// view is a job with what follows from the ledger.
func (c *crons) view(j *cron.Job) cron.Job {
	out := keptJob(*j)
	for _, r := range c.active(j.ID) {
		out.State.Queued++
		if r.State == cron.RunRunning && out.State.RunningAt.IsZero() {
			out.State.RunningAt = r.StartedAt
		}
	}
	return out
}

func (c *crons) run(r *ledgerRow) cron.Run { return keptRun(r.Run) }

// keptJob is a copy as a table keeps it: whole milliseconds, nothing shared, no member that follows from the ledger.
func keptJob(j cron.Job) cron.Job {
	if j.Pause != nil {
		pause := *j.Pause
		pause.At, pause.Until = kept(pause.At), kept(pause.Until)
		j.Pause = &pause
	}
	for _, text := range []*[]byte{&j.Payload.Options, &j.Delivery.Options, &j.Alert.Delivery.Options} {
		*text = append([]byte(nil), *text...)
	}
	for _, at := range []*time.Time{
		&j.Schedule.At, &j.StartsAt, &j.EndsAt, &j.CreatedAt, &j.UpdatedAt, &j.State.Next, &j.State.NextRunAt,
		&j.State.ActivatedAt, &j.State.LastRunAt, &j.State.LastAlertAt, &j.State.DeliveryPause.Since,
	} {
		*at = kept(*at)
	}
	j.State.LastDuration = j.State.LastDuration.Truncate(time.Millisecond)
	j.State.RunningAt, j.State.Queued = time.Time{}, 0
	return j
}

func keptRun(r cron.Run) cron.Run {
	for _, at := range []*time.Time{
		&r.ScheduledFor, &r.SlotUntil, &r.FireAt, &r.ClaimedAt, &r.StartedAt, &r.FinishedAt, &r.NextAttempt,
	} {
		*at = kept(*at)
	}
	r.Duration = r.Duration.Truncate(time.Millisecond)
	r.SlotCount = max(r.SlotCount, 1)
	r.Attempts = slices.Clone(r.Attempts)
	for i := range r.Attempts {
		r.Attempts[i].StartedAt, r.Attempts[i].FinishedAt = kept(r.Attempts[i].StartedAt), kept(r.Attempts[i].FinishedAt)
	}
	return r
}

func kept(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

func sameJob(a, b cron.Job) bool { return reflect.DeepEqual(keptJob(a), keptJob(b)) }
