package cron

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// JobStore is the store interface of cron. Every operation is atomic and safe to retry; all times
// are the store's. A run to execute is a message: the store puts it into the inbox of its session
// in the same transaction as its ledger row. From then on it is handled like every message
// (ownership, lane, start, fenced finish, takeover after a crash). So the ledger needs no lease:
// while an attempt runs, its message has an owner.
//
// PutJob, EnqueueRuns and CancelRuns take the idempotency key of a call. The result of the first
// call with a key is stored in the transaction of its effect. A further call with that key returns
// it and changes nothing, even if the job was changed or removed since. chat.ErrKeyReused: the key
// belongs to other parameters. A refusal is not stored.
//
// Some operations take a function that decides within their transaction (Change, Make, Decide,
// AttemptEnd.Job). It is pure: it may be called more than once, and it does no I/O. In particular
// it must not call the store: it runs while it holds a connection, and waiting for a second one
// would deadlock once every connection is held that way. Data for a decision is read before the
// call, and the decision compares its revision.
//
// Every operation returns in Finished the ledger rows that it ended, as stored: recorded, cancelled
// or refused ones. Each is a finished event. Operations that end messages return the rows that
// ended with them in the messages (store.Waiting.CronRun). The end of an attempt
// (store.FinishParams.Cron) passes its row to AttemptEnd.Job instead.
//
// Attempt n of run R is the message R (n = 1) or R/n. Its id makes it unique: it has no dedupe key.
//
// Nothing is claimed before it is due. A due fire that waits for its lane or its session ends as
// cancelled when its job is paused, disabled or removed.
type JobStore interface {
	// PutJob creates a job, or changes the one with the same owner and key; with p.IfNameExists,
	// the one that [NameRule] selects. Change receives the stored job (nil = new) and the store's
	// clock and returns the job to store; returning the old one unchanged writes nothing. Errors of
	// Change are returned and nothing is written. The id, key, revision and times of the result are
	// set by Change's caller, package service. chat.ErrLimit when p.MaxOfOwner or p.MaxTotal would
	// be exceeded.
	PutJob(ctx context.Context, p PutParams) (PutResult, error)
	// ChangeJob changes a job by id; chat.ErrNotFound when no such job is visible to p.Visible. A
	// Change that returns nil removes the job; its history stays. When p.CancelActive is set,
	// active runs end as in CancelRuns, in the same transaction.
	ChangeJob(ctx context.Context, p ChangeParams) (Changed, error)
	// Job reads a job; chat.ErrNotFound.
	Job(ctx context.Context, id, visible string) (Job, error)
	// Jobs lists jobs, see JobFilter. The text of a page has at most 4 MiB (store.ReadBytes), or it
	// is one job. So a page that is shorter than Limit is the last one only if Offset and its
	// length add up to Total. Total counts as far as chat.CountTo; More says that there are more.
	Jobs(ctx context.Context, f JobFilter) (JobPage, error)

	// Claim takes at most p.Limit jobs whose NextRunAt is not after now, ordered by planned time,
	// and due runs in state retrying. It skips jobs that another process is claiming. Decide
	// decides about each job; ledger rows, messages and the next slot are written in the same
	// transaction. Jobs whose row cannot be decoded are marked invalid and do not fire. The cost
	// does not grow with the number of jobs that are not due.
	Claim(ctx context.Context, p ClaimParams) (Claimed, error)
	// Replan recomputes the slots of jobs that fire and whose slot the zone rules of an older
	// release have planned. It takes at most p.Limit jobs after p.After in the order of release and
	// id, skips those that another operation has locked, and changes nothing but the plan.
	Replan(ctx context.Context, p ReplanParams) (Replanned, error)
	// EnqueueRuns creates runs by hand (run now, backfill): ledger rows and messages. A run whose
	// id exists is not created again (Existing); with p.New it is chat.ErrConflict, and nothing is
	// created.
	EnqueueRuns(ctx context.Context, p EnqueueParams) (Enqueued, error)
	// CancelRuns ends active runs: queued and retrying ones immediately (cancelled, reason); for
	// running ones it records a stop of their message (stop_by) as store.Store.Stop does. It
	// returns ids and, for running ones, their sessions and nodes. chat.ErrNotFound when p.RunID is
	// unknown, or p.JobID matches neither a job nor an active run.
	CancelRuns(ctx context.Context, p CancelParams) (Cancelled, error)

	// Runs lists ledger rows ordered by ScheduledFor and then by id, newest first; later changes of
	// a row do not move it. A page is bounded in bytes and counted as one of Jobs.
	Runs(ctx context.Context, f RunFilter) (RunPage, error)
	// Run reads one row with its attempts; chat.ErrNotFound.
	Run(ctx context.Context, id, visible string) (Run, error)
	// Summary counts for status pages.
	Summary(ctx context.Context, visible string) (Summary, error)

	// The history of jobs that is stored outside of the ledger.

	// Past reads the history of a job since a moment, by its id or its key, at most limit entries
	// of each kind.
	Past(ctx context.Context, id, key string, since time.Time, limit int) (Past, error)
}

// PutParams are the parameters of PutJob.
type PutParams struct {
	Owner, Key string
	// Name and IfNameExists define the handling of jobs with the same name, see [NameRule]; "" =
	// NameNew. KeyGiven: the caller gave the key; it is not derived.
	Name         string
	IfNameExists NameRule
	KeyGiven     bool
	// MaxOfOwner and MaxTotal bound the number of jobs; 0 = no bound. They only refuse new jobs.
	MaxOfOwner, MaxTotal int
	Change               func(old *Job, now time.Time) (*Job, error)
	// FormerID is the id of a removed job. A new job gets it if the ledger has rows of that job
	// with the same owner, so that it continues their history.
	FormerID string
	// EndWaiting, see ChangeParams.
	EndWaiting     Reason
	IdempotencyKey *chat.IdempotencyKey // nil when the call has no key
	Audit          *Audit               // the store fills in its hashes
}

// PutResult is the result of PutJob.
type PutResult struct {
	Job              Job
	Created, Updated bool
	// Ended are the waiting runs that were cancelled.
	Ended []CancelledRun `json:"-"`
	// Repeated: this is the result of an earlier call with the same key; nothing was changed.
	Repeated bool  `json:"-"`
	Finished []Run `json:"-"` // see [JobStore]
}

// ChangeParams are the parameters of ChangeJob.
type ChangeParams struct {
	ID, Visible string
	// Change returns the job to store, or nil to remove it. Its Key may change; chat.ErrConflict
	// when another job of the owner has it.
	Change func(old Job, now time.Time) (*Job, error)
	// Skipped, if not nil after Change was called, is a ledger row to add (slots that passed while
	// the job was paused).
	Skipped      *Run
	CancelActive bool
	CancelReason Reason
	// EndWaiting, if set, cancels with this reason the planned runs that wait to start
	// ([Run.WaitsToStart]), before Change is called; for a removed job, all runs that wait to
	// start. Change receives the job after [Job.Unfired].
	EndWaiting Reason
	By         string
	Audit      *Audit
}

// Changed is the result of ChangeJob.
type Changed struct {
	Old     Job
	Job     *Job // nil when removed
	Changed bool
	// Ended are the runs that were cancelled or asked to stop; the finished ones are also in
	// Finished.
	Ended    []CancelledRun
	Finished []Run // see [JobStore]
}

// Revisions are the revisions of the job before and after the change, for the audit log; "" when it
// was removed.
func (c Changed) Revisions() (before, after string) {
	if c.Job != nil {
		after = c.Job.Revision
	}
	return c.Old.Revision, after
}

// Audit is one row of the audit log, written in the transaction of the change.
type Audit = chat.Audit

// ClaimParams are the parameters of Claim.
type ClaimParams struct {
	Node  string
	Limit int
	// Agents are the agents of the node: it claims their jobs and those of the gateway itself. nil
	// = all jobs.
	Agents []string
	// Decide is pure: it decides about each due job. It may be called more than once.
	Decide func(now time.Time, due []DueJob) []Verdict
}

// ReplanParams are the parameters of Replan.
type ReplanParams struct {
	// Release is that of the rules of the caller.
	Release string
	After   PlanPlace
	Limit   int
	// Replan is pure, as Decide of a claim: it returns the new plan of a job; false = the plan
	// stays.
	Replan func(j Job, now time.Time) (Plan, bool)
}

// PlanPlace is a position in the order of release and id.
type PlanPlace struct{ Release, ID string }

// Replanned is the result of Replan: the changed jobs, and the position of the last one that was
// read. More: Limit was reached.
type Replanned struct {
	Jobs []Job
	Last PlanPlace
	More bool
}

// DueJob is a due job, with the input for overlap and budget.
type DueJob struct {
	Job Job
	// Active runs of the job (queued, running, retrying), newest last; Running of them are running.
	Active  []string
	Running int
	// Session is that of the newest active run.
	Session string
	// RunsToday counts the runs of the owner in the last 24 hours; only for owners that are not
	// operators.
	RunsToday int
	// Ran are the runs for the slots in EnqueueParams.Slots, in any order; empty in a claim.
	Ran []SlotRun
}

// AddActive adds an active run of the job. Call it oldest first.
func (d *DueJob) AddActive(r Run) {
	d.Active, d.Session = append(d.Active, r.ID), r.SessionKey
	d.Job.State.Queued = len(d.Active)
	if r.State != RunRunning {
		return
	}
	if st := &d.Job.State; d.Running == 0 || r.StartedAt.Before(st.RunningAt) {
		st.RunningAt = r.StartedAt
	}
	d.Running++
}

// Verdict is the decision about one due job.
type Verdict struct {
	JobID string
	// Invalid, if set, is stored as the reason why the row cannot be decoded; the job does not fire
	// any more and the rest of the verdict is ignored.
	Invalid string
	// Runs are executed: their messages are put into the inbox. Rows are only recorded (skipped,
	// missed).
	Runs []Launch
	Rows []Run
	// Cancel are active runs that are stopped for a new one (cancel_previous).
	Cancel []string
	// The state to store: the next fire, Fired, and Enabled false for jobs that will not fire any
	// more.
	Plan
	Fired              int
	Disable            bool
	ConsecutiveSkipped int
}

// Launch is a run with its message.
type Launch struct {
	Run     Run
	Message chat.Message
	// Exists: the run is not created. EnqueueRuns counts it as existing; a claim ignores it.
	Exists bool
}

// Claimed is the result of a claim.
type Claimed struct {
	Now time.Time
	// Launched are runs with the ownership of their sessions. The caller submits those that are
	// Mine; the others have an owner that finds their waiting rows.
	Launched []Launched
	Recorded []Run
	// Cancelled are runs cancelled by verdicts (cancel_previous).
	Cancelled []CancelledRun
	// Finished are the finished rows, including Recorded; see [JobStore].
	Finished []Run
	// Jobs are the current jobs, for events; Resumed are those whose pause has ended.
	Jobs, Resumed []Job
	// More: Limit was reached.
	More bool
	// Passed is how many due jobs were skipped because another operation had locked them. They must
	// be claimed shortly afterwards.
	Passed int
	// Next is the earliest time at which a job or a retry becomes due, as of before the claim; zero
	// when nothing is planned. It may have passed.
	Next time.Time
}

// Launched is a run whose message is durable.
type Launched struct {
	Run       Run
	Message   chat.Message
	Seq       int64
	Epoch     int64
	Mine      bool
	Owner     string
	Behind    int
	SessionID string
}

// EnqueueParams are the parameters of EnqueueRuns.
type EnqueueParams struct {
	Node    string
	JobID   string
	Visible string
	// Make returns the runs to launch, given the job, its active runs and the store's clock. A
	// [NotRunError] is a regular result; other errors are returned.
	Make func(d DueJob, now time.Time) ([]Launch, error)
	// Slots are the slots whose runs Make needs in DueJob.Ran.
	Slots []time.Time
	// New: every run must be new.
	New            bool
	IdempotencyKey *chat.IdempotencyKey
	Audit          *Audit // both hashes are that of the configuration that runs
}

// NotRunError is why a job was not run by hand: not-due, disabled or already-running.
type NotRunError string

func (e NotRunError) Error() string { return "not run: " + string(e) }

// Enqueued is the result of EnqueueRuns.
type Enqueued struct {
	// Job and Launched are of this call; both are empty when it repeats another one.
	Job      Job        `json:"-"`
	Launched []Launched `json:"-"`
	Finished []Run      `json:"-"` // see [JobStore]
	// IDs are the requested runs, as Make returned them; Existing are those that existed before.
	IDs, Existing []string
	// NotRun, if set, is the [NotRunError] that Make returned.
	NotRun string
}

// Declined stores a [NotRunError] of Make as the result, and reports whether err was one.
func (e *Enqueued) Declined(err error) bool {
	not, ok := errors.AsType[NotRunError](err)
	e.NotRun = string(not)
	return ok
}

// CancelParams are the parameters of CancelRuns.
type CancelParams struct {
	RunID, JobID, Visible string
	Reason                Reason
	Note, By              string
	IdempotencyKey        *chat.IdempotencyKey
	Audit                 *Audit // its hashes are the states of the runs before and after
}

// Cancelled is the result of CancelRuns.
type Cancelled struct {
	// Runs are those that this call ended or asked to stop; empty when it repeats another call.
	Runs     []CancelledRun `json:"-"`
	Finished []Run          `json:"-"` // see [JobStore]
	// IDs are the runs of the first call.
	IDs []string
}

// CancelledOf is the result of a call that ended runs.
func CancelledOf(runs []CancelledRun) Cancelled {
	c := Cancelled{Runs: runs, IDs: make([]string, 0, len(runs))}
	for _, r := range runs {
		c.IDs = append(c.IDs, r.RunID)
	}
	return c
}

// States are the states of the runs before and after, for the audit log.
func (c Cancelled) States() (before, after string) {
	for _, r := range c.Runs {
		was, is := RunQueued, RunCancelled
		if r.Running {
			was, is = RunRunning, "stopping"
		}
		before, after = before+r.RunID+" "+string(was)+"\n", after+r.RunID+" "+string(is)+"\n"
	}
	return before, after
}

// CancelledRun is a run that was cancelled or asked to stop.
type CancelledRun struct {
	RunID, JobID string
	MessageID    string
	Session      chat.SessionKey
	Seq          int64
	// Running: its stop was requested, and it ends with its turn; Node runs it.
	Running bool
	Node    string
}

// RunFilter of Runs.
type RunFilter struct {
	Visible, JobID, RunID, Agent, Query string
	States                              []RunState // empty = finished ones
	Deliveries                          []DeliveryStatus
	IncludeActive                       bool
	Since, Until                        time.Time // on ScheduledFor
	Ascending                           bool
	Limit, Offset                       int
	Count                               int // how far the total counts, see [chat.CountTo]
	// Changes requests the changes of the job JobID since Since. The service fills them in, not the
	// store.
	Changes bool
}

// RunPage is a page of the ledger.
type RunPage struct {
	Runs  []Run
	Total int
	More  bool // there are more than Total
	// Changes are newest first.
	Changes []JobChange
	// Zone is the time zone of slots whose schedule has none; set by the service.
	Zone string
}

// Summary counts jobs and runs.
type Summary struct {
	Jobs, Running, Paused int
	// Backlog counts the due fires that have not started, OldestDue is the age of the oldest;
	// negative when there is none.
	Backlog   int
	OldestDue time.Duration
	// NextWake is the earliest NextRunAt or retry; zero when nothing is planned.
	NextWake time.Time
}

const (
	// LateAfter is how long a due fire may wait for its start before its job counts as late.
	LateAfter = 10 * time.Second
	// MaxOutcomes is how many of the latest outcomes of each job a list can have.
	MaxOutcomes = 14
)

// JobCondition is a condition of a job. A job can meet several.
type JobCondition string

// The conditions that jobs are listed by.
const (
	JobsFailing JobCondition = "failing" // its last runs failed
	JobsPaused  JobCondition = "paused"
	JobsRunning JobCondition = "running"
	JobsLate    JobCondition = "late" // a fire has been due for [LateAfter] and has not started
	JobsInvalid JobCondition = "invalid"
	JobsUnsent  JobCondition = "unsent" // its answers are kept, see [DeliveryPause]
)

// JobFilter of Jobs. Zero fields do not restrict.
type JobFilter struct {
	Visible       string
	IncludeSystem bool
	IDs           []string
	Enabled       *bool // the job fires or does not
	Condition     JobCondition
	Query         string
	Kind          schedule.Kind
	LastState     RunState
	NeverRan      bool // no run has ended yet
	Agent         string
	Target        string // the channel or the chat to which an answer is sent
	// SortBy is nextRunAt (default), updatedAt, lastRunAt, failing (failed runs in a row), name or
	// id; jobs without the value come last, and ties are ordered by id.
	SortBy        string
	Descending    bool
	Limit, Offset int
	// After is JobPage.Next of the previous page; the order must be the same. Jobs whose position
	// changed meanwhile may be on both pages or on neither.
	After string
	// WithoutPayload leaves the payload of every job empty: it is not read and does not count
	// towards the bytes of a page.
	WithoutPayload bool
	// Counts and Outcomes request further data of a page; Outcomes is how many per job, at most
	// MaxOutcomes.
	Counts   bool
	Outcomes int
}

// LastStateWord is the value with which a store compares its column: "" = any, "never" = no run
// yet.
func (f JobFilter) LastStateWord() string {
	if f.NeverRan {
		return "never"
	}
	return string(f.LastState)
}

// TargetTexts are two pieces of JSON; a stored delivery to the target contains one of them.
func (f JobFilter) TargetTexts() (channel, chatID string) {
	text, err := encodeText(f.Target)
	if err != nil { // a string can always be encoded
		return "", ""
	}
	return `"channel":` + text, `"to":` + text
}

// JobPage is a page of a list. Revision and Total stay equal until a job is added, changed or
// removed.
type JobPage struct {
	Jobs     []Job
	Total    int
	More     bool // there are more than Total
	Revision string
	Next     string // the value of JobFilter.After for the next page; "" = the last page
	Counts   JobCounts
	Outcomes map[string][]RunOutcome // by id of the job, the newest slot first
}

// JobCounts are how many jobs a caller may see, and how many of them meet each condition.
type JobCounts struct{ All, Failing, Paused, Running, Late, Invalid int }

// RunOutcome is the outcome of a slot, in short.
type RunOutcome struct {
	Slot     time.Time
	State    RunState
	Reason   Reason
	Duration time.Duration
}

// JobPlace is a position in a list: after the job with this id and this sort value.
type JobPlace struct {
	Absent bool   // the job has no value
	Value  string // "" with Absent
	ID     string
}

// PlaceOf is the position after a job in the list of the filter.
func (f JobFilter) PlaceOf(j *Job) string {
	var value string
	var absent bool
	number := func(n int64) { value, absent = strconv.FormatInt(n, 10), n == 0 }
	switch f.SortBy {
	case "name":
		value, absent = j.Name, j.Name == ""
	case "id":
	case "updatedAt":
		number(millis(j.UpdatedAt))
	case "lastRunAt":
		number(millis(j.State.LastRunAt))
	case "failing":
		number(int64(j.State.ConsecutiveErrors))
	default:
		number(millis(j.State.NextRunAt))
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join([]string{f.order(), strconv.FormatBool(absent), j.ID, value}, "\n")))
}

// Place is the position in After; chat.ErrInvalid when it belongs to a list in another order.
func (f JobFilter) Place() (JobPlace, error) {
	text, err := base64.RawURLEncoding.DecodeString(f.After)
	part := strings.SplitN(string(text), "\n", 4)
	if err != nil || len(part) != 4 || part[0] != f.order() {
		return JobPlace{}, chat.Errorf(chat.CodeInvalid, "the cursor is not of a list in this order: begin at the first page")
	}
	return JobPlace{Absent: part[1] == "true", ID: part[2], Value: part[3]}, nil
}

func (f JobFilter) order() string { return f.SortBy + strconv.FormatBool(f.Descending) }

// Put is the result of writing a job.
type Put struct {
	Job              Job
	Created, Updated bool
	// Keyed: the client gave the key.
	Keyed bool
}

// RunMode is the condition under which a run by hand may start.
type RunMode string

// The modes.
const (
	RunForce     RunMode = "force"
	RunDue       RunMode = "due"
	RunIfEnabled RunMode = "if-enabled"
)

// PreviewParams select the next fires of a job, of the schedule and its bounds in Schedule, or of
// the job as an edit with these would make it. A zero From means now.
type PreviewParams struct {
	ID       string
	Schedule Members
	From     time.Time
	Count    int
}

// ExplainParams select the slots of a job to explain: the one at a moment, as a phrase (At, see
// [schedule.ParsePast]) or as an instant (Moment); all from From until Until; or, by default, the
// newest one that has passed.
type ExplainParams struct {
	ID          string
	At          string
	Moment      time.Time
	From, Until time.Time
}

// Explained is the result, with the time zone of its times.
type Explained struct {
	Zone  string
	Slots []Explanation
}

// BackfillParams select the slots of a job in a range of the past.
type BackfillParams struct {
	ID             string
	From, To       time.Time
	MaxRuns        int
	DryRun, Force  bool
	IdempotencyKey *chat.IdempotencyKey // nil when the call has no key; a dry run has no effect and needs none
	// Spend takes the bytes of the messages of all runs from an allowance of the caller, before any
	// run is created; nil when the caller has no allowance.
	Spend func(bytes int) error
}

// BackfillFire is one slot of a backfill.
type BackfillFire struct {
	Slot   time.Time
	RunID  string
	Exists bool
}
