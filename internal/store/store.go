// Package store is the port to what is durable: some thirty semantic operations, each atomic, each
// safe to retry as a whole. The adapters below it (postgres, sqlite) hold the only SQL of the code
// base; storetest is the one suite that both pass, and sqlite/sqlitetest opens stores for the tests
// of other packages.
//
// # What it promises
//
//   - Accepted means committed: when [Store.Accept] has returned, a crash cannot lose the message,
//     and the same message offered again (same Dedupe) is the same message.
//   - Every accepted message gets exactly one outcome.
//   - One owner at a time runs a session's turns. Ownership is (owner, epoch) on the session row;
//     owner is the incarnation of a process ([Node]), alive as long as its lease.
//   - Effects are fenced: whatever a turn writes is written in one transaction that first proves
//     that its [Claim] still holds. A claim that does not hold gets [chat.ErrFenced], and nothing
//     is written.
//   - Only the store's clock decides about leases, due times and cutoffs. It is the database's
//     clock, or the one a test injected.
//
// # How a message moves
//
//	Accept            inbox row `waiting`; the session gets this owner if no live node owned it
//	Start             rows `running`, one run row `running`; the sequence numbers are now taken
//	Finish            rows `done` with outcomes, run row ended, transcript, outbox, done_seq; ownership released if nothing is left
//	Finish + Requeue  a drain interrupted the turn: rows `waiting` for another attempt, run row `interrupted`
//	EndWaiting        rows that never became a turn: dropped, superseded, stale, stopped
//	Sweep             rows of sessions without a live owner: taken over, epoch + 1
//
// # Errors
//
// chat.ErrFenced (the claim does not hold), chat.ErrQueueFull, chat.ErrKeyReused, chat.ErrNotFound,
// chat.ErrDraining (this node is declared dead: [Store.Heartbeat] only) and
// chat.ErrStoreUnavailable (the engine cannot be reached, is read-only or out of space; retryable;
// nothing was done) are what a caller can act on. Everything else is a defect.
//
// # Repetition
//
// When the context of an operation ends before the commit, nothing is written. When it ends during
// the commit, or the connection breaks, the commit is unknown ([CommitUnknown]), and the caller
// repeats the operation with the same parameters. If the first call was committed the repetition
// writes nothing and returns its result: Accept returns the message as a duplicate; Start and Join
// return the same result as long as the claim holds; Finish and EndStopping return it also when the
// claim has ended since. So no caller needs to read rows to learn the result.
//
// The caller marks a repeated EndWaiting with [EndParams].Again: the result then includes messages
// that already have this outcome.
//
// The repetition of a Finish is recognised by claim, run, state, cause and transcript, whose
// entries have the run's id. Another Finish of an ended run gets ErrFenced. A Start that finds its
// run running returns no [Started.Job]; the functions of a [cron.AttemptEnd] are not called a
// second time.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// ErrSchema is wrapped when the schema of the database does not fit this program.
var ErrSchema = errors.New("the schema does not fit this program")

// Store is the port. It is safe for concurrent use.
//
// A read that returns rows with text is bounded in bytes, see [ReadBytes]. No operation of this
// port takes a function. Some operations of cron.JobStore do; their comments define what the
// function may do.
type Store interface {
	Admin
	cron.JobStore

	// Ping returns nil when the store is usable, else an error with the reason (unreachable,
	// read-only). It returns within the context. An error that wraps [ErrSchema] means that the
	// schema lacks a step that this program needs. A newer schema is not an error: steps only
	// extend it.
	Ping(ctx context.Context) error

	// Processes, as far as the ownership protocol concerns them.

	// Register creates a new incarnation with a lease. With Exclusive, every other node is declared
	// dead at once: the caller ensures that no other process can use this store (by the lock on a
	// data directory).
	Register(ctx context.Context, n Node) error
	// Heartbeat extends the lease if it is still valid, by the store's clock. chat.ErrFenced: this
	// incarnation is dead; the caller cancels everything and registers a new one. The result has
	// the stop requests for runs that this node owns, and the names of the leases that it still
	// holds. draining marks the node: from then on it accepts without taking ownership. It uses a
	// connection of its own and never waits for the pool.
	Heartbeat(ctx context.Context, nodeID string, draining bool) (Beat, error)
	// Unregister is the clean stop: it releases the ownership of all sessions and leases of the
	// node and deletes the node row. A run that is still running keeps its state; the next owner
	// counts no crash for it. Idempotent.
	Unregister(ctx context.Context, nodeID string) error
	// Cluster lists the live nodes, those that have crashed, and the existing named leases.
	Cluster(ctx context.Context) (Cluster, error)
	// Unowned counts, by agent, the work that waits for agents that no live node has: messages of
	// sessions without a live owner, due jobs, due retries. Work of the gateway itself is not
	// counted: every node takes it.
	Unowned(ctx context.Context) (map[string]Unowned, error)
	// TakenRows lists the rows that nodes have taken and not ended, of each kind the longest taken
	// first, at most 1000.
	TakenRows(ctx context.Context) ([]TakenRow, error)
	// AcquireLease takes the named lease if no live node holds it, or confirms that nodeID holds
	// it. The epoch grows with each new holder. ok is false when another live node holds it.
	AcquireLease(ctx context.Context, name, nodeID string) (l Lease, ok bool, err error)
	// ReleaseLease releases the lease; a no-op when the claim is not current.
	ReleaseLease(ctx context.Context, l Lease) error

	// The life of a message from Accept to its outcome.

	// Accept makes a message durable, see [AcceptParams]. Sequence numbers of a session have no
	// gaps: a refused message or a duplicate does not use one. chat.ErrQueueFull: the queue is at
	// Cap and DropNew is set. chat.ErrKeyReused: Dedupe or MessageID exists with another
	// ParamsHash or under another Dedupe.
	Accept(ctx context.Context, p AcceptParams) (Accepted, error)
	// Start turns waiting messages into a run. Messages that have an outcome meanwhile are left
	// out; when no message remains, nothing is written and Started.Seqs is empty. A run that exists
	// (an earlier attempt) continues with attempt + 1. started_at of a first attempt is never later
	// than that of a first attempt with higher sequence numbers in the same session: first in,
	// first out holds in the table even when two Starts commit in the other order. chat.ErrFenced
	// as usual.
	Start(ctx context.Context, p StartParams) (Started, error)
	// Begin decides by [scheduler.Next] what the session of a claim does with a slot, and starts the
	// turn in the same transaction. It starts none while the window of the first messages is open
	// (Wait), when the turn is not for the slot (Next), or when nothing may start. A repetition
	// whose first call was committed returns the same run. chat.ErrFenced as usual.
	Begin(ctx context.Context, p BeginParams) (Begun, error)
	// Join adds waiting messages to a running run (mode steer): they run with it, in later attempts
	// too, and end merged into its leading message. Seqs are the messages, Transcript their
	// entries. It returns the messages that joined: none before which another message waits.
	// chat.ErrFenced: the run has ended.
	Join(ctx context.Context, p StartParams) ([]int64, error)
	// Finish ends a run, see [FinishParams]. chat.ErrFenced: the claim does not hold, or another
	// call has ended the run.
	Finish(ctx context.Context, p FinishParams) (Finished, error)
	// EndStopping ends a run that was finished with StillRunning: its goroutine has returned.
	// Idempotent.
	EndStopping(ctx context.Context, c Claim, runID string) error
	// EndWaiting gives waiting messages an outcome. Messages that have an outcome or run are left
	// unchanged. It returns the messages that it ended; a repetition (Again) returns the same ones.
	// It needs no claim: no process runs a waiting message, so every node may end it.
	EndWaiting(ctx context.Context, p EndParams) ([]Waiting, error)
	// Stop records a stop, see [StopParams]. It uses the control connection.
	Stop(ctx context.Context, p StopParams) (Stopped, error)
	// Sweep takes over at most Limit sessions that have unfinished messages, no live owner, no open
	// debounce window, and an agent of the node. Each gets epoch + 1 and owner Node; its runs are
	// interrupted, and their messages wait again. Work for another agent is left to a node that has
	// it. Each running run counts one more crash, unless its owner left cleanly. Concurrent sweepers
	// skip each other's rows. Expired nodes without unfinished work are deleted after an hour.
	Sweep(ctx context.Context, p SweepParams) ([]Front, error)
	// Fronts reads what waits first in sessions of a node; sessions in which nothing waits are left
	// out. A page has its sessions in the order of their keys.
	Fronts(ctx context.Context, p FrontsParams) ([]Front, error)
	// MessageByID finds a message by its id; chat.ErrNotFound.
	MessageByID(ctx context.Context, id string) (Waiting, error)
	// FilesOfRuns lists the files of the messages of runs of a session, by run and in the order of
	// the messages. The result omits runs without files, runs of another session, and runs whose
	// messages the retention deleted. Runs of jobs have no files.
	FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error)
	// PendingInputs lists messages of a session that are accepted and not yet run and whose
	// sequence number is above after, oldest first, at most limit and at most [ReadBytes]. It also
	// returns the number of all of them; [Counted] + 1 means that there are more. The list is empty
	// only when no such message exists.
	PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]Waiting, int, error)
	// WaitingOf counts the messages of a principal that wait in sessions of a node, at most one more
	// than most.
	WaitingOf(ctx context.Context, nodeID, principal string, most int) (int, error)
	// RunByID reads a run; chat.ErrNotFound.
	RunByID(ctx context.Context, id string) (Run, error)

	// The journal: what the models of running turns requested and the results. It spans all attempts
	// of a run and is removed when the run ends ([FinishParams].Journal).

	// Record commits the request of a model ([AskedRow]), or the result of a call of a recorded
	// round ([ResultRow]). A recorded row never changes: recording it again is a no-op, so a
	// repetition after an unknown commit is harmless. chat.ErrFenced: the run does not run under
	// this claim.
	Record(ctx context.Context, c Claim, runID string, row JournalRow) error
	// RecordPreview commits what shows the unfinished answer of a run, in the form of its channel:
	// later attempts get it as [Started].Preview. chat.ErrFenced as for Record.
	RecordPreview(ctx context.Context, c Claim, runID, preview string) error
	// RecordOutside commits that the agent of a run has read text from outside by its own tools:
	// later attempts get it as [Started].Outside. chat.ErrFenced as for Record.
	RecordOutside(ctx context.Context, c Claim, runID string) error
	// RecordProgram commits which process works for a run: the next attempt gets it as
	// [Started].Program. chat.ErrFenced as for Record.
	RecordProgram(ctx context.Context, c Claim, runID string, p chat.Program) error
	// Rounds reads the recorded rounds of a run in order; empty when the run has no journal. The
	// caller bounds what it records for a run to less than [ReadBytes].
	Rounds(ctx context.Context, runID string) ([]Round, error)

	// Turns, which users call runs: a message that leads a turn, or would lead one, with its run.
	// Messages that share the turn of another are not listed.

	// Turns lists turns without an outcome by age, oldest first, and those with an outcome by their
	// end, newest first.
	Turns(ctx context.Context, f TurnFilter) ([]Turn, error)

	// Sub-turns: messages that running turns have requested. They are messages like all others;
	// these operations maintain the parent run of a message and the root run of its tree.

	// Spawn accepts the message of a sub-turn under the fence of its running parent. A repetition
	// returns the existing message as a duplicate, whatever the bounds are. [ErrManyChildren],
	// [ErrManyInTree]: a bound is reached. [ErrRunStops]: the parent was stopped. So a stop that first
	// marks the parent and then lists its sub-turns misses none. chat.ErrFenced: the parent does not
	// run under the claim.
	Spawn(ctx context.Context, p SpawnParams) (Accepted, error)
	// Yield records that a run waits for sub-turns and has no slot ([RunYielded]), or that it has
	// one again ([RunRunning]). chat.ErrFenced: it does not run under the claim. Idempotent.
	Yield(ctx context.Context, c Claim, runID string, away bool) error
	// Tasks lists sub-turns, newest first; with Left the oldest first.
	Tasks(ctx context.Context, f TaskFilter) ([]Task, error)
	// Announced records that the end of a sub-turn is announced, or needs no announcement.
	// Idempotent.
	Announced(ctx context.Context, id string) error

	// Questions to persons. An allowed call is durable from the answer on: the node that received the
	// answer makes the call; if that node dies, another one does. An answer for which a turn waits is
	// useless without that turn, so its question ends with it.

	// PutQuestion stores an open question for its life. A question whose ID exists is left
	// unchanged. [ErrQuestionsFull]: nothing was stored; questions of turns whose node has died do
	// not count.
	PutQuestion(ctx context.Context, q Question) error
	// Question reads a question; chat.ErrNotFound.
	Question(ctx context.Context, id string) (Question, error)
	// OpenQuestions lists at most limit questions of a person that can be answered, the oldest
	// first; owner "" = of all persons.
	OpenQuestions(ctx context.Context, owner string, limit int) ([]Question, error)
	// AnswerQuestion answers an open question and returns it. Repeating the same answer returns the
	// current question. chat.ErrNotFound: this person has no such question, it has expired, it has
	// another answer, or the turn that waited has ended.
	AnswerQuestion(ctx context.Context, a AnswerQuestion) (Question, error)
	// Approvals lists the approvals of a person for the current transcript of a conversation, the
	// oldest first, at most [chat.MaxApprovals].
	Approvals(ctx context.Context, owner string, key chat.SessionKey) ([]chat.Approval, error)
	// Revoke removes one approval, or all with id "", and returns how many it removed.
	Revoke(ctx context.Context, owner string, key chat.SessionKey, id string) (int, error)
	// CloseQuestion ends the wait of a turn: an open question cannot be answered any more. It
	// returns the question as it is then; chat.ErrNotFound.
	CloseQuestion(ctx context.Context, id string) (Question, error)
	// EndQuestion stores the result of an allowed call. first is false when a result exists
	// already; that one is kept.
	EndQuestion(ctx context.Context, id string, result chat.ToolResult) (first bool, err error)
	// TakeQuestions assigns to the node at most Limit allowed calls that no process makes: their
	// node has died, or is this one, which does not know them because the reply to the commit that
	// gave it the call was lost.
	TakeQuestions(ctx context.Context, p TakeQuestionsParams) ([]Question, error)

	// Conversations and their transcripts.

	// Session reads a session; chat.ErrSessionNotFound. Visible restricts to sessions of that
	// principal; "" = all.
	Session(ctx context.Context, key chat.SessionKey, visible string) (Session, error)
	// ListSessions lists newest first (or by last message). At most [ReadBytes] of notes, previews
	// and errors; a search does not hold more rows than it returns. The number of matching sessions
	// is counted as far as [SessionFilter.Bounds] says.
	ListSessions(ctx context.Context, f SessionFilter) ([]Session, int, error)
	// Transcript reads entries of a transcript, at most [ReadBytes] or MaxBytes, see
	// [TranscriptQuery]. The transcript of an unknown session is empty, except for what a deletion
	// kept.
	Transcript(ctx context.Context, q TranscriptQuery) (Transcript, error)
	// AppendTranscript adds entries outside of a run (commands, delivered replies); it creates the
	// session if needed and returns the entries with Seq and At.
	AppendTranscript(ctx context.Context, key chat.SessionKey, principal string, entries []chat.TranscriptEntry) ([]chat.TranscriptEntry, error)
	// AppendSummary adds a summary to the current transcript and makes it the newest one, see
	// [SummaryParams]. added is false, and nothing changes, when the transcript is not current any
	// more or a summary already covers the last row: only one of two concurrent writers succeeds. A
	// run whose summary is the newest one receives it again.
	AppendSummary(ctx context.Context, p SummaryParams) (e chat.TranscriptEntry, added bool, err error)
	// NameSessions makes hooks, by their principals, name sessions. A session that does not exist is
	// created for the first of them, and is not listed before its first entry. A name has its time
	// from the first process that had it. Names that no live process has end, and with the last name
	// of a session, of hooks and jobs, the session if it has no entry.
	NameSessions(ctx context.Context, names map[string]chat.SessionKey) error
	// AppendReply adds one entry as the delivery of a reply, see [ReplyParams]. A repetition with
	// the same ID adds nothing and returns the existing entry, also when the transcript was
	// archived meanwhile. chat.ErrSessionNotFound: the session belongs to another principal, and
	// Own is set or it is younger than the name of Job.
	AppendReply(ctx context.Context, p ReplyParams) (Replied, error)
	// ResetSession archives the transcript and begins an empty one under NewID; the session is
	// created if needed. Messages and runs are not changed (stop them first), but a run that
	// finishes later writes into the archived transcript. Idempotent for the same NewID. With
	// IdempotencyKey, a repetition changes nothing and returns the transcript that the first call
	// began, with Key and SessionID only.
	ResetSession(ctx context.Context, p ResetParams) (Session, error)
	// DeleteSession removes the session, the sessions of its sub-turns and compactions, and those
	// below these; with their transcripts, unless these are to be kept. Waiting messages end
	// stopped, outgoing ones end deleted. The remaining rows (ids, numbers, usage) have no content.
	// chat.ErrConflict: the current transcript is not ExpectID, or a run of one of the sessions is
	// running. For an unknown session Deleted is false. With IdempotencyKey, a repetition changes
	// nothing and returns the result of the first call.
	DeleteSession(ctx context.Context, p DeleteParams) (Deleted, error)
	// SetSession changes the choices of persons for a session; it creates the session if needed.
	SetSession(ctx context.Context, key chat.SessionKey, principal string, set SessionSettings) error
	// GiveSession transfers a session from one owner to another. It is a no-op when the session
	// does not exist or belongs to another principal than from.
	GiveSession(ctx context.Context, key chat.SessionKey, from, to string) error

	// The sessions that agents keep of conversations. Each belongs to one transcript: the reset or the
	// deletion of a conversation removes it.

	// AgentSession is the session of the agent for the current transcript of a conversation, or the
	// zero value when none is stored.
	AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error)
	// PutAgentSession replaces the stored session. A session with the id of the stored one keeps
	// its transcript, because its turn may end after a reset. For a deleted conversation nothing is
	// stored.
	PutAgentSession(ctx context.Context, key chat.SessionKey, s chat.AgentSession) error

	// Search finds entries of transcripts by their words. It covers the current and the archived
	// transcripts of existing sessions, except those of the gateway's own jobs. Transcripts that a
	// deletion kept are not covered. A search reads the index and, for entries that are not indexed
	// yet, the transcripts themselves. So its result does not depend on when IndexTranscripts ran. The
	// entries of deleted transcripts leave the index in the transaction that deletes them.

	// SearchTranscripts finds entries, see [SearchQuery].
	SearchTranscripts(ctx context.Context, q SearchQuery) (SearchResult, error)
	// IndexTranscripts adds all missing entries to the index in batches, each in a transaction of
	// its own. It checks ctx between them; committed batches stay. It returns how many entries it
	// has added. Several processes may call it at once.
	IndexTranscripts(ctx context.Context) (int, error)

	// The table of contents of conversations, by day, week and month. It covers the sessions that have
	// an owner, except the gateway's own sessions and those of single cron runs and sub-turns. So a
	// run that is a row of the ledger is never a part.
	//
	// Summaries are deleted with their sources: the deletion of a session removes its parts in the
	// same transaction, and the summaries of their weeks and months, which are then due again. The
	// same happens when a session is given to another owner, which receives its parts.

	// TocBehind lists at most limit sessions whose first entry that no part covers is older than
	// before, ordered by the time of that entry, the oldest first.
	TocBehind(ctx context.Context, before time.Time, limit int) ([]TocBehind, error)
	// TocEntries reads the entries of all transcripts of a session after a number, ascending, at
	// most limit and at most [ReadBytes] or maxBytes.
	TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) ([]TocEntry, error)
	// PutTocPart adds entries to the part of their day, see [TocPart]. added is false, and nothing
	// changes, when another call has moved past p.After, or the entries or the owner no longer
	// match the session. The week and the month of the day become due.
	PutTocPart(ctx context.Context, p TocPart) (added bool, err error)
	// TocDue lists at most limit weeks or months, up to a period, whose summaries are missing or
	// outdated, the oldest first.
	TocDue(ctx context.Context, level TocLevel, upto string, limit int) ([]TocRef, error)
	// BeginTocNode records that the summary of a week or a month is being made; data read
	// afterwards may be used for it. ok is false when it is no longer due, or another call began it
	// less than [TocClaimTime] ago.
	BeginTocNode(ctx context.Context, ref TocRef, claim string) (ok bool, err error)
	// EndTocNode stores the summary of a week or a month. ok is false, and nothing changes, when
	// its sources have changed since BeginTocNode, or another call has begun it since. text ""
	// means that no sources are left: the summary is removed.
	EndTocNode(ctx context.Context, ref TocRef, claim, text string) (ok bool, err error)
	// Toc reads summaries, the newest period first; within a period by owner and session. At most
	// [ReadBytes].
	Toc(ctx context.Context, q TocQuery) ([]TocNode, error)

	// Outgoing messages.

	// Enqueue adds outgoing messages outside of a run (notices, command replies). A row whose
	// (RunID, N) exists is left unchanged. A row with Coalesce raises the count of the pending row
	// of the same session and word, if one exists whose first attempt has not begun.
	Enqueue(ctx context.Context, rows []Outgoing) error
	// ClaimOutgoing leases at most Limit due messages for the named channels to the node, oldest
	// first: at most one per (channel, chat), and none for a chat with a message being sent. A row
	// that waits for another attempt holds back later rows of its chat, so that a chat reads in
	// order; a row that waits for its first attempt (Delay) does not. A row with [Outgoing].First
	// is due at once for that node, and after [FirstTime] for the others. Rows of dead nodes are
	// due again, with MaybeSent set. So are rows of the node that are Unrecorded. A row of the node
	// that is neither Sending nor Unrecorded was claimed by a call whose result was lost: it is due
	// as before that call. A row with Quiet that was never tried, of a chat whose quiet hours it is,
	// is not returned: it waits until they end, and expires at least an hour later; the rows that
	// it supersedes end. Rows past ExpiresAt end expired and are returned with Expired set; one of
	// which a person may have seen a part, see [Outgoing.PartlySeen], is leased, and its node ends it.
	ClaimOutgoing(ctx context.Context, p ClaimOutgoingParams) ([]Outgoing, error)
	// Delivered stores the provider's id and makes the row delivered. With Shown it adds the entry
	// in the same transaction, and returns it; else nil. chat.ErrFenced: the row is no longer
	// leased to the node, and nothing is changed.
	Delivered(ctx context.Context, p DeliveredParams) (*ShownEntry, error)
	// RecordProgress stores what part of a row has arrived, in the form of its channel, and the
	// messages that show it. chat.ErrFenced: the row is no longer leased to nodeID.
	RecordProgress(ctx context.Context, nodeID, id, progress string, parts []chat.Part) error
	// SentMessage finds the row that a message in a chat shows. chat.ErrNotFound: no row of this
	// chat is known for it, or the content of the row was deleted.
	SentMessage(ctx context.Context, in chat.Target, message string) (SentMessage, error)
	// Undelivered makes the row due for a later attempt, or ends it (Permanent). With Gone it
	// pauses the delivery of the job in the same transaction, and with Shown it adds the entry.
	// chat.ErrFenced: the row is no longer leased to the node, and nothing is changed.
	Undelivered(ctx context.Context, p UndeliveredParams) (Gone, error)
	// OutboxCounts counts the rows that wait, have failed or may have arrived, by channel. Those that
	// wait for the end of quiet hours do not count.
	OutboxCounts(ctx context.Context) (map[string]OutboxCount, error)

	// The results of calls with an idempotency key. The operations that take a chat.IdempotencyKey
	// write the record in the transaction of their effect.

	// IdempotencyRecord is the result of the first call with this key, as JSON of the operation's
	// result; nil when no call was made within [IdempotencyTTL]. chat.ErrKeyReused: the first call
	// had other parameters.
	IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (json.RawMessage, error)
	// Audit adds one row to the audit log, for a change outside of the store.
	Audit(ctx context.Context, a chat.Audit) error

	// Deletion of history that is too old.

	// Prune deletes about p.Limit rows of one kind, see [Prunable], in a transaction of its own. It
	// returns how many it deleted; 0 when no more exist.
	Prune(ctx context.Context, p PruneParams) (int, error)
	// Passed lists at most limit sessions with names from [chat.SessionKey.Passing] whose messages
	// have all ended, none of them within the last duration.
	Passed(ctx context.Context, ago time.Duration, limit int) ([]chat.SessionKey, error)
	// FilesInUse lists the paths of files, relative to the attachment directory, that a message
	// without an outcome or an unfinished outgoing message names. The order is undefined; a path
	// may occur twice.
	FilesInUse(ctx context.Context) ([]string, error)
	// FilesNamed returns the subset of paths that any message or unfinished outgoing message names.
	// It reads the whole inbox.
	FilesNamed(ctx context.Context, paths []string) ([]string, error)
	// Compact frees the space of deleted rows. It blocks no writer for longer than a usual
	// transaction, checks its context between the steps, and returns a report.
	Compact(ctx context.Context) (report string, err error)

	// When people are reached: the time zones that principals chose, and the quiet hours of chats. A
	// choice outlives their sessions.

	// ZoneOf is the zone of a principal, as given to SetZone; "" when it chose none.
	ZoneOf(ctx context.Context, principal string) (string, error)
	// SetZone records a choice; "" removes it. The caller has checked that the zone exists.
	SetZone(ctx context.Context, principal, zone string) error
	// QuietHours are those of the chat of an address, in all its threads and with all bots of its
	// network; ok is false when it has none.
	QuietHours(ctx context.Context, at chat.Target) (q schedule.Quiet, ok bool, err error)
	// SetQuietHours records a choice, nil removes it. What waits in the chat is due at once, and
	// waits again if it is in the new hours. Their zone is that of principal, if it has chosen one,
	// also later; "" = the zone of q.
	SetQuietHours(ctx context.Context, at chat.Target, q *schedule.Quiet, principal string) error

	// The measured ratios of tokens, so that a restart does not begin with estimates that are too
	// high.

	// TokenRatios lists all ratios by endpoint and model.
	TokenRatios(ctx context.Context) ([]TokenRatio, error)
	// SaveTokenRatios stores ratios; those of the same endpoint and model are replaced.
	SaveTokenRatios(ctx context.Context, list []TokenRatio) error
}

// Admin is what commands use of a store, also beside a gateway that uses it.
type Admin interface {
	// Kind is "sqlite" or "postgres". Status pages show it instead of a path or an address.
	Kind() string
	// Now is the store's clock.
	Now(ctx context.Context) (time.Time, error)
	// Close waits for the operations in progress and ends every goroutine of the store.
	Close() error

	// Named tokens. Every change writes one row of the audit log in the same transaction.

	// Credentials lists all tokens by name, expired ones included.
	Credentials(ctx context.Context) ([]Credential, error)
	// CreateCredential adds a token. chat.ErrConflict: the name or the secret is taken.
	CreateCredential(ctx context.Context, c Credential, by ChangedBy) error
	// RevokeCredential removes a token. chat.ErrNotFound: no token has this name.
	RevokeCredential(ctx context.Context, name string, by ChangedBy) error

	// Hold reads the hold; nil when the gateway is not held.
	Hold(ctx context.Context) (*Hold, error)
	// SetHold holds the gateway; an existing hold stays unchanged. The store sets Since. nil
	// releases the hold, and is a no-op when the gateway is not held.
	SetHold(ctx context.Context, h *Hold, by ChangedBy) error
	// Held counts the work that waits for the release.
	Held(ctx context.Context) (HeldWork, error)

	// Rehearse accepts a message and starts its turn under a key that no session has, and rolls
	// both back. It notifies no process.
	Rehearse(ctx context.Context) error
	// Violations runs one rule in a read-only transaction and returns the first limit rows as
	// strings: the rule's id, then the location. values has a value for every name in
	// [Invariant.Params].
	Violations(ctx context.Context, rule Invariant, values map[string]any, limit int) ([][]string, error)
}

// HintedAfter is how long after a node has accepted a message a page of [Store].Fronts has it for the
// same node.
const HintedAfter = time.Second

// IdempotencyTTL is how long the result of a call with an idempotency key is kept.
const IdempotencyTTL = 24 * time.Hour

// CommitUnknown reports whether an error leaves open whether the operation was committed. Every
// operation may be repeated as a whole.
func CommitUnknown(err error) bool {
	return errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// EndedRun is what a store reads about a run that [Store].Finish finds ended.
type EndedRun struct {
	Run Run
	// Owner and Epoch are the current ones of the session; zero when the session was deleted.
	Owner string
	Epoch int64
	// Entries are the newest transcript entries of the run, oldest first, as many as the call has
	// in FinishParams.Transcript.
	Entries []chat.TranscriptEntry
	// Merged are the messages of the run that ended merged.
	Merged []Waiting
}

// Repeats returns the result of the first call when p repeats the call that ended the run: the same
// claim, run, state, cause and transcript. ok is false when another call ended it. now is the
// store's clock.
func (p *FinishParams) Repeats(e EndedRun, now time.Time) (out Finished, ok bool) {
	r := e.Run
	same := r.Session == p.Session && r.Owner == p.Node && r.Epoch == p.Epoch && r.Cause == p.Cause && p.ended(r.State) &&
		slices.EqualFunc(e.Entries, p.Transcript, func(a, b chat.TranscriptEntry) bool { return a.Role == b.Role && a.Text == b.Text })
	if !same || p.Requeue && e.Epoch != p.Epoch { // a takeover interrupts a run as well
		return Finished{}, false
	}
	out = Finished{EndedAt: r.EndedAt, Released: e.Owner == "" || e.Epoch != p.Epoch, Entries: e.Entries, Merged: e.Merged}
	if out.EndedAt.IsZero() {
		out.EndedAt = now
	}
	return out, true
}

// ended reports whether p leads to this state of the run. A run that was finished with StillRunning
// is stopping until EndStopping.
func (p *FinishParams) ended(state string) bool {
	if p.StillRunning {
		return state == RunStopping || state == RunStopped
	}
	return state == p.State
}

// AnswerOf returns the result of the first call with an idempotency key, which read reads
// ([IdempotencyRecords]); the zero value when no call was made or o is nil.
func AnswerOf[T any](
	ctx context.Context, read func(context.Context, chat.IdempotencyKey) (json.RawMessage, error), o *chat.IdempotencyKey,
) (out T, err error) {
	if o == nil {
		return out, nil
	}
	raw, err := read(ctx, *o)
	if err != nil || raw == nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("reading the recorded result of %s: %w", o.Method, err)
	}
	return out, nil
}

// Meets selects what a stop ends: running runs and waiting messages of the session, both given
// oldest first. named is the run that its id names.
func (p *StopParams) Meets(running []Run, waiting []Waiting, named string) (runs []Run, messages []Waiting, err error) {
	switch p.Scope {
	case StopAll:
		return running, waiting, nil
	case StopRun:
		for _, r := range running {
			if r.ID == named {
				runs = append(runs, r)
			}
		}
		for _, m := range waiting {
			if m.MessageID == p.MessageID {
				messages = append(messages, m)
			}
		}
		return runs, messages, nil
	case StopOne:
		for _, r := range running {
			if r.StopBy == "" {
				return []Run{r}, nil, nil
			}
		}
		return nil, waiting, nil
	default:
		return nil, nil, chat.Errorf(chat.CodeInvalid, "unknown stop scope %q: want one, run or all", p.Scope)
	}
}

// StopCause is a string that carries the reason of a stop and its requester: in the cause of a
// cancelled turn, and through the store to the process that runs the stopped turn and to its next
// attempt.
func StopCause(reason, who string) string { return reason + " " + who }

// StopReason is the reason in a string that StopCause made. A name alone, as older versions have
// stored it, is a plain stop.
func StopReason(cause string) string {
	reason, _, ok := strings.Cut(cause, " ")
	if !ok {
		return ReasonStop
	}
	return reason
}

// ReasonStop is the reason of a stop that a person or a caller asked for.
const ReasonStop = "stop"
