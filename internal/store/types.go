package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
)

// States of an inbox row.
const (
	StateWaiting = "waiting" // waits for a turn
	StateRunning = "running"
	StateDone    = "done" // has an outcome
)

// States of a run row. Interrupted runs with unfinished messages run again.
const (
	RunRunning     = "running"
	RunYielded     = "yielded"  // waits for sub-turns and has no slot
	RunStopping    = "stopping" // stopped, outcome written, goroutine still running
	RunOK          = "ok"
	RunFailed      = "failed"
	RunStopped     = "stopped"
	RunInterrupted = "interrupted"
	RunDead        = "dead"
)

// ReasonSuperseded is the reason of a message that ended because another one interrupted it.
const ReasonSuperseded = "superseded"

// MaxCrashes is how many crashes of its process a message may cause before its outcome is dead.
const MaxCrashes = 3

// Node is one incarnation of a gateway process: a new id at every start.
type Node struct {
	ID, Addr, Version string
	// Lease is how long the node counts as alive without a heartbeat; 0 = 15 s.
	Lease     time.Duration
	Exclusive bool
	// Fires: the process fires jobs. While no node does, the cluster has an outage, see
	// cron.History.
	Fires bool
	// Agents are the agents of the process; nil = all.
	Agents []string
}

// TakenRow is a row that a node has taken. A row that is taken again is another one.
type TakenRow struct {
	Kind string // what it is, in words: one of the constants
	// ID is that of the row, for a message the key of its session. Attempt is that of the row, for a
	// message its number.
	ID, Node string
	Attempt  int64
}

// The kinds of taken rows. A turn that runs and the first message of a session without an open run
// are taken for as long as it takes, so only their node can tell whether it has them.
const (
	TakenDelivery = "delivery"
	TakenCall     = "allowed call"
	TakenTurn     = "turn"
	TakenStopping = "stopped turn"
	TakenMessage  = "message"
)

// Unowned counts the work that waits for an agent that no live node has.
type Unowned struct{ Messages, Jobs int }

// UnownedCure is what an operator can do about unowned work.
const UnownedCure = "start a gateway that has the agent in its configuration, or reset the sessions and disable the jobs"

// Sentence names the work and the agent.
func (u Unowned) Sentence(agent string) string {
	var what []string
	if u.Messages > 0 {
		what = append(what, CountWaiting(u.Messages, "message"))
	}
	if u.Jobs > 0 {
		what = append(what, CountWaiting(u.Jobs, "job"))
	}
	return fmt.Sprintf("agent %s: %s for it, and no running gateway has it", agent, strings.Join(what, " and "))
}

// CountWaiting formats a count, as "1 message waits" or "2 messages wait".
func CountWaiting(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " waits"
	}
	return fmt.Sprintf("%d %ss wait", n, noun)
}

// Beat is the result of a heartbeat.
type Beat struct {
	// Now is the store's clock; LeaseUntil is the new end of the lease.
	Now, LeaseUntil time.Time
	// Stops are the stop requests for runs of this node, from any node, with reason and requester.
	Stops []StopRequest
	// Runs are the ids of the runs that the database assigns to this node and that have a slot or
	// are stopping. If the node no longer runs one of them, the database has lost its end.
	Runs []string
	// Leases are the named leases that the node holds.
	Leases []string
	// OtherNodes is how many other nodes are alive.
	OtherNodes int
	// Hold is the hold of the gateway; nil when it is not held.
	Hold *Hold
	// History identifies the commit history of the database. A different value means that the
	// database was restored or failed over, and that commits may be missing. "" when the database
	// does not report it.
	History string
}

// Cluster lists the processes that use the store and the leases.
type Cluster struct {
	// Nodes are the nodes with a valid lease, with their agents, oldest first.
	Nodes []chat.NodeStatus
	// Gone are the names whose last process ended in the last hour without a clean stop, the latest
	// first. A live process of the same name replaces it, and so does one that has started since
	// its last heartbeat: by default a name is new with each start. A process that was draining was
	// asked to stop.
	Gone []chat.GoneNode
	// Leases has the names of all leases that were ever taken; true when a live node holds the
	// lease.
	Leases map[string]bool
}

// StopRequest requests the owner of a run to cancel it.
type StopRequest struct {
	Session chat.SessionKey
	// By is the requester, as given in [StopParams].By.
	RunID, By string
}

// Lease is a named exclusive right (such as polling one bot).
type Lease struct {
	Name, Owner string
	Epoch       int64
}

// Claim is the proof that a write needs: this node owns the session at this epoch.
type Claim struct {
	Session chat.SessionKey
	Node    string
	Epoch   int64
}

// AcceptParams is one message to accept.
type AcceptParams struct {
	// Node is the accepting node. With Take it becomes the owner when it has the agent and no live
	// node owns the session (epoch + 1).
	Node string
	Take bool
	// Message: Session, ID (required here), Lane, Principal, Channel, ExternalID, Dedupe,
	// ParamsHash, Branch, Content. A branch off a deleted conversation fails with chat.ErrNotFound.
	Message chat.Message
	// Queue are the configured settings of the session for this message. The mode that the message
	// asks for, and the mode chosen for the session, take precedence over the configured one.
	// [scheduler.Admit] decides which waiting messages end. MaxConcurrent is stored for the
	// invariant queries. A typed message opens the session's debounce window: until its end, the
	// sweep does not take the session over.
	Queue scheduler.Settings
	// DropNotice is sent once per burst when DropOld ends a message; nil when no notice is sent.
	DropNotice *Outgoing
	// Unqueued messages (executed chat commands) get a sequence number and immediately the outcome
	// answered. They never wait, do not count towards any cap and take no ownership.
	Unqueued bool
	// Own refuses a session that belongs to another principal than the message's:
	// chat.ErrSessionNotFound, and nothing is stored.
	Own bool
	// Named: the principal of the message is a hook that names the session ([Sessions].NameSessions).
	// Own then applies to a session that another principal has made since.
	Named bool
}

// Accepted is a durable message.
type Accepted struct {
	Seq        int64
	AcceptedAt time.Time
	// Owner and Epoch of the session after the accept; Mine when Owner is the accepting node.
	Owner string
	Epoch int64
	Mine  bool
	// SessionID is the current transcript. Principal owns the session. Created: this message
	// created the session.
	SessionID, Principal string
	Created              bool
	// Mode is the stored queue mode of the session.
	Mode chat.QueueMode
	// Behind is how many messages of the session waited when this one was
	// accepted.
	Behind int
	// Duplicate: the message was accepted before. Existing is its row.
	Duplicate bool
	Existing  Waiting
	// Dropped are the messages that end dropped because of this one (DropOld).
	Dropped []Waiting
	// Superseded are the messages that waited when a message in mode interrupt was accepted.
	Superseded []Waiting
}

// RowOf is what the order of a session depends on of a message in a lane. It has no number and no
// time yet.
func RowOf(c *chat.Content, lane string) scheduler.Row {
	return scheduler.Row{
		Sender: c.Sender.ID, Thread: c.Thread, Lane: lane, Size: len(c.Text), Mode: scheduler.QueueMode(c.Options.Mode),
		Typed: c.Options.Typed, Alone: c.Options.NoMerge || len(c.Attachments) > 0, Gathers: c.Options.Task != nil && c.Options.Task.Announces != "",
	}
}

// Front is what a process knows of the messages that wait in a session: the first of them.
type Front struct {
	Session chat.SessionKey
	// ID, Principal and Row are those of the first message. Channel is the one whose settings apply:
	// that of the message, or that at the root of its tree.
	ID, Principal, Channel string
	Row                    scheduler.Row
	// Mode is the mode that was chosen for the session, Waiting is how many messages wait, and Last
	// is the number that the session has given last.
	Mode    chat.QueueMode
	Waiting int
	Last    int64
}

// Front is what a process knows when the message waits first.
func (w *Waiting) Front(mode chat.QueueMode, waiting int, last int64) *Front {
	return &Front{
		Session: w.Session, ID: w.MessageID, Principal: w.Principal, Channel: ChannelOf(w.Channel, &w.Content), Row: w.Row(), Mode: mode, Waiting: waiting, Last: last,
	}
}

// ChannelOf is the channel whose settings apply to a message. A message of a tree has those of the
// channel at the root, because those of a session are those of its newest message.
func ChannelOf(channel string, c *chat.Content) string {
	if t := c.Options.Task; t != nil {
		return cmp.Or(t.Channel, channel)
	}
	return channel
}

// Row is what the order of a session depends on of a message.
func (w *Waiting) Row() scheduler.Row {
	r := RowOf(&w.Content, w.Lane)
	r.Seq, r.RunID, r.Accepted = w.Seq, w.RunID, w.AcceptedAt
	return r
}

// Waiting is one inbox row.
type Waiting struct {
	Session    chat.SessionKey
	Seq        int64
	MessageID  string
	State      string
	Outcome    chat.Outcome
	Reason     string
	RunID      string // of the run that took it; "" while no run has
	MergedInto int64
	Lane       string
	Principal  string
	Channel    string
	ExternalID int64
	Content    chat.Content
	AcceptedAt time.Time
	// CronRun is the row of the ledger that ended because this message ended. Accept, EndWaiting,
	// Stop and DeleteSession set it for a message that was the attempt of a cron run. The run is in
	// state error after outcome failed, interrupted after interrupted or dead, else cancelled with
	// the reason `stopped`. nil when no row ended.
	CronRun *cron.Run
}

// ReplyParams is a reply to deliver into a transcript.
type ReplyParams struct {
	// ID of the reply, never "". A session has at most one entry per ID.
	ID      string
	Session chat.SessionKey
	// Principal owns the session if the delivery creates it. Own refuses a session of another
	// principal. Job is the id of the job whose answer it is, "" for none: a session of another
	// principal that is younger than the job's name for it is refused, too.
	Principal, Job string
	Own            bool
	Entry          chat.TranscriptEntry
}

// Replied is a reply that is in a transcript.
type Replied struct {
	// Entry has its number and time; Principal is the owner of the session.
	Entry     chat.TranscriptEntry
	Principal string
}

// StartParams turns messages into a run.
type StartParams struct {
	Claim
	RunID string
	Lane  string
	// Seqs are the messages, ascending; the last one leads.
	Seqs []int64
	// Cron is set for a message that is an attempt of a cron run, and is written into the ledger as
	// well; nil for other messages.
	Cron *cron.AttemptStart
	// Transcript are the entries of the messages. They are appended on the first attempt only.
	// EntrySeqs has the message of each entry: an entry whose message the call does not take is
	// left out, because another turn has it. nil = all entries are added.
	Transcript []chat.TranscriptEntry
	EntrySeqs  []int64
	// Round, for Join: the journal of the run records the messages as input after the results of
	// this round; 0 when the run has no journal.
	Round int
}

// EntriesOf returns the entries of the taken messages.
func (p *StartParams) EntriesOf(taken []int64) []chat.TranscriptEntry {
	if p.EntrySeqs == nil {
		return p.Transcript
	}
	var list []chat.TranscriptEntry
	for i, seq := range p.EntrySeqs {
		if slices.Contains(taken, seq) {
			list = append(list, p.Transcript[i])
		}
	}
	return list
}

// Started is the result of Start.
type Started struct {
	// Seqs are the messages that the run includes; empty when nothing is left to run.
	Seqs []int64
	// Attempt counts from 1. Crashes counts the earlier attempts whose process died.
	Attempt, Crashes int
	// StopBy is the requester of a stop of an earlier attempt: the caller ends the run as stopped
	// without running it. "" when no stop was requested.
	StopBy    string
	StartedAt time.Time
	// Outside: RecordOutside was called for the run, also in an earlier attempt.
	Outside bool
	// Program is what RecordProgram stored last for the run.
	Program chat.Program
	// Preview is what RecordPreview stored last for the run, also in an earlier attempt; "" =
	// nothing.
	Preview string
	// SessionID is the transcript the run belongs to; Notes are the session's notes.
	SessionID string
	Notes     map[string]string
	// Principal owns the session.
	Principal string
	// Entries are the appended transcript entries with their sequence numbers; empty on later
	// attempts.
	Entries []chat.TranscriptEntry
	// Job is the job of a cron run at the start of the attempt, if the store reads it with the
	// start; nil when the caller must read it.
	Job *cron.Job
}

// BeginParams is a slot for a session.
type BeginParams struct {
	Session chat.SessionKey
	// Node is the process that has the slot, which must own the session.
	Node string
	// Lane and Principal are those for which the slot was given. A turn whose first message has
	// others is not begun.
	Lane, Principal string
	// Settings returns the configured settings of the session, from the newest of the messages that
	// were read.
	Settings func(newest *Waiting) scheduler.Settings
	// Known are the runs of the session that have a goroutine in this process. A running run under
	// the claim that is not among them is the result of a Begin whose response was lost.
	Known []string
	// Inputs are the threads of its running turns that take input.
	Inputs []string
	// Plan makes the run of a batch; false when it needs more than the messages. It is pure, because
	// the transaction may be repeated.
	Plan func(c Claim, batch []Waiting) (p StartParams, ok bool)
}

// Begun is the result of Begin: a turn with RunID, or why none was begun.
type Begun struct {
	// Claim is the right by which the process owns the session.
	Claim    Claim
	RunID    string
	Messages []Waiting
	Started  Started
	// Unplanned are the messages of which Plan needs more.
	Unplanned []Waiting
	// Wait is how long the window of the first messages stays open, by the store's clock.
	Wait time.Duration
	// Next is what waits now, nil = nothing does. Last is the number that the session has given last.
	// A message before Next, or up to Last when none waits, does not wait.
	Next *Front
	Last int64
	// Stopped are the messages that a stop covers; they have ended.
	Stopped []Waiting
}

// FinishParams ends a run.
type FinishParams struct {
	Claim
	RunID string
	// State is RunOK, RunFailed, RunStopped, RunInterrupted or RunDead.
	State string
	// Outcome of the leading message (whose id is RunID, else the one with the highest number). The
	// other messages end merged into it when Outcome is answered, else with the same outcome.
	Outcome chat.Outcome
	// Cause is a word of a closed set (a chat.FailReason, `stop`, `stopall`, `superseded`,
	// `draining`, …); Error a sentence without secrets.
	Cause, Error string
	// Detail is the failure description of the service behind the agent, without secrets; may be
	// empty. Only administrators can read it.
	Detail string
	Usage  chat.Usage
	Asked  chat.Asked
	// Transcript is appended to the transcript with which the run started (the store sets Seq and
	// At).
	Transcript []chat.TranscriptEntry
	// Outgoing rows; RunID and N make them unique. The messages refer to a row of kind notice with
	// notice_id.
	Outgoing []Outgoing
	// Requeue: the messages wait again and the run row ends in State (RunInterrupted). Outcome is
	// ignored.
	Requeue bool
	// Journal: the run may have recorded rounds; they are removed, unless Requeue is set.
	Journal bool
	// StillRunning: the outcome is decided but the goroutine has not returned. The run is
	// `stopping`, keeps the ownership, and ends with EndStopping.
	StillRunning bool
	// Preview is the start of the answer for lists; at most 200 bytes are kept.
	Preview string
	// Outside: the agent has read text from outside by its own tools, or its answer is such text.
	Outside bool
	// Cron is set for a message that is an attempt of a cron run, and closes its ledger row; nil
	// for other messages.
	Cron *cron.AttemptEnd
}

// Finished is the result of Finish.
type Finished struct {
	EndedAt time.Time
	// Released: no work was left, and the session has no owner now.
	Released bool
	// Entries are the transcript entries with their sequence numbers.
	Entries []chat.TranscriptEntry
	// Merged are the messages that ended merged.
	Merged []Waiting
}

// EndParams gives waiting messages an outcome.
type EndParams struct {
	Session chat.SessionKey
	Seqs    []int64
	Outcome chat.Outcome
	Reason  string
	// Notice is sent about the messages; nil when no notice is sent.
	Notice *Outgoing
	// Again: the call is a repetition, and an earlier try may have been committed although its
	// result was lost. Messages of Seqs that already have this outcome and reason are returned as
	// well.
	Again bool
}

// StopScope selects what a stop ends.
type StopScope string

// The scopes.
const (
	StopOne StopScope = "one" // the oldest running run without a stop request, else the oldest waiting messages that would share a turn
	StopRun StopScope = "run" // the run or message named by MessageID, if it belongs to the session
	StopAll StopScope = "all" // everything that the session has accepted so far
)

// SweepParams are the parameters of Sweep.
type SweepParams struct {
	// Node takes over the sessions, at most Limit.
	Node  string
	Limit int
	// Agents are the agents of the node: sessions of other agents are left to nodes that have them.
	// Sessions of the gateway's own jobs need no agent. nil = all.
	Agents []string
}

// StopParams records a stop. Waiting messages end stopped immediately; running runs get stop_by and
// are never run again.
type StopParams struct {
	Session   chat.SessionKey
	Scope     StopScope
	MessageID string
	// By is stored with the runs that are to stop, and reaches their owners unchanged: the
	// requester, after the reason when the owner needs the reason too.
	By     string
	Reason string // stop, stopall, reset, …
	// Queue are the settings of the session, for StopOne: the messages that would share a turn
	// because a person typed them end together.
	Queue scheduler.Settings
	// Again is for how long earlier calls were repeated whose response was lost; 0 = this is the
	// first. The result then includes messages that have ended stopped with this reason since.
	Again time.Duration
}

// Stopped is the result of a stop.
type Stopped struct {
	// Waiting are the waiting messages that ended stopped.
	Waiting []Waiting
	// Running are the running runs whose stop was requested, with the node that runs them.
	Running []RunningRun
	// Cutoff is the session's stop_seq after a StopAll.
	Cutoff int64
}

// RunningRun is a run and where it runs.
type RunningRun struct{ RunID, Node string }

// FrontsParams selects sessions of a node: the named ones, or the next ones.
type FrontsParams struct {
	Node     string
	Sessions []chat.SessionKey
	// After is the last session of the page before, zero = the first page, and Limit is how many.
	// Only messages count that another node accepted, or this one [HintedAfter] ago: the response
	// to its commit was lost.
	After chat.SessionKey
	Limit int
}

// Run is one run row.
type Run struct {
	ID               string
	Session          chat.SessionKey
	SeqFrom, SeqTo   int64
	Lane, Owner      string
	Epoch            int64
	Attempt, Crashes int
	State, Cause     string
	Error, Detail    string // see [FinishParams]
	StopBy           string
	Preview          string // see [Started].Preview
	Outside          bool   // see [FinishParams].Outside
	Program          chat.Program
	QueuedAt         time.Time
	StartedAt        time.Time
	EndedAt          time.Time // zero = not ended
	Usage            chat.Usage
}
