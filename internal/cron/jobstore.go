package cron

import (
	"context"
	"time"

	"laneway/internal/chat"
)

// JobStore is what cron needs of the store. Every operation is atomic and safe to retry; all times are the store's. A run that is to be
// executed is a message: the store puts it into the inbox of its session in the same transaction as its ledger row, and from there
// it takes the way of every message (ownership, lane, start, fenced finish, takeover after a crash). So the ledger needs no
// lease of its own: while an attempt runs, its message has an owner.
//
// Attempt n of run R is the message R (n = 1) or R/n. The message's dedupe key is `cron:` and its id.
type JobStore interface {
	// PutJob makes a job, or changes the one with the same owner and key. Change gets the stored job (nil = new) and the store's clock and
	// returns what is to be stored; returning the old one unchanged writes nothing. Errors of Change are returned and nothing is written.
	// The id, key, revision and times of the result are set by Change's caller, package dispatch. chat.ErrLimit when p.MaxOfOwner or p.MaxTotal would be passed.
	PutJob(ctx context.Context, p PutParams) (PutResult, error)
	// ChangeJob changes a job by id; chat.ErrNotFound when there is none that p.Visible may see. A Change that returns nil removes the job; its history stays.
	// When p.CancelActive is set, active runs end as in CancelRuns, in the same transaction.
	ChangeJob(ctx context.Context, p ChangeParams) (Changed, error)
	// Job reads one; chat.ErrNotFound.
	Job(ctx context.Context, id, visible string) (Job, error)
	// Jobs lists, see JobFilter.
	Jobs(ctx context.Context, f JobFilter) (JobPage, error)

	// Claim takes jobs whose NextRunAt is not after now + p.LookAhead, at most p.Limit, in order, passing over those that another process is claiming, and
	// runs that are retrying and due. For each job Decide says what happens; ledger rows, messages and the next slot are written in the same transaction.
	// Jobs whose row cannot be understood are marked invalid and left alone. The statements do not grow with the number of jobs that are not due.
	Claim(ctx context.Context, p ClaimParams) (Claimed, error)
	// EnqueueRuns makes runs by hand (run now, backfill): ledger rows and messages. A run whose id exists is not made again (Existing).
	EnqueueRuns(ctx context.Context, p EnqueueParams) (Enqueued, error)
	// CancelRuns ends active runs: queued and retrying ones at once (cancelled, reason), of running ones the message's stop is recorded (stop_by) as by
	// store.Inbox.Stop. It returns ids and, for running ones, their sessions and nodes. chat.ErrNotFound when p.RunID is unknown.
	CancelRuns(ctx context.Context, p CancelParams) ([]CancelledRun, error)
	// NextWake is the earliest NextRunAt or retry; zero = nothing is planned.
	NextWake(ctx context.Context) (time.Time, error)

	// Runs lists ledger rows, see RunFilter.
	Runs(ctx context.Context, f RunFilter) (RunPage, error)
	// Run reads one row with its attempts; chat.ErrNotFound.
	Run(ctx context.Context, id, visible string) (Run, error)
	// Summary counts for status pages.
	Summary(ctx context.Context, visible string) (Summary, error)
	// Prune deletes at most limit finished rows that are older than before, or beyond keep rows of their job (0 = no bound); the messages and runs of a row go with
	// it. It returns how many went.
	Prune(ctx context.Context, p PruneParams) (int, error)
}

// PutParams of PutJob.
type PutParams struct {
	Owner, Key string
	// MaxOfOwner and MaxTotal bound the number of jobs; 0 = no bound. They only refuse new ones.
	MaxOfOwner, MaxTotal int
	Change               func(old *Job, now time.Time) (*Job, error)
	Audit                *Audit
}

// PutResult of PutJob.
type PutResult struct {
	Job              Job
	Created, Updated bool
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
	By           string
	Audit        *Audit
}

// Changed is what ChangeJob did.
type Changed struct {
	Old     Job
	Job     *Job // nil = removed
	Changed bool
	Ended   []CancelledRun
}

// Audit is one row of the audit log, written in the transaction of the change.
type Audit = chat.Audit

// JobFilter of Jobs. Zero fields do not restrict.
type JobFilter struct {
	Visible       string
	IncludeSystem bool
	Enabled       *bool // fires or does not
	Query         string
	Kind          Kind
	LastState     RunState
	NeverRan      bool // no run has ended yet
	Agent         string
	// SortBy is nextRunAt (default), updatedAt, name or id; jobs without the value come last, ties go by id.
	SortBy        string
	Descending    bool
	Limit, Offset int
}

// LastStateWord is what a store compares its column with: "" = anything, "never" = nothing yet.
func (f JobFilter) LastStateWord() string {
	if f.NeverRan {
		return "never"
	}
	return string(f.LastState)
}

// JobPage is a piece of a list. Revision and Total stay equal until a job is added, changed or removed.
type JobPage struct {
	Jobs     []Job
	Total    int
	Revision string
}

// ClaimParams of Claim.
type ClaimParams struct {
	Node      string
	LookAhead time.Duration
	Limit     int
	// Horizon asks how many jobs are due within it, by the way: [Claimed.Coming]. 0 = do not count.
	Horizon time.Duration
	// Decide is pure: it says what becomes of each due job. It may be called more than once.
	Decide func(now time.Time, due []DueJob) []Verdict
}

// DueJob is a job whose time has come, with what overlap and budget need to know.
type DueJob struct {
	Job Job
	// Active runs of the job (queued, running, retrying), newest last; Running of them are running.
	Active  []string
	Running int
	// RunsToday of the owner in the last 24 hours; counted only for owners that are not operators.
	RunsToday int
}

// Verdict is what happens to one due job.
type Verdict struct {
	JobID string
	// Invalid, if set, stores why the row cannot be understood; the job does not fire any more and nothing else of the verdict counts.
	Invalid string
	// Runs are executed: their messages go into the inbox. Rows are recorded only (skipped, missed).
	Runs []Launch
	Rows []Run
	// Cancel are active runs that make room (cancel_previous).
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
}

// Claimed is what a claim made.
type Claimed struct {
	Now time.Time
	// Launched runs with the ownership of their sessions: those that are Mine are for the caller to submit at Run.FireAt; others have an owner that
	// finds them (their rows are waiting).
	Launched []Launched
	Recorded []Run
	// Cancelled runs of other verdicts (cancel_previous).
	Cancelled []CancelledRun
	// Jobs as they are now, for events.
	Jobs []Job
	// More: Limit was reached.
	More bool
	// Coming is how many jobs were due within the horizon before the claim, at most [MostComing]; paused ones may be among them.
	Coming int
}

// MostComing is how far the jobs within a horizon are counted, so that the count costs the same in front of every burst.
const MostComing = 20_000

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
	// Make says what to launch, given the job, its active runs and the store's clock. chat errors are returned.
	Make func(d DueJob, now time.Time) ([]Launch, error)
	// Force makes runs although a run with outcome ok exists for the slot (backfill).
	Force bool
	Audit *Audit
}

// Enqueued is what EnqueueRuns made.
type Enqueued struct {
	Job      Job
	Launched []Launched
	// Existing are ids that were there before.
	Existing []string
}

// CancelParams of CancelRuns.
type CancelParams struct {
	RunID, JobID, Visible string
	Reason                Reason
	Note, By              string
	Audit                 *Audit
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
}

// RunPage is a piece of the ledger.
type RunPage struct {
	Runs  []Run
	Total int
}

// Summary counts jobs and runs.
type Summary struct {
	Jobs, Running, Paused int
	// Backlog is due fires that have not started, OldestDue the age of the oldest; negative = none.
	Backlog   int
	OldestDue time.Duration
	NextWake  time.Time
}

// PruneParams of Prune.
type PruneParams struct {
	Before time.Time
	Keep   int
	Limit  int
}

// AttemptStart is what Start of a cron message writes into the ledger: the run is running, its attempt has begun.
type AttemptStart struct {
	RunID   string
	Attempt int
	Node    string
}

// AttemptEnd is what Finish of a cron message writes into the ledger and the job, in the same transaction.
type AttemptEnd struct {
	RunID   string
	Attempt Attempt
	// State is the run's outcome, or RunRetrying with NextAttempt, or RunQueued when the attempt was interrupted by a drain and its message waits again.
	State             RunState
	Reason            Reason
	NextAttempt       time.Time
	Error, ErrorClass string
	Summary           string
	Usage             chat.Usage
	Delivery          DeliveryStatus
	SuppressedBy      string
	// Job gets the stored job and the finished run and returns the job's new state, or nil to remove the job (DeleteAfter); not called for retries.
	Job func(old Job, r Run, now time.Time) *Job
}
