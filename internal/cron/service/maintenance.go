package service

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
	pruneLedger   = "retention"
	pruneMessages = "messages"
	upkeep        = "upkeep"
	compaction    = "compaction"
)

// pruneChunk is how many rows go in one transaction.
const pruneChunk = 500

// maintenance is the built-in jobs and their work.
type maintenance struct{ *parts }

// run does the work of a built-in job and reports what was done. It checks its context between two chunks; what is done stays done.
func (mt *maintenance) run(ctx context.Context, what string) (string, error) {
	switch what {
	case pruneLedger:
		report, err := mt.pruneLedger(ctx)
		if err != nil {
			return report, err
		}
		answers, err := inChunks(ctx, func(ctx context.Context) (int, error) { return mt.store.PruneIdempotencyRecords(ctx, pruneChunk) })
		return fmt.Sprintf("%s, %d kept answers removed", report, answers), err
	case pruneMessages:
		return mt.pruneMessages(ctx)
	case upkeep:
		if u, ok := mt.store.(Upkeeper); ok {
			return u.Upkeep(ctx)
		}
		return "this store needs no upkeep", nil
	case compaction:
		if c, ok := mt.store.(Compacter); ok {
			return c.Compact(ctx)
		}
		return "this store needs no compaction", nil
	}
	return "", &agent.Error{Reason: chat.FailBadRequest, Message: "there is no built-in job " + chat.Cut(what, 64)}
}

func (mt *maintenance) pruneLedger(ctx context.Context) (string, error) {
	p := cron.PruneParams{Keep: mt.cfg.RetentionRuns, Limit: pruneChunk}
	if keep := mt.cfg.Retention; keep > 0 {
		now, err := mt.store.Now(ctx)
		if err != nil {
			return "", err
		}
		p.Before = now.Add(-keep)
	}
	if p.Before.IsZero() && p.Keep == 0 {
		return "everything is kept", nil
	}
	total, err := inChunks(ctx, func(ctx context.Context) (int, error) { return mt.jobs.Prune(ctx, p) })
	return fmt.Sprintf("%d entries of the ledger removed", total), err
}

// pruneMessages removes what is over and old: messages with their turns, then what was sent about them, then files.
func (mt *maintenance) pruneMessages(ctx context.Context) (string, error) {
	keep := mt.cfg.MessageRetention
	if keep == 0 {
		n, err := mt.sweepFiles(ctx, 0)
		return fmt.Sprintf("messages are kept for ever; %d directories of turns that crashed removed", n), err
	}
	now, err := mt.store.Now(ctx)
	if err != nil {
		return "", err
	}
	p := store.PruneParams{Before: now.Add(-keep), Limit: pruneChunk}
	messages, err := inChunks(ctx, func(ctx context.Context) (int, error) { return mt.store.PruneInbox(ctx, p) })
	if err != nil {
		return "", err
	}
	sent, err := inChunks(ctx, func(ctx context.Context) (int, error) { return mt.store.PruneOutbox(ctx, p) })
	if err != nil {
		return "", err
	}
	n, err := mt.sweepFiles(ctx, keep)
	return fmt.Sprintf("%d messages and %d outgoing messages removed, %d files", messages, sent, n), err
}

// sweepFiles removes the files that are not needed any more: what crashed turns left, and, unless keep is 0, what is older and not named by anything unfinished.
func (mt *maintenance) sweepFiles(ctx context.Context, keep time.Duration) (int, error) {
	if mt.files == nil {
		return 0, nil
	}
	now, before := time.Now(), time.Time{} // the clock of this host, as the times of files
	if keep > 0 {
		before = now.Add(-keep)
	}
	return mt.files.Sweep(ctx, now, before, mt.store.FilesInUse)
}

// inChunks removes rows some at a time until there are none left, and returns how many there were. It checks ctx between two chunks.
func inChunks(ctx context.Context, remove func(context.Context) (int, error)) (int, error) {
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
func (mt *maintenance) builtIn() []cron.Job {
	list := []cron.Job{
		{Name: "ledger retention", Key: "system:retention", Payload: cron.Payload{Text: pruneLedger}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "17 3 * * *", TZ: "UTC"}},
		{Name: "message retention", Key: "system:messages", Payload: cron.Payload{Text: pruneMessages}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "37 3 * * *", TZ: "UTC"}},
	}
	if _, ok := mt.store.(Upkeeper); ok {
		list = append(list, cron.Job{Name: "store upkeep", Key: "system:upkeep", Payload: cron.Payload{Text: upkeep}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "47 4 * * *", TZ: "UTC"}})
	}
	if _, ok := mt.store.(Compacter); ok {
		list = append(list, cron.Job{Name: "store compaction", Key: "system:compaction", Payload: cron.Payload{Text: compaction}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 0 4 * * 0", TZ: "UTC"}})
	}
	for i := range list {
		j := &list[i]
		j.Payload.Kind, j.Session, j.WakeMode, j.Lane = cron.PayloadSystemEvent, cron.Isolated, cron.WakeNow, cron.DefaultLane
		j.Owner, j.Principal, j.Agent, j.JitterMs = cron.SystemOwner, cron.SystemOwner, mt.defaultAgent, (10 * time.Minute).Milliseconds()
		j.Overlap, j.Retry, j.Timeout, j.Enabled = cron.OverlapSkip, cron.DefaultRetry(), time.Hour, true
		// The same id on every replica and after every start, so that two that begin at once agree.
		j.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte("laneway:"+j.Key)).String()
	}
	return list
}

// addBuiltIn makes the built-in jobs where they are missing. A paused one stays paused.
func (mt *maintenance) addBuiltIn(ctx context.Context) {
	for _, want := range mt.builtIn() {
		err := mt.node.WhileAlive(ctx, func(ctx context.Context) error {
			_, err := mt.jobs.PutJob(ctx, cron.PutParams{Owner: want.Owner, Key: want.Key, Change: func(old *cron.Job, now time.Time) (*cron.Job, error) {
				if old != nil {
					return old, nil
				}
				return mt.planned(want, now)
			}})
			return err
		})
		if err != nil && !errors.Is(err, chat.ErrConflict) && ctx.Err() == nil {
			mt.log.WarnContext(ctx, "a built-in job could not be made", "job", want.Key, "err", err)
		}
	}
}
