package memory

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// budgetDays is the time over which the runs of an owner are counted.
const budgetDays = 24 * time.Hour

// Claim takes what is due, see cron.JobStore. A dead node gets chat.ErrFenced.
func (s *Store) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	var out cron.Claimed
	err := s.do(ctx, "Claim", func(now time.Time) error {
		if !s.alive(p.Node, now) {
			return chat.ErrFenced
		}
		due, retries, more := s.due(p, now)
		verdicts := slices.DeleteFunc(p.Decide(now, due), func(v cron.Verdict) bool {
			return !slices.ContainsFunc(due, func(d cron.DueJob) bool { return d.Job.ID == v.JobID })
		})
		for _, v := range verdicts {
			if err := s.checkLaunches(v.Runs); err != nil {
				return err
			}
		}
		out = cron.Claimed{Now: now, More: more, Next: s.crons.nextWake("", p)}
		for _, v := range verdicts {
			s.carryOut(v, p.Node, &out, now)
		}
		for _, r := range retries {
			out.Launched = append(out.Launched, s.retry(r, p.Node, now))
		}
		return nil
	})
	return out, err
}

// due lists due jobs and retries, together at most as many as the limit allows.
func (s *Store) due(p cron.ClaimParams, now time.Time) (due []cron.DueJob, retries []*ledgerRow, more bool) {
	var list []*cron.Job
	for _, j := range s.crons.jobs {
		if next := planned(j); !next.IsZero() && !next.After(now) && claims(p, j.Owner, j.Agent) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *cron.Job) int {
		return cmp.Or(a.State.NextRunAt.Compare(b.State.NextRunAt), cmp.Compare(a.ID, b.ID))
	})
	retries = s.crons.rows(func(r *ledgerRow) bool {
		return r.State == cron.RunRetrying && !r.NextAttempt.After(now) && claims(p, r.Owner, r.Agent)
	})
	more = p.Limit > 0 && len(list)+len(retries) > p.Limit
	if p.Limit > 0 {
		list = list[:min(len(list), p.Limit)]
		retries = retries[:min(len(retries), p.Limit-len(list))]
	}
	for _, j := range list {
		due = append(due, s.dueJob(j, now))
	}
	return due, retries, more
}

// claims reports whether a node with the agents of p may claim a job or a run.
func claims(p cron.ClaimParams, owner, agent string) bool {
	return p.Agents == nil || owner == cron.SystemOwner || slices.Contains(p.Agents, agent)
}

// planned is when the claim has to decide about a job; for a pause with an end that is its end.
func planned(j *cron.Job) time.Time {
	if !j.Enabled || j.Invalid != "" || (j.Pause != nil && j.Pause.Until.IsZero()) {
		return time.Time{}
	}
	return j.State.NextRunAt
}

func (s *Store) dueJob(j *cron.Job, now time.Time) cron.DueJob {
	d := cron.DueJob{Job: s.crons.view(j)}
	for _, r := range s.crons.active(j.ID) {
		d.Active, d.Session = append(d.Active, r.ID), r.SessionKey
		if r.State == cron.RunRunning {
			d.Running++
		}
	}
	d.RunsToday = len(s.crons.rows(func(r *ledgerRow) bool {
		return r.Owner == j.Owner && r.message != "" && r.ClaimedAt.After(now.Add(-budgetDays))
	}))
	return d
}

// carryOut writes the decision about one job.
func (s *Store) carryOut(v cron.Verdict, node string, out *cron.Claimed, now time.Time) {
	j := s.crons.jobs[v.JobID]
	if v.Invalid != "" {
		j.Invalid = v.Invalid
		out.Jobs = append(out.Jobs, s.crons.view(j))
		return
	}
	var previous []*ledgerRow
	for _, id := range v.Cancel {
		if r := s.crons.ledger[id]; r != nil {
			previous = append(previous, r)
		}
	}
	out.Cancelled = append(out.Cancelled, s.cancelRuns(previous, cron.CancelParams{Reason: cron.ReasonReplaced, By: "cron"}, now)...)
	for _, r := range v.Rows {
		if row := s.crons.record(r, now); row != nil {
			out.Recorded = append(out.Recorded, s.crons.run(row))
		}
	}
	for _, l := range v.Runs {
		if launched, isNew := s.launch(l, node, now); isNew {
			out.Launched = append(out.Launched, launched)
		}
	}
	resumed := j.Pause != nil && !j.Pause.Until.After(now)
	if resumed {
		j.Pause = nil
	}
	j.State.Next, j.State.NextRunAt, j.State.Fired = kept(v.Next), kept(v.NextRunAt), v.Fired
	j.State.ConsecutiveSkipped = v.ConsecutiveSkipped
	j.Enabled = j.Enabled && !v.Disable
	out.Jobs = append(out.Jobs, s.crons.view(j))
	if resumed {
		out.Resumed = append(out.Resumed, s.crons.view(j))
	}
	out.Finished = append(out.Finished, s.crons.takeFinished()...)
}

// checkLaunches refuses what Accept would refuse, before anything is written.
func (s *Store) checkLaunches(list []cron.Launch) error {
	for _, l := range list {
		if l.Message.ID == "" || l.Message.Session.IsZero() {
			return chat.Errorf(chat.CodeInvalid, "the message of a run needs an id and a session")
		}
		if _, err := s.findDuplicate(l.Message); err != nil {
			return err
		}
	}
	return nil
}

// launch makes a run durable: its row and its message. It reports false for a run that exists.
func (s *Store) launch(l cron.Launch, node string, now time.Time) (cron.Launched, bool) {
	l.Run.State, l.Run.ClaimedAt, l.Run.Node = cron.RunQueued, now, node
	l.Run.SessionKey = cmp.Or(l.Run.SessionKey, l.Message.Session.String())
	row := s.crons.add(l.Run, l.Message.ID)
	if row == nil {
		return cron.Launched{}, false
	}
	return s.offer(row, l.Message, node, now), true
}

// offer puts the message of a run into the inbox.
func (s *Store) offer(row *ledgerRow, m chat.Message, node string, now time.Time) cron.Launched {
	p := store.AcceptParams{Node: node, Take: true, Message: m}
	if se := s.sessions[m.Session]; se != nil {
		p.RunLimit = se.RunLimit
	}
	a := s.insert(p, now)
	return cron.Launched{
		Run: s.crons.run(row), Message: m, Seq: a.Seq, Epoch: a.Epoch, Mine: a.Mine, Owner: a.Owner, Behind: a.Behind,
		SessionID: a.SessionID,
	}
}

// retry makes the next attempt of a run: the message of the last one again, under a new id.
func (s *Store) retry(r *ledgerRow, node string, now time.Time) cron.Launched {
	last := s.messages[r.message]
	id := r.ID + "/" + strconv.Itoa(r.Attempt+1)
	delete(s.crons.message, r.message)
	s.crons.message[id] = r
	r.message, r.State, r.NextAttempt, r.Node = id, cron.RunQueued, time.Time{}, node
	return s.offer(r, chat.Message{
		Session: last.Session, ID: id, Lane: last.Lane, Principal: last.Principal, Channel: last.Channel,
		Dedupe: "cron:" + id, ParamsHash: last.hash, Content: cloneContent(last.Content),
	}, node, now)
}

// EnqueueRuns makes runs that a caller asked for, see cron.JobStore.
func (s *Store) EnqueueRuns(ctx context.Context, p cron.EnqueueParams) (cron.Enqueued, error) {
	var out cron.Enqueued
	err := s.do(ctx, "EnqueueRuns", func(now time.Time) (err error) {
		out, err = idempotent(s, p.IdempotencyKey, now, func() (cron.Enqueued, error) { return s.enqueueRuns(p, now) })
		return err
	})
	return out, err
}

func (s *Store) enqueueRuns(p cron.EnqueueParams, now time.Time) (out cron.Enqueued, err error) {
	j := s.crons.visible(p.JobID, p.Visible)
	if j == nil {
		return out, chat.ErrNotFound
	}
	due := s.dueJob(j, now)
	due.Ran = s.crons.ran(j.ID, p.Slots)
	list, err := p.Make(due, now)
	if out.Declined(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if err := s.checkLaunches(list); err != nil {
		return out, err
	}
	if p.New && slices.ContainsFunc(list, func(l cron.Launch) bool { return s.crons.ledger[l.Run.ID] != nil }) {
		return out, chat.ErrConflict
	}
	for _, l := range list {
		s.enqueue(l, p, &out, now)
	}
	out.Job = s.crons.view(j)
	if len(out.Launched) > 0 {
		s.crons.write(p.Audit.Between(j.Revision, j.Revision), now)
	}
	return out, nil
}

func (s *Store) enqueue(l cron.Launch, p cron.EnqueueParams, out *cron.Enqueued, now time.Time) {
	out.IDs = append(out.IDs, l.Run.ID)
	if !l.Exists {
		if launched, isNew := s.launch(l, p.Node, now); isNew {
			out.Launched = append(out.Launched, launched)
			return
		}
	}
	out.Existing = append(out.Existing, l.Run.ID)
}

// ran lists the runs of some slots of a job.
func (c *crons) ran(job string, slots []time.Time) (out []cron.SlotRun) {
	for _, r := range c.rows(func(r *ledgerRow) bool {
		return r.JobID == job && slices.ContainsFunc(slots, func(slot time.Time) bool { return kept(slot).Equal(r.ScheduledFor) })
	}) {
		out = append(out, cron.SlotRun{Slot: r.ScheduledFor, Trigger: r.Trigger, State: r.State})
	}
	return out
}

// nextWake is the earliest moment that is planned, of a principal's jobs or ("") of all; zero = nothing is planned.
func (c *crons) nextWake(principal string, p cron.ClaimParams) time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, j := range c.jobs {
		if (principal == "" || j.Owner == principal) && claims(p, j.Owner, j.Agent) {
			sooner(planned(j))
		}
	}
	for _, r := range c.ledger {
		if (principal == "" || r.Owner == principal) && claims(p, r.Owner, r.Agent) {
			sooner(r.NextAttempt)
		}
	}
	return next
}
