package memory

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// session is one row of sessions with what belongs to it.
type session struct {
	store.Session

	debounceUntil time.Time
	unfinished    []*message // ascending
	runs          []*run     // those that a later first attempt may have to be put before
	active        int        // running and stopping runs
	transcript    []chat.TranscriptEntry
	transcriptSeq int64
	summaryID     string // the transcript of the newest summary
	summary       chat.TranscriptEntry
}

// tombstone is what the deletion of a session leaves: a new session of the same key must not reuse sequence numbers or epochs.
type tombstone struct{ lastSeq, epoch int64 }

// archive is a transcript that was reset. One that a deletion kept belongs to its principal.
type archive struct {
	id        string
	entries   []chat.TranscriptEntry
	kept      bool
	principal string
}

// message is one row of inbox.
type message struct {
	store.Waiting

	dedupe, hash, node, notice string
	endedAt                    time.Time
	ended                      *cron.Run // the ledger row that ended with the message
	task                       *task     // nil = it is no sub-turn
}

// run is one row of runs.
type run struct {
	store.Run

	sessionID string
	rounds    []*store.Round // of its journal
}

// newID makes a UUIDv7. The random source cannot fail on the platforms we run on; the panic is uuid's own choice, too.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// session finds or makes a session.
func (s *Store) session(key chat.SessionKey, principal string, now time.Time) (se *session, created bool) {
	if se, ok := s.sessions[key]; ok {
		return se, false
	}
	old := s.tombstones[key]
	se = &session{Session: store.Session{
		Key: key, SessionID: newID(), Principal: principal, RunLimit: 1, CreatedAt: now, UpdatedAt: now,
		LastSeq: old.lastSeq, TakenSeq: old.lastSeq, DoneSeq: old.lastSeq, Epoch: old.epoch,
		Notes: map[string]string{},
	}}
	s.sessions[key] = se
	return se, true
}

// holds finds the session of a claim, or returns chat.ErrFenced when the claim does not hold.
func (s *Store) holds(c store.Claim, now time.Time) (*session, error) {
	se, ok := s.sessions[c.Session]
	if !ok || se.Owner != c.Node || se.Epoch != c.Epoch || !s.alive(c.Node, now) {
		return nil, chat.ErrFenced
	}
	return se, nil
}

// find returns the unfinished message with that sequence number, or nil.
func (se *session) find(seq int64) *message {
	i, ok := slices.BinarySearchFunc(se.unfinished, seq, func(m *message, seq int64) int { return int(m.Seq - seq) })
	if !ok {
		return nil
	}
	return se.unfinished[i]
}

// queued lists the messages that wait for a turn, oldest first.
func (se *session) queued() []*message {
	var list []*message
	for _, m := range se.unfinished {
		if m.State != store.StateRunning {
			list = append(list, m)
		}
	}
	return list
}

// of lists the messages that a run has taken, oldest first.
func (se *session) of(runID string) []*message {
	var list []*message
	for _, m := range se.unfinished {
		if m.State == store.StateRunning && m.RunID == runID {
			list = append(list, m)
		}
	}
	return list
}

// end gives a message its outcome. The caller calls settle afterwards.
func (se *session) end(m *message, outcome chat.Outcome, reason string, now time.Time) {
	if m.State != store.StateRunning {
		se.Waiting--
	}
	m.State, m.Outcome, m.Reason, m.endedAt = store.StateDone, outcome, reason, now
}

// settle brings the row up to date after messages ended: done_seq is the highest number below which all have an outcome.
func (s *Store) settle(se *session, now time.Time) {
	se.unfinished = slices.DeleteFunc(se.unfinished, func(m *message) bool { return m.State == store.StateDone })
	se.DoneSeq = se.LastSeq
	if len(se.unfinished) > 0 {
		se.DoneSeq = se.unfinished[0].Seq - 1
		s.busy[se.Key] = se
	} else {
		delete(s.busy, se.Key)
	}
	se.TakenSeq = max(se.TakenSeq, se.DoneSeq)
	se.UpdatedAt = now
	se.runs = slices.DeleteFunc(se.runs, func(r *run) bool { return r.SeqFrom <= se.DoneSeq })
}

// release ends the ownership of the session when nothing is left to do.
func (se *session) release() bool {
	if len(se.unfinished) > 0 || se.active > 0 {
		return false
	}
	se.Owner = ""
	return true
}

// view is the row as callers get it.
func (s *Store) view(se *session) store.Session {
	out := se.Session
	out.Notes = maps.Clone(se.Notes)
	var running []*run
	for _, r := range s.active {
		if r.Session == se.Key {
			running = append(running, r)
		}
	}
	slices.SortFunc(running, func(a, b *run) int { return int(a.SeqFrom - b.SeqFrom) })
	for _, r := range running {
		out.ActiveRuns = append(out.ActiveRuns, r.ID)
	}
	return out
}

func rows(list []*message) []store.Waiting {
	var out []store.Waiting
	for _, m := range list {
		w := m.row()
		w.CronRun = m.ended
		out = append(out, w)
	}
	return out
}

func (m *message) row() store.Waiting {
	w := m.Waiting
	w.Content = cloneContent(w.Content)
	return w
}

// encoded is how many bytes a value has in a table.
func encoded(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		panic("memory: a value that cannot be stored: " + err.Error()) // the engines refuse it when it is written
	}
	return len(text)
}

// size is how many bytes a message has in a table.
func (m *message) size() int { return encoded(m.Content) }

func cloneContent(c chat.Content) chat.Content {
	c.Attachments = slices.Clone(c.Attachments)
	c.Context = slices.Clone(c.Context)
	c.Options.Params = maps.Clone(c.Options.Params)
	return c
}
