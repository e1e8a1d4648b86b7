package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
)

// decided writes the verdicts into the rows of their jobs.
func (b *claimBatch) decided(ctx context.Context, tx pgx.Tx, verdicts []cron.Verdict, jobs map[string]*cron.Job) error {
	var bad []cron.Verdict
	settled := make([]cron.Verdict, 0, len(verdicts))
	for _, v := range verdicts {
		if v.Invalid != "" {
			bad = append(bad, v)
			continue
		}
		settled = append(settled, v)
	}
	id := func(v cron.Verdict) string { return v.JobID }
	batch := &pgx.Batch{}
	batch.Queue(decidedSQL, column(settled, id),
		column(settled, func(v cron.Verdict) int64 { return ms(v.Next) }), column(settled, func(v cron.Verdict) int64 { return ms(v.NextRunAt) }),
		column(settled, func(v cron.Verdict) int64 { return int64(v.Fired) }),
		column(settled, func(v cron.Verdict) int64 { return int64(v.ConsecutiveSkipped) }),
		column(settled, func(v cron.Verdict) bool { return v.Disable }))
	if len(bad) > 0 {
		batch.Queue(invalidSQL, column(bad, id), column(bad, func(v cron.Verdict) string { return clean(v.Invalid) }))
	}
	queued := make(map[string]int, len(verdicts))
	for i := range b.out.Launched {
		queued[b.out.Launched[i].Run.JobID]++
	}
	b.out.Jobs = slices.Grow(b.out.Jobs, len(verdicts))
	for _, v := range verdicts {
		job := jobs[v.JobID].Decided(v, queued[v.JobID])
		b.out.Jobs = append(b.out.Jobs, job)
		if jobs[v.JobID].Pause != nil && job.Pause == nil {
			b.out.Resumed = append(b.out.Resumed, job)
		}
	}
	return send(ctx, tx, batch)
}
