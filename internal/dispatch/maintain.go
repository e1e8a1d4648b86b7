package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// The built-in jobs, by the text of their payload.
const (
	maintainLedger   = "retention"
	maintainMessages = "messages"
	maintainStore    = "upkeep"
)

// Upkeeper is a store with housekeeping of its own to do now and then. Upkeep looks at its context between the steps.
type Upkeeper interface {
	Upkeep(ctx context.Context) (report string, err error)
}

// pruneChunk is how many rows go in one transaction.
const pruneChunk = 500

// maintain does the work of a built-in job and reports what was done. It looks at its context between two pieces; what is done stays done.
func (d *Dispatcher) maintain(ctx context.Context, what string) (string, error) {
	switch what {
	case maintainLedger:
		report, err := d.pruneLedger(ctx)
		if err != nil {
			return report, err
		}
		answers, err := d.inPieces(ctx, func(ctx context.Context) (int, error) { return d.store.PruneAnswers(ctx, pruneChunk) })
		return fmt.Sprintf("%s, %d kept answers removed", report, answers), err
	case maintainMessages:
		return d.pruneMessages(ctx)
	case maintainStore:
		if u, ok := d.store.(Upkeeper); ok {
			return u.Upkeep(ctx)
		}
		return "this store needs no upkeep", nil
	}
	return "", &agent.Error{Reason: chat.FailBadRequest, Message: "there is no built-in job " + chat.Cut(what, 64)}
}

func (d *Dispatcher) pruneLedger(ctx context.Context) (string, error) {
	p := cron.PruneParams{Keep: d.cfg.Cron.RetentionRuns, Limit: pruneChunk}
	if keep := d.cfg.Cron.Retention; keep > 0 {
		now, err := d.store.Now(ctx)
		if err != nil {
			return "", err
		}
		p.Before = now.Add(-keep)
	}
	if p.Before.IsZero() && p.Keep == 0 {
		return "everything is kept", nil
	}
	total, err := d.inPieces(ctx, func(ctx context.Context) (int, error) { return d.jobs.Prune(ctx, p) })
	return fmt.Sprintf("%d entries of the ledger removed", total), err
}

// pruneMessages removes what is over and old: messages with their turns, then what was sent about them, then files.
func (d *Dispatcher) pruneMessages(ctx context.Context) (string, error) {
	if d.cfg.Retention == 0 {
		n, err := d.sweepFiles(ctx, 0)
		return fmt.Sprintf("messages are kept for ever; %d directories of turns that crashed removed", n), err
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return "", err
	}
	p := store.PruneParams{Before: now.Add(-d.cfg.Retention), Limit: pruneChunk}
	messages, err := d.inPieces(ctx, func(ctx context.Context) (int, error) { return d.store.PruneInbox(ctx, p) })
	if err != nil {
		return "", err
	}
	sent, err := d.inPieces(ctx, func(ctx context.Context) (int, error) { return d.store.PruneOutbox(ctx, p) })
	if err != nil {
		return "", err
	}
	n, err := d.sweepFiles(ctx, d.cfg.Retention)
	return fmt.Sprintf("%d messages and %d outgoing messages removed, %d files", messages, sent, n), err
}

// sweepFiles removes the files that are not needed any more: what crashed turns left, and, unless keep is 0, what is older and not named by anything unfinished.
func (d *Dispatcher) sweepFiles(ctx context.Context, keep time.Duration) (int, error) {
	if d.cfg.Files == nil {
		return 0, nil
	}
	now, before := time.Now(), time.Time{} // the clock of this host, as the times of files
	if keep > 0 {
		before = now.Add(-keep)
	}
	return d.cfg.Files.Sweep(ctx, now, before, d.store.FilesInUse)
}

// inPieces removes rows some at a time until there are no more, and returns how many there were. It looks at ctx between two pieces.
func (d *Dispatcher) inPieces(ctx context.Context, remove func(context.Context) (int, error)) (int, error) {
	for total := 0; ; {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		n, err := remove(ctx)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}

// builtIn are the jobs that the gateway makes for itself.
func (d *Dispatcher) builtIn() []cron.Job {
	list := []cron.Job{
		{Name: "ledger retention", Key: "system:retention", Payload: cron.Payload{Text: maintainLedger}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "17 3 * * *", TZ: "UTC"}},
		{Name: "message retention", Key: "system:messages", Payload: cron.Payload{Text: maintainMessages}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "37 3 * * *", TZ: "UTC"}},
	}
	if _, ok := d.store.(Upkeeper); ok {
		list = append(list, cron.Job{Name: "store upkeep", Key: "system:upkeep", Payload: cron.Payload{Text: maintainStore}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "47 4 * * *", TZ: "UTC"}})
	}
	for i := range list {
		j := &list[i]
		j.Payload.Kind, j.Session, j.WakeMode, j.Lane = cron.PayloadSystemEvent, cron.Isolated, "now", cron.DefaultLane
		j.Owner, j.Principal, j.Agent, j.JitterMs = cron.SystemOwner, cron.SystemOwner, d.DefaultAgent(), (10 * time.Minute).Milliseconds()
		j.Overlap, j.Retry, j.Timeout, j.Enabled = cron.OverlapSkip, cron.DefaultRetry(), time.Hour, true
		// The same id on every replica and after every start, so that two that begin at once agree.
		j.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte("laneway:"+j.Key)).String()
	}
	return list
}

// keepMaintenance makes the built-in jobs where they are missing. A paused one stays paused.
func (d *Dispatcher) keepMaintenance(ctx context.Context) {
	for _, want := range d.builtIn() {
		err := d.node.WhileAlive(ctx, func(ctx context.Context) error {
			_, err := d.jobs.PutJob(ctx, cron.PutParams{Owner: want.Owner, Key: want.Key, Change: func(old *cron.Job, now time.Time) (*cron.Job, error) {
				if old != nil {
					return old, nil
				}
				return d.planned(want, now)
			}})
			return err
		})
		if err != nil && !errors.Is(err, chat.ErrConflict) && ctx.Err() == nil {
			d.log.WarnContext(ctx, "a built-in job could not be made", "job", want.Key, "err", err)
		}
	}
}

// planned fills in what a job gets when its schedule comes into force: revision, times and the first fire.
func (d *Dispatcher) planned(j cron.Job, now time.Time) (*cron.Job, error) {
	t, err := d.planner.Timetable(j)
	if err != nil {
		return nil, err
	}
	fresh := j.CreatedAt.IsZero()
	if fresh {
		j.CreatedAt = now
	}
	j.UpdatedAt, j.State.ActivatedAt = now, now
	before := j.State.Next
	j.State.Next, j.State.NextRunAt = time.Time{}, time.Time{}
	switch {
	case j.Pause != nil:
		if fresh { // what passed before this gateway had the job is none of its slots
			fire, _ := t.First(now)
			before = fire.Slot
		}
		j.State.Next, j.State.NextRunAt = before, j.Pause.Until
	case j.MayFire():
		fire, _ := t.First(now)
		j.State.Next, j.State.NextRunAt = fire.Slot, fire.At
	}
	j.Revision = cron.RevisionOf(j)
	return &j, nil
}
