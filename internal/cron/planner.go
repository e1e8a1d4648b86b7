package cron

import (
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// lateNote is how late a fire must be before its text names the moment for which it was planned.
const lateNote = time.Minute

// Planner decides what happens to jobs that are due. It keeps compiled schedules and nothing else.
type Planner struct {
	compiler *schedule.Compiler
	// target is where the answer of a job goes on a channel when it runs in a session; zero = nowhere, or not by a channel.
	target func(Job, chat.SessionKey) chat.Target
	// perDay bounds the runs of an owner in 24 hours; bounded reports for which owners. 0 = no bound.
	perDay  int
	bounded func(owner string) bool
	// over reports whether a budget of tokens or money keeps a job from running.
	over func(Job) bool
}

// PlannerConfig is what a Planner asks about jobs. The zero value bounds nothing.
type PlannerConfig struct {
	// Target is where the answer of a job goes when it runs in a session, besides that session; nil = nowhere.
	Target func(Job, chat.SessionKey) chat.Target
	// Runs of owners for whom Bounded answers true are limited to PerDay in 24 hours; 0 and nil are no limit.
	PerDay  int
	Bounded func(owner string) bool
	// OverBudget reports whether a budget of tokens or money keeps a job from running; nil = none does. It answers from memory.
	OverBudget func(Job) bool
}

// NewPlanner makes a Planner.
func NewPlanner(c *schedule.Compiler, cfg PlannerConfig) *Planner {
	p := &Planner{compiler: c, target: cfg.Target, perDay: cfg.PerDay, bounded: cfg.Bounded, over: cfg.OverBudget}
	if p.target == nil {
		p.target = func(Job, chat.SessionKey) chat.Target { return chat.Target{} }
	}
	if p.bounded == nil {
		p.bounded = func(string) bool { return false }
	}
	if p.over == nil {
		p.over = func(Job) bool { return false }
	}
	return p
}

// Timetable compiles the schedule of a job.
func (p *Planner) Timetable(j Job) (Timetable, error) {
	s, err := p.compiler.Compile(j.Schedule)
	if err != nil {
		return Timetable{}, err
	}
	return j.Timetable(s), nil
}

// Decide settles the due jobs of a claim.
func (p *Planner) Decide(now time.Time, due []DueJob) []Verdict {
	verdicts := make([]Verdict, 0, len(due))
	for _, d := range due {
		t, err := p.Timetable(d.Job)
		switch {
		case err != nil:
			verdicts = append(verdicts, Verdict{JobID: d.Job.ID, Invalid: err.Error()})
		case d.Job.Pause != nil:
			verdicts = append(verdicts, resumed(d.Job, t, now))
		default:
			verdicts = append(verdicts, p.verdict(d, t, now))
		}
	}
	return verdicts
}

// GiveUp is Decide for jobs whose agent no process has: slots that are older than the catch-up window of the job are missed, and everything else waits for the agent.
// Jobs of the gateway itself need none.
func (p *Planner) GiveUp(now time.Time, due []DueJob) []Verdict {
	var verdicts []Verdict
	for _, d := range due {
		if d.Job.Owner == SystemOwner || d.Job.Pause != nil || d.Job.State.Next.IsZero() {
			continue
		}
		t, err := p.Timetable(d.Job)
		if err != nil {
			verdicts = append(verdicts, Verdict{JobID: d.Job.ID, Invalid: err.Error()})
			continue
		}
		window := d.Job.Missed.For(t.Schedule.Kind()).Window
		if window == NoWindow {
			continue
		}
		span, ok := t.Span(ReasonNoAgent, d.Job.State.Next.Add(-1), now.Add(-window-1))
		if !ok {
			continue
		}
		next, more := t.Next(span.Last)
		verdicts = append(verdicts, Verdict{
			JobID: d.Job.ID, Rows: []Run{d.Job.spanRow(span, RunMissed)}, Fired: d.Job.State.Fired, ConsecutiveSkipped: d.Job.State.ConsecutiveSkipped,
			Next: next.Slot, NextRunAt: next.At, Disable: !more,
		})
	}
	return verdicts
}

// sharesSession reports whether the runs of the job do not have a session each.
func (j Job) sharesSession() bool { return j.Session != Isolated || j.Overlap == OverlapBufferOne }

// resumed ends a pause: the slots that passed are one row, and the next fire is computed from now.
func resumed(j Job, t Timetable, now time.Time) Verdict {
	v := Verdict{JobID: j.ID, Fired: j.State.Fired}
	if row, ok := PausedRow(j, t, now); ok {
		v.Rows = append(v.Rows, row)
	}
	next, more := t.Next(now)
	v.Next, v.NextRunAt, v.Disable = next.Slot, next.At, !more
	return v
}

// PausedRow is the ledger row of the slots that passed between a job's pause and now; false when there were none. A paused job keeps the slot that was
// planned when it was paused: those in front of it have a row already, even if they came later than the pause.
func PausedRow(j Job, t Timetable, now time.Time) (Run, bool) {
	after := j.Pause.At
	if !j.State.Next.IsZero() {
		after = j.State.Next.Add(-1)
	}
	span, ok := t.Span(ReasonPaused, after, now)
	if !ok {
		return Run{}, false
	}
	return j.spanRow(span, RunSkipped), true
}

// verdict decides a job that fires.
func (p *Planner) verdict(d DueJob, t Timetable, now time.Time) Verdict {
	planned := d.Job.State.Next
	if planned.IsZero() { // a row without a slot cannot have one that is due: begin anew
		next, more := t.First(now)
		return Verdict{JobID: d.Job.ID, Fired: d.Job.State.Fired, Next: next.Slot, NextRunAt: next.At, Disable: !more}
	}
	decided := t.Decide(Claim{Planned: planned, Previous: t.before(planned, d.Job.State.ActivatedAt), Now: now, Policy: d.Job.Missed})
	v := Verdict{
		JobID: d.Job.ID, Fired: d.Job.State.Fired + len(decided.Runs), Next: decided.Next.Slot, NextRunAt: decided.Next.At, Disable: !decided.More,
		ConsecutiveSkipped: d.Job.State.ConsecutiveSkipped,
	}
	for _, span := range decided.Missed {
		v.Rows = append(v.Rows, d.Job.spanRow(span, RunMissed))
	}
	for _, lost := range decided.Lost {
		row := d.Job.row(lost, TriggerSchedule)
		row.State, row.Reason, row.DST = RunSkipped, ReasonGap, lost.DST
		v.Rows = append(v.Rows, row)
	}
	p.launch(&v, d, decided.Runs)
	return v
}

// before is the slot in front of the planned one, so that a slot which a gap has swallowed between them is noted; zero where nothing can be lost.
func (t Timetable) before(planned, activated time.Time) time.Time {
	if !t.Schedule.SkipsGaps() || !activated.Before(planned) {
		return time.Time{}
	}
	if last := t.newest(later(activated, planned.Add(-366*24*time.Hour)), planned.Add(-time.Millisecond), 1); len(last) == 1 {
		return last[0].Slot
	}
	return activated
}

// overBudget is the error of a slot that a budget of tokens or money has skipped.
const overBudget = "a budget of tokens or money is used up for today"

// launch settles overlap and budget of the slots that are to run. The runs that catch up after an outage are one row of runs: they do not overlap each other, and
// those of a job that lets nothing run beside an active run wait behind it, because they share its session and so come one after the other.
func (p *Planner) launch(v *Verdict, d DueJob, list []PlannedRun) {
	active, mine, today := len(d.Active), 0, d.RunsToday
	var catchup time.Time
	for _, r := range list {
		late := r.Trigger == TriggerCatchup || r.Late > tickSlack
		others := active + mine
		if late || d.Job.Overlap == OverlapCancelPrevious {
			others = active
		}
		running := min(others, 1)
		action, reason := d.Job.Overlap.Decide(running, others-running)
		if late && action == ActionSkip {
			action = ActionBuffer
		}
		why := ""
		switch {
		case action == ActionSkip:
		case p.perDay > 0 && today >= p.perDay && p.bounded(d.Job.Owner):
			action, reason = ActionSkip, ReasonBudget
		case p.over(d.Job) && d.Job.AsksAgent():
			action, reason, why = ActionSkip, ReasonBudget, overBudget
		}
		if action == ActionSkip {
			row := d.Job.row(r.Fire, r.Trigger)
			row.State, row.Reason, row.Error = RunSkipped, reason, why
			v.Rows = append(v.Rows, row)
			v.ConsecutiveSkipped++
			continue
		}
		if action == ActionReplace && mine == 0 {
			v.Cancel = d.Active
		}
		if r.Trigger == TriggerCatchup && catchup.IsZero() {
			catchup = r.Slot
		}
		l := p.Launch(d.Job, r, catchup)
		if late && !d.Job.sharesSession() && (d.Job.Overlap != OverlapConcurrent || active >= MaxConcurrent) {
			p.queueBehind(&l, d, v)
		}
		v.Runs = append(v.Runs, l)
		v.ConsecutiveSkipped = 0
		mine++
		today++
	}
}

// queueBehind puts a run that catches up into the session of what is before it: the run that an outage left, or the one that this claim has launched last.
func (p *Planner) queueBehind(l *Launch, d DueJob, v *Verdict) {
	before := ""
	if d.Job.Overlap != OverlapCancelPrevious {
		before = d.Session
	}
	if n := len(v.Runs); before == "" && n > 0 {
		before = v.Runs[n-1].Run.SessionKey
	}
	key, err := chat.ParseSessionKey(before, d.Job.Agent)
	if err == nil && strings.HasPrefix(key.Rest, d.Job.sessionPrefix()) { // not one that the job had in its configuration when that run began
		l.Run.SessionKey, l.Message.Session = key.String(), key
		l.Message.Content.Options.ReplyTo = p.target(d.Job, key)
	}
}

// Launch makes a run of a job with its message. Runs with the same first slot share a session when the job has none of its own, and
// therefore run one after the other; a zero first is the run's own slot.
func (p *Planner) Launch(j Job, r PlannedRun, first time.Time) Launch {
	run := j.row(r.Fire, r.Trigger)
	run.State = RunQueued
	key := j.sessionOf(r, first)
	run.SessionKey = key.String()
	m := chat.Message{
		Session: key, ID: run.ID, Lane: run.Lane, Principal: j.Owner, Channel: Channel,
		Content: j.content(r),
	}
	m.Content.Options.ReplyTo = p.target(j, key)
	return Launch{Run: run, Message: m}
}

// Channel is what messages of runs give as their channel.
const Channel = "cron"

// Isolated, Main and NamedSession are the forms of [Job.Session].
const (
	Isolated     = "isolated"
	Main         = "main"
	NamedSession = "session:"
)

// The values of [Job.WakeMode].
const (
	WakeNow = "now"
	// WakeLater: the text waits in the session for whatever turn comes next.
	WakeLater = "next-heartbeat"
)

// sessionOf is where a run takes place. Every isolated run has a session of its own, with two exceptions that keep runs of one job apart in time:
// runs of one catch-up or backfill share the session of its first run, and all runs of a job that buffers share one.
func (j Job) sessionOf(r PlannedRun, first time.Time) chat.SessionKey {
	if name, ok := strings.CutPrefix(j.Session, NamedSession); ok {
		if key, err := chat.ParseSessionKey(name, j.Agent); err == nil {
			return key
		}
	}
	if j.Session == Main {
		return chat.MainKey(j.Agent)
	}
	slot := r.Slot
	if !first.IsZero() && r.Trigger == TriggerCatchup {
		slot = first
	}
	name := seriesOf(r.Trigger, slot)
	switch {
	case j.Overlap == OverlapBufferOne:
		name = "buffered"
	case r.Series != "":
		name = r.Series
	}
	return chat.SessionKey{Agent: j.Agent, Rest: j.sessionPrefix() + name}
}

// sessionPrefix is what the names of the sessions begin with that are made for runs of the job.
func (j Job) sessionPrefix() string { return "cron:" + j.ID + ":" }

// row is a ledger row of the job for one slot; state and reason are the caller's.
func (j Job) row(f schedule.Fire, trigger Trigger) Run {
	lane := j.Lane
	if lane == "" {
		lane = DefaultLane
	}
	return Run{
		ID: RunID(trigger, j.ID, f.Slot), JobID: j.ID, JobName: j.Name, JobKey: j.Key, Owner: j.Owner, Agent: j.Agent, Lane: lane,
		ScheduledFor: f.Slot, Trigger: trigger, DST: f.DST, SlotCount: 1, FireAt: f.At, Delivery: DeliveryNotRequested,
	}
}

func (j Job) spanRow(s MissedSpan, state RunState) Run {
	r := j.row(schedule.Fire{Slot: s.First, At: s.First}, TriggerSchedule)
	r.State, r.Reason, r.SlotCount = state, s.Reason, s.Count
	if s.Count > 1 {
		r.SlotUntil = s.Last
	}
	return r
}
