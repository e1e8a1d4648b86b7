package storetest

import (
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// interval is how often the usual job of a test fires.
const interval = time.Minute

// cron is the part of the store for jobs and their ledger.
func (w *world) cron() cron.JobStore { return w.cronOf(w.st) }

func (w *world) cronOf(st store.Store) cron.JobStore {
	w.Helper()
	jobs, ok := st.(cron.JobStore)
	if !ok {
		w.Fatalf("the store %s keeps no jobs", st.Kind())
	}
	return jobs
}

// draft is a job that fires each minute from now on and sets every field of its definition.
func (w *world) draft() cron.Job {
	now := w.clock.now()
	id := w.id("job")
	first := now.Add(interval)
	return cron.Job{
		ID: id, Key: "key of " + id, Name: "name of " + id, Owner: "ann", Principal: "ann", Agent: "main", Lane: "cron",
		Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: interval.Milliseconds(), AnchorMs: now.UnixMilli()},
		Session:  "isolated", WakeMode: "now",
		Payload:  cron.Payload{Kind: cron.PayloadAgentTurn, Text: "work"},
		Delivery: cron.Delivery{Mode: cron.DeliverNone},
		Overlap:  cron.OverlapSkip, Missed: cron.MissedPolicy{Rule: cron.MissedFireOnce},
		Retry: cron.DefaultRetry(), Timeout: cron.DefaultTimeout, PauseAfter: cron.DefaultPauseAfter,
		Enabled: true, Revision: "r1", CreatedAt: now, UpdatedAt: now,
		State: cron.JobState{Plan: cron.Plan{Next: first, NextRunAt: first}, ActivatedAt: now},
	}
}

// job stores a draft with changes.
func (w *world) job(change func(j *cron.Job)) cron.Job {
	w.Helper()
	j := w.draft()
	if change != nil {
		change(&j)
	}
	return w.put(j)
}

// firesAt gives a job another schedule and plans its first fire.
func (w *world) firesAt(j *cron.Job, s schedule.Spec) {
	w.Helper()
	compiled := try(schedule.Compile(s)).ok(w)
	j.Schedule = compiled.Spec()
	first, ok := j.Timetable(compiled).First(w.clock.now())
	equal(w, "the job fires", ok, true)
	j.State.Next, j.State.NextRunAt = first.Slot, first.At
}

func (w *world) put(j cron.Job) cron.Job {
	w.Helper()
	r := try(w.cron().PutJob(w.ctx, putParams(j))).ok(w)
	if !r.Created {
		w.Fatalf("job %s was not made: %+v", j.ID, r)
	}
	return r.Job
}

func putParams(j cron.Job) cron.PutParams {
	return cron.PutParams{
		Owner: j.Owner, Key: j.Key,
		Change: func(*cron.Job, time.Time) (*cron.Job, error) { return &j, nil },
	}
}

func (w *world) stored(id string) cron.Job {
	w.Helper()
	return try(w.cron().Job(w.ctx, id, "")).ok(w)
}

// alter changes a job by id.
func (w *world) alter(id string, change func(j *cron.Job)) cron.Changed {
	w.Helper()
	c := try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: id, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
		change(&j)
		return &j, nil
	}})).ok(w)
	return c
}

// ledger reads a row of the ledger.
func (w *world) ledger(runID string) cron.Run {
	w.Helper()
	return try(w.cron().Run(w.ctx, runID, "")).ok(w)
}

// history lists all runs of a job, including active ones, by slot.
func (w *world) history(jobID string) []cron.Run {
	w.Helper()
	p := try(w.cron().Runs(w.ctx, cron.RunFilter{JobID: jobID, IncludeActive: true, Limit: many})).ok(w)
	equal(w, "total", p.Total, len(p.Runs))
	return p.Runs
}

// launch is a run of a job with its message, as a claim creates it.
func launch(j cron.Job, trigger cron.Trigger, f schedule.Fire) cron.Launch {
	id := cron.RunID(trigger, j.ID, f.Slot)
	key := chat.SessionKey{Agent: j.Agent, Rest: "cron:" + j.ID + ":" + string(trigger) + "-" + strconv.FormatInt(f.Slot.UnixMilli(), 10)}
	if rest, shared := strings.CutPrefix(j.Session, "session:"); shared {
		key.Rest = rest
	}
	r := rowOf(j, trigger, f.Slot)
	r.State, r.FireAt, r.DST, r.SessionKey = cron.RunQueued, f.At, f.DST, key.String()
	return cron.Launch{Run: r, Message: chat.Message{
		Session: key, ID: id, Lane: j.Lane, Principal: j.Principal, Channel: "cron",
		Content: chat.Content{Text: j.Payload.Text},
	}}
}

func rowOf(j cron.Job, trigger cron.Trigger, slot time.Time) cron.Run {
	return cron.Run{
		ID: cron.RunID(trigger, j.ID, slot), JobID: j.ID, JobName: j.Name, JobKey: j.Key, Owner: j.Owner, Agent: j.Agent, Lane: j.Lane,
		ScheduledFor: slot, Trigger: trigger, SlotCount: 1,
	}
}

func skippedRow(j cron.Job, slot time.Time, reason cron.Reason) cron.Run {
	r := rowOf(j, cron.TriggerSchedule, slot)
	r.State, r.Reason = cron.RunSkipped, reason
	return r
}

func spanRow(j cron.Job, state cron.RunState, s cron.MissedSpan) cron.Run {
	r := rowOf(j, cron.TriggerSchedule, s.First)
	r.State, r.Reason, r.SlotCount = state, s.Reason, s.Count
	if s.Count > 1 {
		r.SlotUntil = s.Last
	}
	return r
}

func (w *world) claimDue(node string) cron.Claimed {
	w.Helper()
	return try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: decide})).ok(w)
}

// launchOne expects exactly one run.
func (w *world) launchOne(node string) cron.Launched {
	w.Helper()
	c := w.claimDue(node)
	if len(c.Launched) != 1 {
		w.Fatalf("the claim launched %d runs, want one: %+v", len(c.Launched), c)
	}
	return c.Launched[0]
}

// pass advances the time while the nodes stay alive.
func (w *world) pass(d time.Duration, nodes ...string) {
	w.Helper()
	for d > 0 {
		step := min(d, lease/2)
		w.clock.advance(step)
		d -= step
		for _, node := range nodes {
			w.beat(node)
		}
	}
}

// due advances to the next fire of the usual job and claims it.
func (w *world) due(node string) cron.Launched {
	w.Helper()
	w.pass(interval, node)
	return w.launchOne(node)
}

// claimAll claims and runs everything that is due, in sessions that no other node owns. Later
// retries stay.
func (w *world) claimAll(node string) {
	w.Helper()
	jobs, ok := w.st.(cron.JobStore)
	for more := ok; more; {
		c := try(jobs.Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: decide})).ok(w)
		for _, l := range c.Launched {
			if l.Mine {
				w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
			}
		}
		more = c.More
	}
}

func claimOfRun(l cron.Launched) store.Claim {
	return store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}
}

// begin starts a launched run.
func (w *world) begin(l cron.Launched) store.Claim {
	w.Helper()
	c := claimOfRun(l)
	s := w.start(c, l.Message.ID, l.Seq)
	equal(w, "started", s.Seqs, []int64{l.Seq})
	return c
}

// runOfMessage extracts the run from the id of a message: the id of the run, possibly followed by
// the number of the attempt.
func runOfMessage(messageID string) (string, bool) {
	runID, _, _ := strings.Cut(messageID, "/")
	_, _, _, err := cron.ParseRunID(runID)
	return runID, err == nil
}

// attempt is the ledger change of Start; nil for messages that are not cron runs.
func (w *world) attempt(messageID, node string) *cron.AttemptStart {
	w.Helper()
	runID, isCron := runOfMessage(messageID)
	if !isCron {
		return nil
	}
	return &cron.AttemptStart{RunID: runID, Attempt: w.ledger(runID).Attempt + 1, Node: node}
}

// cronEnd is the ledger change of Finish; nil for messages that are not cron runs.
func (w *world) cronEnd(messageID string, state cron.RunState) *cron.AttemptEnd {
	w.Helper()
	runID, isCron := runOfMessage(messageID)
	if !isCron {
		return nil
	}
	r := w.ledger(runID)
	end := &cron.AttemptEnd{
		RunID: runID, State: state, Delivery: cron.DeliveryNotRequested,
		Attempt: cron.Attempt{Number: r.Attempt, State: cron.AttemptOK, StartedAt: r.StartedAt, FinishedAt: w.clock.now(), Node: r.Node},
	}
	switch state {
	case cron.RunCancelled:
		end.Attempt.State, end.Reason = cron.AttemptCancelled, cron.ReasonStopped
	case cron.RunError, cron.RunRetrying:
		end.Attempt.State, end.Error, end.ErrorClass = cron.AttemptError, "backend answered 503", "overloaded"
		end.Attempt.Error, end.Attempt.ErrorClass = end.Error, end.ErrorClass
	case cron.RunQueued, cron.RunInterrupted:
		end.Attempt.State = cron.AttemptInterrupted
	default:
	}
	return end
}

// endRun ends an attempt; change modifies the parameters of Finish.
func (w *world) endRun(c store.Claim, messageID string, state cron.RunState, change func(e *cron.AttemptEnd)) {
	w.Helper()
	w.finish(w.ending(c, messageID, state, change))
}

func (w *world) ending(c store.Claim, messageID string, state cron.RunState, change func(e *cron.AttemptEnd)) store.FinishParams {
	w.Helper()
	p := answered(c, messageID)
	switch state {
	case cron.RunError, cron.RunRetrying:
		p.State, p.Outcome, p.Cause = store.RunFailed, chat.OutcomeFailed, "model"
	case cron.RunCancelled:
		p = stopped(c, messageID)
	case cron.RunQueued:
		p = requeued(c, messageID)
	default:
	}
	p.Cron = w.cronEnd(messageID, state)
	if change != nil {
		change(p.Cron)
	}
	return p
}

// decide is the planner of the product.
func decide(now time.Time, due []cron.DueJob) []cron.Verdict {
	return cron.NewPlanner(schedule.NewCompiler(0), cron.PlannerConfig{}).Decide(now, due)
}
