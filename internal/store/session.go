package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// Session is one sessions row.
type Session struct {
	Key                  chat.SessionKey
	SessionID, Principal string
	Lane, Owner          string
	Epoch                int64
	LastSeq, TakenSeq    int64
	DoneSeq, StopSeq     int64
	RunLimit, Waiting    int
	Mode                 chat.QueueMode
	Notes                map[string]string
	CreatedAt, UpdatedAt time.Time
	LastMessageAt        time.Time
	LastRunID, LastState string // of the run that ended last
	LastCause, LastError string
	Preview              string
	TotalTokens          int
	ActiveRuns           []string // ids of running and stopping runs, oldest first
}

// ResetParams are the parameters of ResetSession.
type ResetParams struct {
	Session chat.SessionKey
	// Principal becomes the owner of a session that is created. NewID names the empty transcript.
	Principal, NewID string
	// IdempotencyKey, if not nil, makes a repetition return the first result. Audit, if not nil, is
	// written to the audit log with the change; the store fills in its hashes.
	IdempotencyKey *chat.IdempotencyKey
	Audit          *chat.Audit
}

// DeleteParams are the parameters of DeleteSession.
type DeleteParams struct {
	Session chat.SessionKey
	// ExpectID is the transcript that must be the current one; "" = any.
	ExpectID string
	// KeepTranscript leaves the transcripts in the store, under their ids. They belong to the
	// principal of the deleted session: a later session of the same key does not own them, and its
	// deletion removes them only when it belongs to the same principal.
	KeepTranscript bool
	// Branches also deletes the sessions of its principal that have branched off it. Otherwise they
	// keep the entries that they need: these become part of the session that branched off last, and
	// the other branches then branch off that session.
	Branches bool
	// IdempotencyKey and Audit are as in [ResetParams].
	IdempotencyKey *chat.IdempotencyKey
	Audit          *chat.Audit
}

// Deleted is what DeleteSession did.
type Deleted struct {
	Deleted bool `json:"deleted"`
	// Kept is the id of the current transcript when it was kept; "" when it was not.
	Kept string `json:"kept,omitempty"`
	// Ended are the waiting messages that ended stopped, without their content. A repetition
	// returns none.
	Ended []Waiting `json:"-"`
	// Files are the files that the removed messages named. The caller removes those that no other
	// message names ([Store].FilesNamed). A repetition returns none.
	Files []chat.Attachment `json:"-"`
}

// SessionFilter restricts ListSessions.
type SessionFilter struct {
	Visible, Agent, Search string
	ActiveSince            time.Time
	ByLastMessage          bool
	NoRuns                 bool // without sessions of single cron runs or sub-turns: [chat.SessionKey.OfCronRun], [chat.SessionKey.OfTask]
	Named                  bool // only those whose keys a client has chosen, see [chat.SessionKey.Named], and branches
	Limit, Offset          int  // Limit 0 = 50
	Count                  int  // how far the total counts; 0 = [chat.Counted]
}

// Bounds returns the size of the page, how many sessions it skips, and how far the total counts: as
// far as Count, and at least to the end of the page, so that the total always shows whether another
// page follows. The total most + 1 means that there are more than most.
func (f *SessionFilter) Bounds() (limit, offset, most int) {
	limit, offset = cmp.Or(f.Limit, 50), max(f.Offset, 0)
	return limit, offset, chat.CountTo(f.Count, offset+limit)
}

// SessionSettings are the choices of persons for a session. Mode is its queue mode: "" = default,
// nil = unchanged. Notes are short values by name, such as the model; "" removes one, and other
// names stay unchanged.
type SessionSettings struct {
	Mode  *chat.QueueMode
	Notes map[string]string
}

// TranscriptQuery reads a piece of a transcript. With After > 0 or FromStart it reads forwards
// (at most Limit entries after that sequence number), else backwards from the entry before Before,
// or from the end, skipping Offset entries; entries always come oldest first.
type TranscriptQuery struct {
	Session   chat.SessionKey
	SessionID string // "" = current; another one names an archived transcript of the session, or one that a deletion of an earlier session of this key kept
	RunID     string // only entries of this run; "" = all
	After     int64
	FromStart bool
	Before    int64 // > 0: backwards from here, without Offset
	Limit     int   // 0 = 200
	Offset    int
	// NoCount leaves Total at 0, and LastSeq is then the last number that the session gave to an
	// entry of any of its transcripts. Without it the cost grows with the whole transcript.
	NoCount bool
	// MaxChars > 0 shortens long text in the database to its first MaxChars+1 characters: the
	// last one says that there is more.
	MaxChars int
	// MaxBytes bounds the text of all returned entries together; 0 = [ReadBytes]. A single larger
	// entry is returned alone. Backwards the newest entries are returned, forwards the oldest. A
	// caller continues with Offset + len(Entries), or After = the last Seq, until no entries are
	// returned.
	MaxBytes int
	// Summary asks for the newest summary of the transcript besides the entries.
	Summary bool
	// Shown leaves out what is shown to nobody ([chat.StopSilent]).
	Shown bool
	// Visible restricts transcripts that a deletion kept to those that this principal owned; "" =
	// all. It does not restrict the transcripts of an existing session: the rights of its reader
	// follow from the session.
	Visible string
}

// Readable is the transcript to read, or "" when the caller may read none. A kept transcript
// belongs to its owner, every other one to the session. current is the session's current
// transcript, "" when the session does not exist. owner is the owner of a kept transcript, nil when
// it was not kept.
func (q *TranscriptQuery) Readable(current string, owner *string) string {
	switch {
	case q.SessionID == "" || q.SessionID == current:
		return current
	case owner == nil && current != "", owner != nil && (q.Visible == "" || q.Visible == *owner):
		return q.SessionID
	default:
		return ""
	}
}

// Transcript is a piece of a conversation.
type Transcript struct {
	SessionID string // of the session's current transcript, "" = unknown session
	Entries   []chat.TranscriptEntry
	Total     int
	LastSeq   int64
	// Branches is how many branches lie between it and the transcript with its first entry; 0 = all
	// entries are its own.
	Branches int
	// Summary is the newest summary of a current transcript, if it was requested; zero when none
	// exists.
	Summary chat.TranscriptEntry
}

// SummaryParams are the parameters of AppendSummary.
type SummaryParams struct {
	Session chat.SessionKey
	// SessionID is the summarized transcript.
	SessionID string
	// RunID is the run that made the summary.
	RunID, Text string
	Tokens      int
	Covers      chat.SeqRange
	// Outside: a summarized row contains untrusted content.
	Outside bool
}

// StopSummary is the stop reason of a summary.
const StopSummary = "summary"

// Entry is the row of the summary, without its number and time.
func (p SummaryParams) Entry() chat.TranscriptEntry {
	return chat.TranscriptEntry{
		RunID: p.RunID, Role: chat.RoleSystem, Text: p.Text, Tokens: p.Tokens, StopReason: StopSummary, Covers: p.Covers, Outside: p.Outside,
	}
}

// Prunable is a kind of history that [Retention] deletes.
type Prunable string

// The kinds.
const (
	// PruneMessages: messages that ended before a moment, all messages of a turn together with its
	// run. No transcript is deleted, and nothing unfinished however old. A deleted message can be
	// accepted again, so the moment must lie further back than the longest delay after which a
	// sender repeats a message.
	PruneMessages Prunable = "messages"
	// PruneOutgoing: outgoing messages that were delivered, failed or expired before a moment. It
	// must be called after PruneMessages has returned 0 for the same moment: until then a message
	// may name its notice.
	PruneOutgoing Prunable = "outgoing messages"
	// PruneSessions: sessions that the gateway made for sub-turns and compactions (a UUID
	// distinguishes their keys from names that a client chose with the same prefix) and that last
	// changed before a moment, with their messages, runs, transcripts and index entries. A session
	// stays while it has an unfinished message or run, while the end of its sub-turn is not announced,
	// or while a parent or the root of its tree still runs.
	PruneSessions Prunable = "sessions"
	// PruneLedger: finished rows of the ledger that ended before a moment or exceed Keep rows of
	// their job, with their messages and runs.
	PruneLedger Prunable = "ledger"
	// PruneRecords: the results of calls with an idempotency key, after [IdempotencyTTL].
	PruneRecords Prunable = "records"
	// PruneChanges: rows of the audit log before a moment; none where the role of the database may
	// not delete them.
	PruneChanges Prunable = "changes"
)

// PruneParams are the parameters of [Store].Prune.
type PruneParams struct {
	What   Prunable
	Before time.Time
	// Keep is how many rows of a job the ledger keeps; 0 = no bound.
	Keep int
	// Limit bounds one call; 0 = [DefaultPrune].
	Limit int
}

// DefaultPrune is how many rows one call of [Retention] deletes.
const DefaultPrune = 500

// Most is Limit with its default.
func (p PruneParams) Most() int {
	if p.Limit <= 0 {
		return DefaultPrune
	}
	return p.Limit
}

// Paths are the non-empty paths in lists of files; see [Retention.FilesInUse].
func Paths(lists ...[]chat.Attachment) []string {
	var paths []string
	for _, list := range lists {
		for _, f := range list {
			if f.Path != "" {
				paths = append(paths, f.Path)
			}
		}
	}
	return paths
}

// Round is a recorded round.
type Round struct {
	chat.Round

	// Input are the numbers of the messages that joined the run after the results
	// ([StartParams.Round]), ascending.
	Input []int64
}

// CallRef identifies a call of a run: Round counts from 1, Call from 0.
type CallRef struct{ Round, Call int }

// The kinds of rows of a journal.
const (
	RowAsked  = "asked"  // Body is the request of the model, N is 0
	RowResult = "result" // Body is the result of the call N
	RowInput  = "input"  // the message N joined; Body is empty
)

// JournalRow is a row of the table turn_rounds.
type JournalRow struct {
	Round int
	Kind  string
	N     int64
	Body  string
}

// asked is the body of a row of kind [RowAsked].
type asked struct {
	Text  string          `json:"text,omitempty"`
	Calls []chat.ToolCall `json:"calls"`
	Usage chat.Usage      `json:"usage"`
	Extra json.RawMessage `json:"extra,omitempty"`
}

// AskedRow is the row for the request of a model: the text, the calls, the usage and the extra of a
// round, without its results.
func AskedRow(r chat.Round) (JournalRow, error) {
	body, err := json.Marshal(asked{Text: r.Text, Calls: r.Calls, Usage: r.Usage, Extra: r.Extra})
	if err != nil {
		return JournalRow{}, fmt.Errorf("encoding round %d: %w", r.Number, err)
	}
	return JournalRow{Round: r.Number, Kind: RowAsked, Body: string(body)}, nil
}

// ResultRow is the row of a result.
func ResultRow(at CallRef, result chat.ToolResult) (JournalRow, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return JournalRow{}, fmt.Errorf("encoding the result of call %d in round %d: %w", at.Call, at.Round, err)
	}
	return JournalRow{Round: at.Round, Kind: RowResult, N: int64(at.Call), Body: string(body)}, nil
}

// RoundsOf assembles the rounds of a run from its rows. They come ordered by round, kind and N, as
// the primary key orders them: asked, input, result.
func RoundsOf(rows []JournalRow) ([]Round, error) {
	var rounds []Round
	for _, row := range rows {
		if row.Kind == RowAsked {
			var a asked
			if err := json.Unmarshal([]byte(row.Body), &a); err != nil {
				return nil, fmt.Errorf("reading round %d: %w", row.Round, err)
			}
			rounds = append(rounds, Round{Round: chat.Round{
				Number: row.Round, Text: a.Text, Calls: a.Calls, Usage: a.Usage, Extra: a.Extra, Results: make([]*chat.ToolResult, len(a.Calls)),
			}})
			continue
		}
		if len(rounds) == 0 || rounds[len(rounds)-1].Number != row.Round {
			return nil, fmt.Errorf("reading round %d: a row %s without what was asked", row.Round, row.Kind)
		}
		if err := rounds[len(rounds)-1].add(row); err != nil {
			return nil, err
		}
	}
	return rounds, nil
}

func (r *Round) add(row JournalRow) error {
	if row.Kind == RowInput {
		r.Input = append(r.Input, row.N)
		return nil
	}
	if row.N < 0 || row.N >= int64(len(r.Results)) {
		return fmt.Errorf("reading round %d: a result of call %d of %d", row.Round, row.N, len(r.Results))
	}
	r.Results[row.N] = &chat.ToolResult{}
	if err := json.Unmarshal([]byte(row.Body), r.Results[row.N]); err != nil {
		return fmt.Errorf("reading the result of call %d in round %d: %w", row.N, row.Round, err)
	}
	return nil
}

// OneWriter is an optional ability: that of a store with one writer, which needs periodic
// maintenance.
type OneWriter interface {
	// WriterAge is how long the current operation or batch has been running; 0 when the writer is
	// idle. It keeps growing while the disk does not respond, so that a health check can
	// distinguish a slow store from a blocked one. It never blocks.
	WriterAge() time.Duration
	// Upkeep is the maintenance. It checks its context between the steps.
	Upkeep(ctx context.Context) (report string, err error)
}

// RunOfSession is the run that a session was made for, by its key; "" when the session was not made
// for a single run. The run may not exist.
func RunOfSession(key chat.SessionKey) string {
	rest, ok := strings.CutPrefix(key.Rest, "cron:")
	job, series, _ := strings.Cut(rest, ":")
	trigger, slot, _ := strings.Cut(series, "-")
	id := trigger + ":" + job + ":" + slot
	if _, _, _, err := cron.ParseRunID(id); !ok || err != nil || trigger != string(cron.TriggerSchedule) && trigger != string(cron.TriggerManual) {
		return ""
	}
	return id
}

// Deleting returns the keys of all sessions that the deletion of a session removes, the session
// first. below lists the sessions that belong to a session.
func Deleting(key string, below func(key string) ([]string, error)) ([]string, error) {
	keys := []string{key}
	for i := 0; i < len(keys); i++ {
		list, err := below(keys[i])
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}

// FilesOf returns the attachments that a JSON object names.
func FilesOf(row string) ([]chat.Attachment, error) {
	var body struct {
		Attachments []chat.Attachment `json:"attachments"`
	}
	if err := json.Unmarshal([]byte(row), &body); err != nil {
		return nil, fmt.Errorf("reading the files of a message: %w", err)
	}
	return body.Attachments, nil
}
