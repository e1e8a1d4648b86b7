package cron

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// lateNote is how late a fire must be before its message mentions the planned moment.
const lateNote = time.Minute

// Planner decides about due jobs. Its only state is a cache of compiled schedules.
type Planner struct {
	compiler *schedule.Compiler
	// target is the channel target for the answer of a job that runs in a session; zero when the
	// answer is not sent to a channel.
	target func(Job, chat.SessionKey) chat.Target
	// perDay bounds the runs of an owner in 24 hours; bounded reports for which owners. 0 = no
	// bound.
	perDay  int
	bounded func(owner string) bool
	// over reports whether a budget of tokens or money prevents a job from running.
	over func(Job) bool
}

// PlannerConfig configures a Planner. The zero value bounds nothing.
type PlannerConfig struct {
	// Target is where the answer of a job that runs in a session is sent, besides that session; nil
	// = nowhere.
	Target func(Job, chat.SessionKey) chat.Target
	// Runs of owners for which Bounded returns true are limited to PerDay in 24 hours; 0 and nil
	// mean no limit.
	PerDay  int
	Bounded func(owner string) bool
	// OverBudget reports whether a budget of tokens or money prevents a job from running; nil =
	// never. It does no I/O.
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

// Decide decides about the due jobs of a claim.
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

// GiveUp is Decide for jobs whose agent no process has: slots that are older than the catch-up
// window of the job are missed, and all other slots wait for the agent. Jobs of the gateway itself
// need no agent.
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
		span, ok := t.Span(ReasonNoAgent, t.undecided(d.Job.State.Plan), now.Add(-window-1))
		if !ok {
			continue
		}
		next, more := t.Next(span.Last)
		verdicts = append(verdicts, Verdict{
			JobID: d.Job.ID, Rows: []Run{d.Job.spanRow(span, RunMissed)}, Fired: d.Job.State.Fired, ConsecutiveSkipped: d.Job.State.ConsecutiveSkipped,
			Plan: t.PlanOf(next), Disable: !more,
		})
	}
	return verdicts
}

// sharesSession reports whether the runs of the job do not have a session each.
func (j Job) sharesSession() bool { return j.Session != Isolated || j.Overlap == OverlapBufferOne }

// resumed ends a pause: the slots that passed become one row, and the next fire is computed from
// now.
func resumed(j Job, t Timetable, now time.Time) Verdict {
	v := Verdict{JobID: j.ID, Fired: j.State.Fired}
	if row, ok := PausedRow(j, t, now); ok {
		v.Rows = append(v.Rows, row)
	}
	next, more := t.Next(t.Free(j.State.Plan, now))
	v.Plan, v.Disable = t.PlanOf(next), !more
	return v
}

// PausedRow is the ledger row of the slots that passed between a job's pause and now; false when no
// slot did. A paused job keeps the slot that was planned when it was paused: earlier slots already
// have a row, even if they are later than the pause.
func PausedRow(j Job, t Timetable, now time.Time) (Run, bool) {
	after := j.Pause.At
	if !j.State.Next.IsZero() {
		after = t.undecided(j.State.Plan)
	}
	span, ok := t.Span(ReasonPaused, after, now)
	if !ok {
		return Run{}, false
	}
	return j.spanRow(span, RunSkipped), true
}

// verdict decides about a job that fires.
func (p *Planner) verdict(d DueJob, t Timetable, now time.Time) Verdict {
	planned := d.Job.State.Next
	if planned.IsZero() { // a row without a slot cannot be due: plan from now
		next, more := t.First(now)
		return Verdict{JobID: d.Job.ID, Fired: d.Job.State.Fired, Plan: t.PlanOf(next), Disable: !more}
	}
	if plan, moved := p.Replan(d.Job, now); moved {
		return Verdict{JobID: d.Job.ID, Fired: d.Job.State.Fired, ConsecutiveSkipped: d.Job.State.ConsecutiveSkipped, Plan: plan}
	}
	decided := t.Decide(d.Job.DueSlot(t, now))
	v := Verdict{
		JobID: d.Job.ID, Fired: d.Job.State.Fired + len(decided.Runs), Plan: t.PlanOf(decided.Next), Disable: !decided.More,
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

// DueSlot is the next slot of the job, with this timetable, when a replica claims it.
func (j Job) DueSlot(t Timetable, now time.Time) DueSlot {
	c := DueSlot{Planned: j.State.Next, Previous: t.before(j.State.Next, j.State.ActivatedAt), Now: now, Policy: j.Missed}
	if t.foreign(j.State.Plan) {
		c.Wall = j.State.NextWall
	}
	return c
}

// Replan is the plan of a job by the rules of this process, if those are newer than the rules that
// planned its slot; false = the plan stays. A slot whose right moment has passed fires as it was
// planned.
func (p *Planner) Replan(j Job, now time.Time) (Plan, bool) {
	t, err := p.Timetable(j)
	if err != nil || !t.foreign(j.State.Plan) || !schedule.Newer(t.Schedule.Release(), j.State.ZoneRelease) {
		return j.State.Plan, false
	}
	next, ok := t.Next(t.undecided(j.State.Plan))
	if !ok || !next.At.After(now) {
		return j.State.Plan, false
	}
	return t.PlanOf(next), true
}

// before is the slot before the planned one, so that a slot which a gap has skipped between them is
// recorded; zero when no slot can be lost.
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

// launch applies overlap and budget to the slots that are to run. The runs that catch up after an
// outage form a sequence and do not overlap each other. If the job allows no concurrent runs, they
// share the session of the active run, and so run after it.
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
			p.queueAfter(&l, d, v)
		}
		v.Runs = append(v.Runs, l)
		v.ConsecutiveSkipped = 0
		mine++
		today++
	}
}

// queueAfter puts a run that catches up into the session of its predecessor: the run that an outage
// left, or the last one that this claim has launched.
func (p *Planner) queueAfter(l *Launch, d DueJob, v *Verdict) {
	before := ""
	if d.Job.Overlap != OverlapCancelPrevious {
		before = d.Session
	}
	if n := len(v.Runs); before == "" && n > 0 {
		before = v.Runs[n-1].Run.SessionKey
	}
	key, err := chat.ParseSessionKey(before, d.Job.Agent)
	if err == nil && strings.HasPrefix(key.Rest, d.Job.sessionPrefix()) { // not a session that the job had in its configuration when that run began
		l.Run.SessionKey, l.Message.Session = key.String(), key
		l.Message.Content.Options.ReplyTo = p.target(d.Job, key)
	}
}

// Launch creates a run of a job with its message. Runs with the same first slot share a session
// when the job has none, and therefore run one after the other; a zero first means the run's own
// slot.
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

// Channel is the channel of the messages of runs.
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
	// WakeLater: the text waits in the session for the next turn.
	WakeLater = "next-heartbeat"
)

// sessionOf is the session of a run. Every isolated run has a session of its own, with two
// exceptions that serialize runs of one job: runs of one catch-up or backfill share the session of
// its first run, and all runs of a job that buffers share one.
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

// sessionPrefix is the prefix of the keys of sessions that are made for runs of the job.
func (j Job) sessionPrefix() string { return "cron:" + j.ID + ":" }

// row is a ledger row of the job for one slot; the caller sets state and reason.
func (j Job) row(f schedule.Fire, trigger Trigger) Run {
	lane := cmp.Or(j.Lane, DefaultLane)
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

// A slot may be backfilled again when its run did not succeed, and with force always. The trigger
// of a repeated backfill contains its number, so that "one row for each job, slot and trigger"
// holds: backfill, backfill:2, backfill:3.

// BackfillTrigger is the trigger of the n-th backfill of a slot, counted from 1.
func BackfillTrigger(n int) Trigger {
	if n <= 1 {
		return TriggerBackfill
	}
	return TriggerBackfill + ":" + Trigger(strconv.Itoa(n))
}

// Kind is the trigger without its number: one of the closed set that clients, filters and metrics
// use.
func (t Trigger) Kind() Trigger {
	if t.round() > 0 {
		return TriggerBackfill
	}
	return t
}

// round is the number of the backfill of its slot, counted from 1; 0 when the trigger is not a
// backfill.
func (t Trigger) round() int {
	if t == TriggerBackfill {
		return 1
	}
	text, numbered := strings.CutPrefix(string(t), string(TriggerBackfill)+":")
	if !numbered {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 || BackfillTrigger(n) != t {
		return 0
	}
	return n
}

// SlotRun is a run that the ledger has for a slot.
type SlotRun struct {
	Slot    time.Time
	Trigger Trigger
	State   RunState
}

// NextBackfill is the trigger for the next backfill of a slot, given the runs in the ledger (of
// other slots as well). exists: nothing is to be run, because a backfill of the slot is active, or
// because one succeeded and force is false; the trigger is then that of the last backfill.
func NextBackfill(ran []SlotRun, slot time.Time, force bool) (t Trigger, exists bool) {
	last, well, active := 0, false, false
	for _, r := range ran {
		if !r.Slot.Equal(slot) {
			continue
		}
		n := r.Trigger.round()
		last = max(last, n)
		well = well || r.State == RunOK
		active = active || (n > 0 && r.State.Active())
	}
	if active || (well && !force) {
		return BackfillTrigger(last), true
	}
	return BackfillTrigger(last + 1), false
}

// Backfill creates the runs of some slots, given the ledger's runs of them in d.Ran. They run one
// after the other, in the session of the first new one.
func (p *Planner) Backfill(d DueJob, fires []schedule.Fire, force bool) []Launch {
	list := make([]Launch, 0, len(fires))
	series := ""
	for _, f := range fires {
		trigger, exists := NextBackfill(d.Ran, f.Slot, force)
		if series == "" && !exists {
			series = seriesOf(trigger, f.Slot)
		}
		l := p.Launch(d.Job, PlannedRun{Fire: f, Trigger: trigger, Series: series}, time.Time{})
		l.Exists = exists
		list = append(list, l)
	}
	return list
}

// seriesOf is the end of the key of a session that is made for one run.
func seriesOf(t Trigger, slot time.Time) string { return string(t) + "-" + millisText(slot) }
