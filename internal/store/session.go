package store

import (
	"time"

	"laneway/internal/chat"
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

// ResetParams of ResetSession.
type ResetParams struct {
	Session chat.SessionKey
	// Principal becomes the owner of a session that is created. NewID names the empty transcript.
	Principal, NewID string
	// IdempotencyKey, if not nil, makes repetitions harmless; Audit, if not nil, is logged with the change. Its hashes are filled in here.
	IdempotencyKey *chat.IdempotencyKey
	Audit          *chat.Audit
}

// DeleteParams of DeleteSession.
type DeleteParams struct {
	Session chat.SessionKey
	// ExpectID is the transcript that must be the current one; "" = whatever it is.
	ExpectID string
	// KeepTranscript leaves the transcripts in the store, under their ids. They stay with the principal of the deleted session: a later session of the same
	// key does not own them, and its deletion does not remove them unless it belongs to the same principal.
	KeepTranscript bool
	// IdempotencyKey and Audit are as in [ResetParams].
	IdempotencyKey *chat.IdempotencyKey
	Audit          *chat.Audit
}

// Deleted is what DeleteSession did.
type Deleted struct {
	Deleted bool `json:"deleted"`
	// Kept is the id of the transcript that was current and was kept; "" = none.
	Kept string `json:"kept,omitempty"`
	// Ended are the messages that waited and ended stopped, without their content; none in the answer to a repetition.
	Ended []Waiting `json:"-"`
}

// WithoutContent removes the content from messages, in place.
func WithoutContent(list []Waiting) []Waiting {
	for i := range list {
		list[i].Content = chat.Content{}
	}
	return list
}

// SessionFilter restricts ListSessions.
type SessionFilter struct {
	Visible, Agent, Search string
	ActiveSince            time.Time
	ByLastMessage          bool
	NoCronRuns             bool // without sessions that are of runs of a job, see [chat.SessionKey.OfCronRun]
	Limit, Offset          int  // Limit 0 = 50
}

// TranscriptQuery reads a piece of a transcript. With After > 0 or FromStart it reads forwards (at most Limit entries after that sequence number), else backwards from the
// end, skipping Offset entries; entries always come oldest first.
type TranscriptQuery struct {
	Session   chat.SessionKey
	SessionID string // "" = current; another one reads the archive of the session, or what a deletion kept of an earlier session of this key
	RunID     string // only entries of this run; "" = all
	After     int64
	FromStart bool
	Limit     int // 0 = 200
	Offset    int
	// MaxChars > 0 shortens texts in the database: one with more characters than that comes with its first MaxChars+1, see [FirstChars].
	MaxChars int
	// MaxBytes bounds the texts of the entries together, as they come; 0 = [ReadBytes]. An entry that is larger comes alone. Backwards the newest entries
	// come, forwards the oldest: a caller goes on with Offset + len(Entries), or After = the last Seq, until there are no entries.
	MaxBytes int
	// Visible restricts transcripts that a deletion kept to those that this principal owned; "" = all. It does not restrict the transcripts of a session
	// that exists: who may read those is decided by the session.
	Visible string
}

// Transcript is a piece of a conversation.
type Transcript struct {
	SessionID string // of the session's current transcript, "" = unknown session
	Entries   []chat.TranscriptEntry
	Total     int
	LastSeq   int64
}

// PruneParams say what is old.
type PruneParams struct {
	Before time.Time
	// Limit bounds one call; 0 = 500.
	Limit int
}

// DefaultPrune is how many rows one call of [Retention] deletes.
const DefaultPrune = 500

// Most is the limit with its default.
func (p PruneParams) Most() int {
	if p.Limit <= 0 {
		return DefaultPrune
	}
	return p.Limit
}

// Paths are the paths in lists of files, those that have one; see [Retention.FilesInUse].
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
