package sqlstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	// maxClaim is how many jobs one claim takes. On SQLite this blocks other writes for some ten
	// milliseconds.
	maxClaim = 500

	// ofAgents is the condition that a node may claim a job or a run. $1 = 1 means all agents, else
	// the agents $2 and the gateway itself.
	ofAgents = `($1 = 1 OR owner = '` + cron.SystemOwner + `' OR agent {in $2})`

	dueJobsSQL = readJobAlone + jobPlanned + ` AND next_run_at <= {now} AND ` + ofAgents + ` ORDER BY next_run_at, id {limit $3} {skip}`

	// dueCountSQL counts the rows that dueJobsSQL would return if no other transaction had locked
	// any of them.
	dueCountSQL = `SELECT count(*) FROM (SELECT 1 FROM cron_jobs WHERE ` + jobPlanned + ` AND next_run_at <= {now} AND ` + ofAgents + ` ORDER BY next_run_at, id {limit $3}) due`

	// inOrderSQL makes the planner of PostgreSQL read the index of due jobs in order. The
	// statistics of a table that has just been filled are wrong, and sorting all due jobs for each
	// batch would cost more than the claim.
	inOrderSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

	activeRunsSQL = `SELECT job_id, id, state, COALESCE(started_at, 0), session_key FROM cron_run_logs WHERE job_id {in $1} AND finished_at IS NULL ORDER BY claimed_at, scheduled_for, id`

	// budgetSQL counts the runs of an owner in the period of its budget. Runs that were claimed
	// within an hour of their planned time are found by the index of planned times, the rest by a
	// separate index. It stops at a thousand to bound the cost.
	budgetSQL = `{set name text}
		SELECT v.name, (SELECT count(*) FROM (SELECT 1 FROM cron_run_logs l WHERE l.owner = v.name AND l.scheduled_for > {now} - 90000000
				AND l.claimed_at > {now} - 86400000 AND l.claimed_at - l.scheduled_for <= 3600000 AND l.run_id <> '' ORDER BY l.scheduled_for DESC LIMIT 1000) used)
			+ (SELECT count(*) FROM (SELECT 1 FROM cron_run_logs l WHERE l.owner = v.name
				AND l.claimed_at > {now} - 86400000 AND l.claimed_at - l.scheduled_for > 3600000 AND l.run_id <> '' LIMIT 1000) late) {from}`

	// advanceSQL writes the usual decisions about locked jobs; decideSQL also those that end a
	// pause or the job. A paused job is only decided upon when its pause has ended.
	advanceSQL = `{set id text, slot int, at int, wall int, rules text, fired int, skipped int}
		UPDATE cron_jobs AS j SET next_slot = NULLIF(v.slot, 0), next_run_at = NULLIF(v.at, 0), next_wall = NULLIF(v.wall, 0), zone_release = v.rules, fired = v.fired, consecutive_skipped = v.skipped {from} WHERE j.id = v.id`
	decideSQL = `{set id text, slot int, at int, wall int, rules text, fired int, skipped int, disable bool}
		UPDATE cron_jobs AS j SET next_slot = NULLIF(v.slot, 0), next_run_at = NULLIF(v.at, 0), next_wall = NULLIF(v.wall, 0), zone_release = v.rules, fired = v.fired, consecutive_skipped = v.skipped,
			enabled = (enabled AND NOT v.disable), paused_at = NULL, paused_until = NULL, paused_note = '', paused_by = '', list_mark = list_mark + 1
		{from} WHERE j.id = v.id`
	invalidateSQL = `{set id text, why text} UPDATE cron_jobs AS j SET invalid = v.why, list_mark = list_mark + 1 {from} WHERE j.id = v.id`
)

func lookSQL() string {
	return `SELECT {now}, EXISTS (SELECT 1 FROM nodes WHERE id = $3 AND lease_until > {now}), ` + store.NotHeld + `, ` +
		firstDue(jobPlanned+` AND `+ofAgents, ofAgents)
}

// Claim takes the jobs and the retries that are due; see cron.JobStore. A dead node gets
// chat.ErrFenced.
//
// Jobs are locked before sessions, as everywhere. Runs that wait for a retry are claimed in a
// transaction of their own, which locks rows of the ledger first. So operations cannot deadlock.
func (s Cron) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	if p.Limit <= 0 || p.Limit > maxClaim {
		p.Limit = maxClaim
	}
	out, err := s.look(ctx, &p)
	if err != nil {
		return out, err
	}
	if err := s.addUnknown(ctx, &out, p.Node); err != nil {
		return out, err
	}
	found := slices.Clip(out.Launched)
	if !out.Next.IsZero() && !out.Next.After(out.Now) {
		for _, part := range []func(c *claiming, ctx context.Context, tx Tx) error{(*claiming).jobs, (*claiming).retries} {
			if err := s.claim(ctx, &out, p, part); err != nil {
				s.unknown.add(out.Launched) // the previous part has committed them, but the caller receives no result: the next claim returns them
				return out, err
			}
			p.Limit = max(p.Limit-len(out.Jobs), 0)
		}
	}
	s.unknown.remove(found)
	return out, nil
}

// look finds out when the first job or retry is due. While the gateway is held, nothing is due.
func (s Cron) look(ctx context.Context, p *cron.ClaimParams) (cron.Claimed, error) {
	of, err := pollOf(PollJobs, p.Node, p.Agents)
	if err != nil {
		return cron.Claimed{}, err
	}
	var out cron.Claimed // read only after Poll has returned: look may still run after its caller has left
	rested, err := s.db.Poll(ctx, of, func(ctx context.Context, tx Tx) (rest Rest, err error) {
		var alive, free bool
		if _, err := one(ctx, tx, lookSQL(), into(instant{&out.Now}, &alive, &free, instant{&out.Next}), number(p.Agents == nil), p.Agents, p.Node); err != nil {
			return rest, err
		}
		if !alive {
			return rest, chat.ErrFenced
		}
		if !free {
			out.Next = time.Time{}
		}
		next := out.Next
		rest.Idle = next.IsZero() || next.After(out.Now)
		rest.Next = func(context.Context, Tx) (int64, error) { return millis(next), nil }
		return rest, nil
	})
	if err != nil {
		return cron.Claimed{}, err
	}
	if rested != nil {
		out.Now, out.Next = rested.Now, rested.Next
	}
	return out, nil
}

// addUnknown adds the launches of earlier calls that were committed although the calls returned an
// error.
func (s Cron) addUnknown(ctx context.Context, out *cron.Claimed, node string) error {
	list := s.unknown.all()
	if len(list) == 0 {
		return nil
	}
	return s.db.View(ctx, "read the runs of an unknown commit", func(ctx context.Context, tx Tx) error {
		found, gone, err := committed(ctx, tx, node, list)
		s.unknown.remove(gone)
		out.Launched = found
		return err
	})
}

// claiming is one try of one part of a claim.
type claiming struct {
	launching

	cron  Cron
	p     cron.ClaimParams
	out   cron.Claimed
	found []cron.Launched // created by an earlier try
}

// claim runs one part of a claim and adds its result to out.
func (s Cron) claim(ctx context.Context, out *cron.Claimed, p cron.ClaimParams, part func(c *claiming, ctx context.Context, tx Tx) error) error {
	tried := &unknownLaunches{list: map[string]cron.Launched{}}
	try := func(each bool) (*claiming, error) {
		return result(ctx, s.db.Update, "claim due jobs", func(ctx context.Context, tx Tx) (c *claiming, err error) {
			c = &claiming{cron: s, p: p, launching: launching{node: p.Node, each: each}}
			if tx.Repeated() {
				var gone []cron.Launched
				if c.found, gone, err = committed(ctx, tx, p.Node, tried.all()); err != nil {
					return c, err
				}
				tried.remove(gone)
			}
			if err := part(c, ctx, tx); err != nil {
				return c, err
			}
			tried.add(c.launched)
			return c, nil
		})
	}
	c, err := try(false)
	if errors.Is(err, errNotNew) {
		c, err = try(true)
	}
	if err != nil {
		s.unknown.add(tried.all())
		return err
	}
	c.addTo(out)
	return nil
}

func (c *claiming) addTo(out *cron.Claimed) {
	out.Launched = append(append(out.Launched, c.found...), c.launched...)
	out.Recorded = append(append(out.Recorded, c.recorded...), c.refused...)
	out.Finished = append(append(append(out.Finished, c.out.Finished...), c.recorded...), c.refused...)
	out.Cancelled = append(out.Cancelled, c.out.Cancelled...)
	out.Jobs, out.Resumed = append(out.Jobs, c.out.Jobs...), append(out.Resumed, c.out.Resumed...)
	out.More, out.Passed = out.More || c.out.More, out.Passed+c.out.Passed
}

// jobs claims due jobs.
func (c *claiming) jobs(ctx context.Context, tx Tx) error {
	due, broken, err := c.dueJobs(ctx, tx)
	if err != nil || len(due)+len(broken) == 0 {
		return err
	}
	if err := c.invalidate(ctx, tx, broken); err != nil {
		return err
	}
	if !c.out.More { // otherwise the claim skipped no row that it could have taken
		if err := c.passed(ctx, tx, len(due)); err != nil {
			return err
		}
	}
	if err := complete(ctx, tx, due); err != nil {
		return err
	}
	return c.decide(ctx, tx, due)
}

// dueJobs locks the due jobs, at most as many as the claim may take. Rows that cannot be decoded
// are returned as broken.
func (c *claiming) dueJobs(ctx context.Context, tx Tx) (due []cron.DueJob, broken []storedJob, err error) {
	if text := tx.PerEngine(inOrderSQL, ""); text != "" {
		if err := tx.Later(ctx, text, nil); err != nil {
			return nil, nil, err
		}
	}
	scan := c.cron.scanner()
	n := 0
	err = tx.Query(ctx, dueJobsSQL, func(r Row) error {
		j, err := scan(r)
		if err != nil {
			return err
		}
		c.now = millis(j.now)
		switch n++; {
		case n > c.p.Limit:
			c.out.More = true
		case j.broken != "":
			broken = append(broken, j)
		default:
			due = append(due, cron.DueJob{Job: j.Job})
		}
		return nil
	}, number(c.p.Agents == nil), c.p.Agents, c.p.Limit+1)
	c.out.Now = fromMillis(c.now)
	return due, broken, err
}

func (c *claiming) invalidate(ctx context.Context, tx Tx, broken []storedJob) error {
	var set Set
	for _, j := range broken {
		set = append(set, []any{j.ID, j.Invalid})
		c.out.Jobs = append(c.out.Jobs, j.Job)
	}
	if len(set) == 0 {
		return nil
	}
	return tx.Later(ctx, invalidateSQL, nil, set)
}

// passed counts the due jobs that another transaction has locked. On SQLite it does nothing,
// because SQLite has one writer.
func (c *claiming) passed(ctx context.Context, tx Tx, taken int) error {
	text := tx.PerEngine(dueCountSQL, "")
	if text == "" {
		return nil
	}
	return tx.Later(ctx, text, func(r Row) error {
		var due int
		err := r.Scan(&due)
		c.out.Passed = max(0, due-taken) // broken jobs are marked and no longer due
		return err
	}, number(c.p.Agents == nil), c.p.Agents, c.p.Limit+1)
}

// complete adds to due jobs what the overlap policy and the budget need: their active runs and the
// runs of their owners.
func complete(ctx context.Context, tx Tx, due []cron.DueJob) error {
	if len(due) == 0 {
		return nil
	}
	var (
		at     = make(map[string]int, len(due))
		ids    = make([]string, len(due))
		used   = map[string]int{}
		owners Set
	)
	for i := range due {
		j := &due[i].Job
		at[j.ID], ids[i] = i, j.ID
		if _, known := used[j.Owner]; !known && j.Owner != cron.SystemOwner {
			used[j.Owner] = 0
			owners = append(owners, []any{j.Owner})
		}
	}
	if len(owners) > 0 {
		err := tx.Later(ctx, budgetSQL, func(r Row) error {
			var (
				owner string
				n     int
			)
			err := r.Scan(&owner, &n)
			used[owner] = n
			return err
		}, owners)
		if err != nil {
			return err
		}
	}
	var (
		job string
		r   cron.Run
	)
	err := tx.Query(ctx, activeRunsSQL, func(row Row) error {
		if err := row.Scan(&job, &r.ID, (*string)(&r.State), instant{&r.StartedAt}, &r.SessionKey); err != nil {
			return err
		}
		due[at[job]].AddActive(r)
		return nil
	}, ids)
	for i := range due {
		due[i].RunsToday = used[due[i].Job.Owner]
	}
	return err
}

// decide writes the verdicts about due jobs.
func (c *claiming) decide(ctx context.Context, tx Tx, due []cron.DueJob) error {
	jobs := make(map[string]*cron.Job, len(due))
	for i := range due {
		jobs[due[i].Job.ID] = &due[i].Job
	}
	var (
		launches  []cron.Launch
		rows      []cron.Run
		cancelled []string
		verdicts  = slices.DeleteFunc(c.p.Decide(c.out.Now, due), func(v cron.Verdict) bool { return jobs[v.JobID] == nil })
	)
	for _, v := range verdicts {
		if v.Invalid == "" {
			launches, rows, cancelled = append(launches, v.Runs...), append(rows, v.Rows...), append(cancelled, v.Cancel...)
		}
	}
	if len(cancelled) > 0 {
		ended, err := cancelRuns(ctx, tx, cancelled, cron.CancelParams{Reason: cron.ReasonReplaced, By: "cron"})
		if err != nil {
			return err
		}
		c.out.Cancelled, c.out.Finished = ended.Runs, ended.Finished
	}
	if err := c.run(ctx, tx, launches, rows); err != nil {
		return err
	}
	return c.advance(ctx, tx, verdicts, jobs)
}

// advance moves jobs to their next slots.
func (c *claiming) advance(ctx context.Context, tx Tx, verdicts []cron.Verdict, jobs map[string]*cron.Job) error {
	made := make(map[string]int, len(verdicts))
	for i := range c.launched {
		made[c.launched[i].Run.JobID]++
	}
	var usual, other, invalid Set
	c.out.Jobs = slices.Grow(c.out.Jobs, len(verdicts))
	for _, v := range verdicts {
		old := jobs[v.JobID]
		next := old.Decided(v, made[v.JobID])
		c.out.Jobs = append(c.out.Jobs, next)
		resumed := old.Pause != nil && next.Pause == nil
		if resumed {
			c.out.Resumed = append(c.out.Resumed, next)
		}
		st := &next.State
		row := []any{v.JobID, millis(st.Next), millis(st.NextRunAt), millis(st.NextWall), st.ZoneRelease, int64(st.Fired), int64(st.ConsecutiveSkipped)}
		switch {
		case v.Invalid != "":
			invalid = append(invalid, []any{v.JobID, v.Invalid})
		case resumed || v.Disable:
			other = append(other, append(row, v.Disable))
		default:
			usual = append(usual, row)
		}
	}
	for _, part := range []struct {
		text string
		set  Set
	}{{advanceSQL, usual}, {decideSQL, other}, {invalidateSQL, invalid}} {
		if len(part.set) == 0 {
			continue
		}
		if err := tx.Later(ctx, part.text, nil, part.set); err != nil {
			return err
		}
	}
	return nil
}
