package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// The built-in jobs, identified by the text of their payload.
const (
	pruneLedger   = "retention"
	pruneMessages = "messages"
	upkeep        = "upkeep"
	compaction    = "compaction"
	rollUp        = "roll-up " // followed by the level
)

// pruneChunk is how many rows one transaction deletes.
const pruneChunk = 500

// changesKept is how long the log of changes is kept at least.
const changesKept = 365 * 24 * time.Hour

const (
	// zonesEvery is how often a process looks for slots that older zone rules have planned. A
	// process with older rules plans such slots as long as it runs.
	zonesEvery = time.Minute
	// zonesChunk is how many jobs one transaction plans again.
	zonesChunk = 500
)

// maintenance implements the built-in jobs.
type maintenance struct {
	*shared

	release string // of the zone rules of this process
	nudge   func()
}

// run does the work of a built-in job and returns a report. It checks its context between two
// chunks; completed chunks stay.
func (mt *maintenance) run(ctx context.Context, what string, by agent.Summariser) (string, error) {
	if level, ok := strings.CutPrefix(what, rollUp); ok {
		if mt.cfg.RollUp == nil {
			return "no agent is named for summaries", nil
		}
		return mt.cfg.RollUp(ctx, store.TocLevel(level), by)
	}
	switch what {
	case pruneLedger:
		report, err := mt.pruneLedger(ctx)
		if err != nil {
			return report, err
		}
		answers, err := mt.prune(ctx, store.PruneParams{What: store.PruneRecords})
		return fmt.Sprintf("%s, %d kept answers removed", report, answers), err
	case pruneMessages:
		return mt.pruneMessages(ctx)
	case upkeep:
		if u, ok := mt.store.(store.OneWriter); ok {
			return u.Upkeep(ctx)
		}
		return "this store needs no upkeep", nil
	case compaction:
		return mt.store.Compact(ctx)
	}
	return "", &agent.Error{Reason: chat.FailBadRequest, Message: "there is no built-in job " + chat.Cut(what, 64)}
}

// pruneLedger removes old rows of the ledger with the sessions of isolated runs, and the sessions
// of tasks and compactions, which have the same retention.
func (mt *maintenance) pruneLedger(ctx context.Context) (string, error) {
	p := store.PruneParams{What: store.PruneLedger, Keep: mt.cfg.RetentionRuns}
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
	total, err := mt.prune(ctx, p)
	report := fmt.Sprintf("%d entries of the ledger removed", total)
	if err != nil || p.Before.IsZero() {
		return report, err
	}
	sessions, err := mt.prune(ctx, store.PruneParams{What: store.PruneSessions, Before: p.Before})
	return fmt.Sprintf("%s, %d sessions of tasks and compactions removed", report, sessions), err
}

// pruneMessages removes old ended messages with their turns, then the outgoing messages about them,
// then rows of the log of changes, then files.
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
	before := now.Add(-keep)
	messages, err := mt.prune(ctx, store.PruneParams{What: store.PruneMessages, Before: before})
	if err != nil {
		return "", err
	}
	sent, err := mt.prune(ctx, store.PruneParams{What: store.PruneOutgoing, Before: before})
	if err != nil {
		return "", err
	}
	changes, err := mt.prune(ctx, store.PruneParams{What: store.PruneChanges, Before: now.Add(-max(keep, changesKept))})
	if err != nil {
		return "", err
	}
	n, err := mt.sweepFiles(ctx, keep)
	return fmt.Sprintf("%d messages and %d outgoing messages removed, %d rows of the log of changes, %d files", messages, sent, changes, n), err
}

// sweepFiles removes the files that are not needed any more: those of crashed turns, and, unless
// keep is 0, older ones that no unfinished work names.
func (mt *maintenance) sweepFiles(ctx context.Context, keep time.Duration) (int, error) {
	if mt.sweep == nil {
		return 0, nil
	}
	now, before := time.Now(), time.Time{} // the clock of this host, which also sets the times of files
	if keep > 0 {
		before = now.Add(-keep)
	}
	return mt.sweep(ctx, now, before, mt.store.FilesInUse)
}

// prune removes rows in chunks until no more exist, and returns their number. It checks ctx between
// two chunks.
func (mt *maintenance) prune(ctx context.Context, p store.PruneParams) (int, error) {
	p.Limit = pruneChunk
	for total := 0; ; {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		n, err := mt.store.Prune(ctx, p)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
	}
}

// builtIn are the built-in jobs of the gateway.
func (mt *maintenance) builtIn() []cron.Job {
	list := []cron.Job{
		{Name: "ledger retention", Key: "system:retention", Payload: cron.Payload{Text: pruneLedger}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "17 3 * * *", TZ: "UTC"}},
		{Name: "message retention", Key: "system:messages", Payload: cron.Payload{Text: pruneMessages}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "37 3 * * *", TZ: "UTC"}},
	}
	if _, ok := mt.store.(store.OneWriter); ok {
		list = append(list, cron.Job{Name: "store upkeep", Key: "system:upkeep", Payload: cron.Payload{Text: upkeep}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "47 4 * * *", TZ: "UTC"}})
	}
	list = append(list, cron.Job{Name: "store compaction", Key: "system:compaction", Payload: cron.Payload{Text: compaction}, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 0 4 * * 0", TZ: "UTC"}})
	if mt.cfg.RollUp != nil {
		list = append(list, mt.rollUps()...)
	}
	for i := range list {
		j := &list[i]
		j.Payload.Kind, j.Session, j.WakeMode, j.Lane = cron.PayloadSystemEvent, cron.Isolated, cron.WakeNow, cron.DefaultLane
		j.Owner, j.Principal, j.Agent, j.JitterMs = cron.SystemOwner, cron.SystemOwner, cmp.Or(j.Agent, mt.agents[0]), cmp.Or(j.JitterMs, (10*time.Minute).Milliseconds())
		j.Overlap, j.Retry, j.Timeout, j.Enabled = cron.OverlapSkip, cron.DefaultRetry(), cmp.Or(j.Timeout, time.Hour), true
		// The same id on every replica and after every start, so that two processes that start at
		// once agree.
		j.ID = builtInID(j.Key)
	}
	return list
}

func builtInID(key string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("laneway:"+key)).String()
}

// rollUps are the jobs that make the table of contents: of days, weeks and months in the zone of
// the gateway.
func (mt *maintenance) rollUps() []cron.Job {
	zone := cmp.Or(mt.cfg.Rules.DefaultTZ, "UTC")
	of := func(level store.TocLevel, expr string) cron.Job {
		return cron.Job{
			Name: "summaries of each " + string(level), Key: "system:rollup-" + string(level), Payload: cron.Payload{Text: rollUp + string(level)},
			Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: expr, TZ: zone}, Agent: mt.cfg.RollUpAgent,
			JitterMs: (5 * time.Minute).Milliseconds(), Timeout: 12 * time.Hour,
		}
	}
	return []cron.Job{of(store.TocDay, "0 0 1 * * *"), of(store.TocWeek, "0 0 2 * * 0"), of(store.TocMonth, "0 0 3 1 * *")}
}

// addBuiltIn creates missing built-in jobs. A paused one stays paused. The jobs of summaries get
// the agent and the zone of the configuration, and are removed when it names no agent.
func (mt *maintenance) addBuiltIn(ctx context.Context) {
	for _, want := range mt.builtIn() {
		err := mt.node.WhileAlive(ctx, func(ctx context.Context) error {
			_, err := mt.jobs.PutJob(ctx, cron.PutParams{Owner: want.Owner, Key: want.Key, Change: func(old *cron.Job, now time.Time) (*cron.Job, error) {
				switch {
				case old == nil:
					return mt.planned(want, now)
				case !strings.HasPrefix(want.Payload.Text, rollUp) || old.Agent == want.Agent && old.Schedule.TZ == want.Schedule.TZ:
					return old, nil
				}
				job := *old
				job.Agent, job.Schedule.TZ = want.Agent, want.Schedule.TZ
				return mt.planned(job, now)
			}})
			return err
		})
		if err != nil && !errors.Is(err, chat.ErrConflict) && ctx.Err() == nil {
			mt.log.WarnContext(ctx, "a built-in job could not be made", "job", want.Key, "err", err)
		}
	}
	if mt.cfg.RollUp == nil {
		mt.removeRollUps(ctx)
	}
}

func (mt *maintenance) removeRollUps(ctx context.Context) {
	for _, j := range mt.rollUps() {
		err := mt.node.WhileAlive(ctx, func(ctx context.Context) error {
			_, err := mt.jobs.ChangeJob(ctx, cron.ChangeParams{
				ID: builtInID(j.Key), Change: func(cron.Job, time.Time) (*cron.Job, error) { return nil, nil },
			})
			return err
		})
		if err != nil && !errors.Is(err, chat.ErrNotFound) && ctx.Err() == nil {
			mt.log.WarnContext(ctx, "a built-in job could not be removed", "job", j.Key, "err", err)
		}
	}
}

// followZones plans the jobs by the zone rules of this process whose slots older rules have
// planned, until ctx is done.
func (mt *maintenance) followZones(ctx context.Context) {
	if mt.release == schedule.UnknownRelease {
		return
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		n, err := mt.replan(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			mt.log.WarnContext(ctx, "the jobs could not be planned by the zone rules of this process; trying again", "release", mt.release, "err", err)
		case n > 0:
			mt.log.InfoContext(ctx, "jobs planned by newer zone rules", "release", mt.release, "jobs", n)
		}
		t.Reset(zonesEvery)
	}
}

// replan plans the jobs again, in steps, and returns how many have changed.
func (mt *maintenance) replan(ctx context.Context) (total int, err error) {
	p := cron.ReplanParams{Release: mt.release, Limit: zonesChunk, Replan: mt.planner.Replan}
	for mt.claimant() != "" && ctx.Err() == nil {
		out, err := mt.jobs.Replan(ctx, p)
		if err != nil {
			return total, err
		}
		for _, j := range out.Jobs {
			mt.events.publish(cron.Event{Action: cron.ActionUpdated, Job: j})
		}
		total, p.After = total+len(out.Jobs), out.Last
		if !out.More {
			break
		}
	}
	if total > 0 {
		mt.nudge()
	}
	return total, nil
}
