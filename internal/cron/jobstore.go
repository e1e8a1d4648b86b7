package cron

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
)

// JobStore is what cron needs of the store. Every operation is atomic and safe to retry; all times are the store's. A run that is to be
// executed is a message: the store puts it into the inbox of its session in the same transaction as its ledger row, and from there
// it takes the way of every message (ownership, lane, start, fenced finish, takeover after a crash). So the ledger needs no
// lease of its own: while an attempt runs, its message has an owner.
//
// PutJob, EnqueueRuns and CancelRuns take the idempotency key of a call. What the first call under a key came to is stored in the transaction of its effect;
// a further call with that key gets it and changes nothing, even if the job was changed or removed since. chat.ErrKeyReused: the key belongs to other params.
// A refusal is not kept.
//
// Some operations take a function that decides within their transaction (Change, Make, Decide, AttemptEnd.Job). It is pure: it may be called more than once,
// and it does no I/O. In particular it does not call the store: it runs while a connection of the store is held, and waiting there for another one blocks
// every operation once each connection is held that way. What a decision needs of the store is read before the call, and the decision compares the revision
// that it was read with.
//
// Every operation returns in Finished the rows of the ledger that got their end in it, as they are stored: recorded, cancelled or refused ones. Each is a finished
// event. Operations that end messages return the rows that end by it with the messages (store.Waiting.CronRun). The end of an attempt (store.FinishParams.Cron)
// shows its row to AttemptEnd.Job instead.
//
// Attempt n of run R is the message R (n = 1) or R/n. Its id alone makes it unique: it has no dedupe key.
//
// Nothing is claimed before it is due. A due fire that waits for its lane or its session ends as cancelled when its job is paused, disabled or removed.
type JobStore interface {
	// PutJob makes a job, or changes the one with the same owner and key; with p.IfNameExists, the one that [NameRule] says. Change gets the stored job (nil = new) and the store's clock and
	// returns what is to be stored; returning the old one unchanged writes nothing. Errors of Change are returned and nothing is written.
	// The id, key, revision and times of the result are set by Change's caller, package service. chat.ErrLimit when p.MaxOfOwner or p.MaxTotal would be passed.
	PutJob(ctx context.Context, p PutParams) (PutResult, error)
	// ChangeJob changes a job by id; chat.ErrNotFound when there is none that p.Visible may see. A Change that returns nil removes the job; its history stays.
	// When p.CancelActive is set, active runs end as in CancelRuns, in the same transaction.
	ChangeJob(ctx context.Context, p ChangeParams) (Changed, error)
	// Job reads one; chat.ErrNotFound.
	Job(ctx context.Context, id, visible string) (Job, error)
	// Jobs lists, see JobFilter. The texts of a page have at most 4 MiB (store.ReadBytes), or it is one job: a page that is shorter than Limit is the last
	// one only if Offset and its length make Total.
	Jobs(ctx context.Context, f JobFilter) (JobPage, error)

	// Claim takes jobs whose NextRunAt is not after now, at most p.Limit, ordered by planned time, passing over those that another process is claiming, and
	// runs that are retrying and due. Decide decides what happens to each job; ledger rows, messages and the next slot are written in the same transaction.
	// Jobs whose row cannot be understood are marked invalid and left alone. The cost does not grow with the number of jobs that are not due.
	Claim(ctx context.Context, p ClaimParams) (Claimed, error)
	// EnqueueRuns makes runs by hand (run now, backfill): ledger rows and messages. A run whose id exists is not made again (Existing); with p.New it
	// is chat.ErrConflict, and nothing is made.
	EnqueueRuns(ctx context.Context, p EnqueueParams) (Enqueued, error)
	// CancelRuns ends active runs: queued and retrying ones at once (cancelled, reason), of running ones the message's stop is recorded (stop_by) as by
	// store.Inbox.Stop. It returns ids and, for running ones, their sessions and nodes. chat.ErrNotFound when p.RunID is unknown, or
	// p.JobID is that of no job and of no active run.
	CancelRuns(ctx context.Context, p CancelParams) (Cancelled, error)

	// Runs lists ledger rows in the order of ScheduledFor and then of their ids, the newest first; what happens to a row does not change its place. A page is
	// bounded in bytes as one of Jobs. Total is exact up to 100,000.
	Runs(ctx context.Context, f RunFilter) (RunPage, error)
	// Run reads one row with its attempts; chat.ErrNotFound.
	Run(ctx context.Context, id, visible string) (Run, error)
	// Summary counts for status pages.
	Summary(ctx context.Context, visible string) (Summary, error)
}

// PutParams of PutJob.
type PutParams struct {
	Owner, Key string
	// Name and IfNameExists decide about jobs of the same name, see [NameRule]; "" = NameNew. KeyGiven: the key is the caller's and not derived.
	Name         string
	IfNameExists NameRule
	KeyGiven     bool
	// MaxOfOwner and MaxTotal bound the number of jobs; 0 = no bound. They only refuse new ones.
	MaxOfOwner, MaxTotal int
	Change               func(old *Job, now time.Time) (*Job, error)
	// FormerID is the id of a removed job. A new job gets it if the ledger has rows of that job with the same owner, so that it continues their history.
	FormerID string
	// EndWaiting, see ChangeParams.
	EndWaiting     Reason
	IdempotencyKey *chat.IdempotencyKey // nil = the call has none
	Audit          *Audit               // its hashes are the store's to fill in
}

// PutResult of PutJob.
type PutResult struct {
	Job              Job
	Created, Updated bool
	// Ended are the runs that waited to start and were cancelled.
	Ended []CancelledRun `json:"-"`
	// Repeated: this is what an earlier call of the same name came to; nothing was changed.
	Repeated bool  `json:"-"`
	Finished []Run `json:"-"` // see [JobStore]
}

// ChangeParams of ChangeJob.
type ChangeParams struct {
	ID, Visible string
	// Change returns the job to store, or nil to remove it. Its Key may change; chat.ErrConflict when another job of the owner has it.
	Change func(old Job, now time.Time) (*Job, error)
	// Skipped, if not nil after Change was called, is a ledger row to add (slots that passed while the job was paused).
	Skipped      *Run
	CancelActive bool
	CancelReason Reason
	// EndWaiting, if set, cancels with this reason the planned runs that wait to start ([Run.WaitsToStart]), before Change is called; of a job that is removed, all
	// runs that wait to start. Change gets the job as [Job.Unfired] leaves it.
	EndWaiting Reason
	By         string
	Audit      *Audit
}

// Changed is what ChangeJob did.
type Changed struct {
	Old     Job
	Job     *Job // nil = removed
	Changed bool
	// Ended are the runs that were cancelled or asked to stop; those that are over are in Finished, too.
	Ended    []CancelledRun
	Finished []Run // see [JobStore]
}

// Revisions are those of the job before and after, for the log of changes; "" = it is gone.
func (c Changed) Revisions() (before, after string) {
	if c.Job != nil {
		after = c.Job.Revision
	}
	return c.Old.Revision, after
}

// Audit is one row of the audit log, written in the transaction of the change.
type Audit = chat.Audit

// ClaimParams of Claim.
type ClaimParams struct {
	Node  string
	Limit int
	// Agents are those of the node: it claims the jobs of these and of the gateway itself. nil = all jobs.
	Agents []string
	// Decide is pure: it decides what happens to each due job. It may be called more than once.
	Decide func(now time.Time, due []DueJob) []Verdict
}

// DueJob is a job whose time has come, with what overlap and budget need to know.
type DueJob struct {
	Job Job
	// Active runs of the job (queued, running, retrying), newest last; Running of them are running.
	Active  []string
	Running int
	// Session is that of the newest active run.
	Session string
	// RunsToday of the owner in the last 24 hours; counted only for owners that are not operators.
	RunsToday int
	// Ran are the runs of the slots that EnqueueParams.Slots names, in no order; empty in a claim.
	Ran []SlotRun
}

// AddActive adds an active run of the job, the oldest first.
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

// Verdict is what happens to one due job.
type Verdict struct {
	JobID string
	// Invalid, if set, stores why the row cannot be understood; the job does not fire any more and nothing else of the verdict counts.
	Invalid string
	// Runs are executed: their messages go into the inbox. Rows are recorded only (skipped, missed).
	Runs []Launch
	Rows []Run
	// Cancel are active runs that are stopped for a new one (cancel_previous).
	Cancel []string
	// State is stored: Next, NextRunAt, Fired, and for jobs that will not fire any more Enabled false.
	Next, NextRunAt    time.Time
	Fired              int
	Disable            bool
	ConsecutiveSkipped int
}

// Launch is a run with its message.
type Launch struct {
	Run     Run
	Message chat.Message
	// Exists: nothing is made. EnqueueRuns counts the run among those that exist; in a claim it is of no use.
	Exists bool
}

// Claimed is what a claim made.
type Claimed struct {
	Now time.Time
	// Launched runs with the ownership of their sessions: those that are Mine are for the caller to submit; others have an owner that
	// finds them (their rows are waiting).
	Launched []Launched
	Recorded []Run
	// Cancelled runs of other verdicts (cancel_previous).
	Cancelled []CancelledRun
	// Finished are the rows that are over, Recorded among them; see [JobStore].
	Finished []Run
	// Jobs as they are now, for events; Resumed are those of them whose pause has ended.
	Jobs, Resumed []Job
	// More: Limit was reached.
	More bool
	// Passed is how many due jobs were passed over because another operation had locked them. They must be claimed soon.
	Passed int
	// Next is the earliest time at which a job or a retry becomes due, as of before the claim; zero = nothing is planned. It may have passed.
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

// EnqueueParams of EnqueueRuns.
type EnqueueParams struct {
	Node    string
	JobID   string
	Visible string
	// Make returns what to launch, given the job, its active runs and the store's clock. A [NotRunError] is an answer as good as any other; other errors are
	// returned.
	Make func(d DueJob, now time.Time) ([]Launch, error)
	// Slots are those whose runs Make needs to know: DueJob.Ran.
	Slots []time.Time
	// New: every run has to be new.
	New            bool
	IdempotencyKey *chat.IdempotencyKey
	Audit          *Audit // its hashes are both that of the configuration that runs
}

// NotRunError is why a job was not run by hand: not-due, disabled or already-running.
type NotRunError string

func (e NotRunError) Error() string { return "not run: " + string(e) }

// Enqueued is what EnqueueRuns made.
type Enqueued struct {
	// Job and Launched are of this call; both are empty when it repeats another.
	Job      Job        `json:"-"`
	Launched []Launched `json:"-"`
	Finished []Run      `json:"-"` // see [JobStore]
	// IDs are the runs that were asked for, as Make gave them; Existing those of them that were there before.
	IDs, Existing []string
	// NotRun, if set, is what Make gave instead.
	NotRun string
}

// Declined takes a [NotRunError] of Make for the answer that it is, and reports whether err was one.
func (e *Enqueued) Declined(err error) bool {
	not, ok := errors.AsType[NotRunError](err)
	e.NotRun = string(not)
	return ok
}

// CancelParams of CancelRuns.
type CancelParams struct {
	RunID, JobID, Visible string
	Reason                Reason
	Note, By              string
	IdempotencyKey        *chat.IdempotencyKey
	Audit                 *Audit // its hashes are those of what the runs were and are
}

// Cancelled is what CancelRuns did.
type Cancelled struct {
	// Runs are those that this call ended or asked to stop; none when it repeats another.
	Runs     []CancelledRun `json:"-"`
	Finished []Run          `json:"-"` // see [JobStore]
	// IDs are those of the runs of the first call.
	IDs []string
}

// CancelledOf is what became of a call that ended runs.
func CancelledOf(runs []CancelledRun) Cancelled {
	c := Cancelled{Runs: runs, IDs: make([]string, 0, len(runs))}
	for _, r := range runs {
		c.IDs = append(c.IDs, r.RunID)
	}
	return c
}

// States are the runs before and after, for the log of changes.
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
	// Running: it was asked to stop and ends when its turn does; Node runs it.
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
	// Changes asks the service, not the store, for the changes of the job JobID from Since on.
	Changes bool
}

// RunPage is a piece of the ledger.
type RunPage struct {
	Runs  []Run
	Total int
	// Changes are the newest first.
	Changes []JobChange
}

// Summary counts jobs and runs.
type Summary struct {
	Jobs, Running, Paused int
	// Backlog is due fires that have not started, OldestDue the age of the oldest; negative = none.
	Backlog   int
	OldestDue time.Duration
	// NextWake is the earliest NextRunAt or retry; zero = nothing is planned.
	NextWake time.Time
}
