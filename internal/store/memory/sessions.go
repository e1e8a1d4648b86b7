package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Defaults of lists.
const (
	defaultSessions = 50
	defaultEntries  = 200
)

// Session reads one session that the principal may see.
func (s *Store) Session(ctx context.Context, key chat.SessionKey, visible string) (store.Session, error) {
	var out store.Session
	err := s.do(ctx, "Session", func(time.Time) error {
		se, ok := s.sessions[key]
		if !ok || visible != "" && se.Principal != visible {
			return chat.ErrSessionNotFound
		}
		out = s.view(se)
		return nil
	})
	return out, err
}

// ListSessions lists sessions, the one that changed last first, and returns how many match the filter.
func (s *Store) ListSessions(ctx context.Context, f store.SessionFilter) ([]store.Session, int, error) {
	var (
		out   []store.Session
		total int
	)
	err := s.do(ctx, "ListSessions", func(time.Time) error {
		var list []*session
		for _, se := range s.sessions {
			if fits(se, f) {
				list = append(list, se)
			}
		}
		slices.SortFunc(list, newest(f.ByLastMessage))
		total = len(list)
		from := min(max(f.Offset, 0), total)
		to := min(from+cmp.Or(f.Limit, defaultSessions), total)
		bytes := func(se *session) int { return encoded(se.Notes) + len(se.Preview) + len(se.LastError) }
		for _, se := range within(list[from:to], store.NewBudget(0), bytes) {
			out = append(out, s.view(se))
		}
		return nil
	})
	return out, total, err
}

// CountNamed counts the sessions of a principal whose keys a client has chosen.
func (s *Store) CountNamed(ctx context.Context, principal string) (int, error) {
	n := 0
	err := s.do(ctx, "CountNamed", func(time.Time) error {
		for _, se := range s.sessions {
			if se.Principal == principal && se.Key.Named() {
				n++
			}
		}
		return nil
	})
	return n, err
}

func newest(byLastMessage bool) func(a, b *session) int {
	return func(a, b *session) int {
		order := b.UpdatedAt.Compare(a.UpdatedAt)
		if byLastMessage {
			order = b.LastMessageAt.Compare(a.LastMessageAt)
		}
		return cmp.Or(order, cmp.Compare(a.Key.String(), b.Key.String()))
	}
}

func fits(se *session, f store.SessionFilter) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.Search)) }
	return (f.Visible == "" || se.Principal == f.Visible) &&
		(f.Agent == "" || se.Key.Agent == f.Agent) &&
		!se.UpdatedAt.Before(f.ActiveSince) && (!f.NoRuns || !se.Key.OfCronRun() && !se.Key.OfTask()) &&
		(has(se.Key.String()) || has(se.Preview))
}

// ResetSession archives the transcript, see store.Sessions.
func (s *Store) ResetSession(ctx context.Context, p store.ResetParams) (store.Session, error) {
	var out store.Session
	err := s.do(ctx, "ResetSession", func(now time.Time) error {
		if p.NewID == "" {
			return chat.Errorf(chat.CodeInvalid, "a new transcript needs an id")
		}
		id, err := idempotent(s, p.IdempotencyKey, now, func() (string, error) {
			out = s.reset(p, now)
			return out.SessionID, nil
		})
		if out.SessionID == "" {
			out.Key, out.SessionID = p.Session, id
		}
		return err
	})
	return out, err
}

func (s *Store) reset(p store.ResetParams, now time.Time) store.Session {
	se, created := s.session(p.Session, p.Principal, now)
	if before := se.SessionID; before != p.NewID {
		if created {
			before = ""
		}
		s.crons.write(p.Audit.Between(before, p.NewID), now)
		s.archive[p.Session] = append(s.archive[p.Session], archive{id: se.SessionID, entries: se.transcript})
		se.SessionID, se.transcript = p.NewID, nil
		se.UpdatedAt = now
	}
	return s.view(se)
}

// DeleteSession removes a session that does not run, see store.Sessions.
func (s *Store) DeleteSession(ctx context.Context, p store.DeleteParams) (out store.Deleted, err error) {
	err = s.do(ctx, "DeleteSession", func(now time.Time) error {
		out, err = idempotent(s, p.IdempotencyKey, now, func() (store.Deleted, error) { return s.remove(p, now) })
		return err
	})
	return out, err
}

func (s *Store) remove(p store.DeleteParams, now time.Time) (store.Deleted, error) {
	se, ok := s.sessions[p.Session]
	if !ok {
		return store.Deleted{}, nil
	}
	if p.ExpectID != "" && se.SessionID != p.ExpectID || se.active > 0 {
		return store.Deleted{}, chat.ErrConflict
	}
	queued := se.queued()
	for _, m := range se.unfinished {
		s.end(se, m, chat.OutcomeStopped, "delete", now)
	}
	s.settle(se, now)
	s.tombstones[p.Session] = tombstone{lastSeq: se.LastSeq, epoch: se.Epoch}
	delete(s.sessions, p.Session)
	s.toc.remove(p.Session)
	s.crons.write(p.Audit.Between(se.SessionID, ""), now)
	out := store.Deleted{Deleted: true, Ended: store.WithoutContent(rows(queued))}
	if p.KeepTranscript {
		s.archive[p.Session] = append(s.archive[p.Session], archive{id: se.SessionID, entries: se.transcript})
		for i := range s.archive[p.Session] {
			if a := &s.archive[p.Session][i]; !a.kept {
				a.kept, a.principal = true, se.Principal
			}
		}
		out.Kept = se.SessionID
	} else {
		s.archive[p.Session] = slices.DeleteFunc(s.archive[p.Session], func(a archive) bool { return !a.kept || a.principal == se.Principal })
		maps.DeleteFunc(s.replies, func(r replyOf, _ chat.TranscriptEntry) bool { return r.session == p.Session })
	}
	return out, nil
}

// SetSessionMode stores the queue mode of a session, which is created if needed.
func (s *Store) SetSessionMode(ctx context.Context, key chat.SessionKey, principal string, mode chat.QueueMode) error {
	return s.do(ctx, "SetSessionMode", func(now time.Time) error {
		se, _ := s.session(key, principal, now)
		se.Mode, se.UpdatedAt = mode, now
		return nil
	})
}

// GiveSession makes another principal the owner of a session, see store.Sessions.
func (s *Store) GiveSession(ctx context.Context, key chat.SessionKey, from, to string) error {
	return s.do(ctx, "GiveSession", func(now time.Time) error {
		if se := s.sessions[key]; se != nil && se.Principal == from {
			se.Principal, se.UpdatedAt = to, now
			s.toc.give(key, to)
		}
		return nil
	})
}

// SetNote stores a fact of a session, which is created if needed.
func (s *Store) SetNote(ctx context.Context, key chat.SessionKey, principal, name, value string) error {
	return s.do(ctx, "SetNote", func(now time.Time) error {
		se, _ := s.session(key, principal, now)
		se.UpdatedAt = now
		if value == "" {
			delete(se.Notes, name)
			return nil
		}
		se.Notes[name] = value
		return nil
	})
}

// AppendTranscript adds entries outside of a run, see store.Sessions.
func (s *Store) AppendTranscript(
	ctx context.Context, key chat.SessionKey, principal string, entries []chat.TranscriptEntry,
) ([]chat.TranscriptEntry, error) {
	var out []chat.TranscriptEntry
	err := s.do(ctx, "AppendTranscript", func(now time.Time) error {
		se, _ := s.session(key, principal, now)
		se.UpdatedAt = now
		out = s.appendTo(se, se.SessionID, entries, now)
		return nil
	})
	return out, err
}

// AppendSummary adds a summary, see store.Sessions.
func (s *Store) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	err = s.do(ctx, "AppendSummary", func(now time.Time) error {
		se := s.sessions[p.Session]
		if se == nil || se.SessionID != p.SessionID {
			return nil
		}
		if se.summary.Seq > 0 && se.summaryID == se.SessionID && se.summary.Covers.To >= p.Covers.To {
			if se.summary.RunID == p.RunID {
				e, added = se.summary, true
			}
			return nil
		}
		se.UpdatedAt = now
		e, added = s.appendTo(se, se.SessionID, []chat.TranscriptEntry{p.Entry()}, now)[0], true
		se.summaryID, se.summary = se.SessionID, e
		return nil
	})
	return e, added, err
}

// AppendReply adds one entry as the delivery of a reply, see store.Sessions.
func (s *Store) AppendReply(ctx context.Context, p store.ReplyParams) (store.Replied, error) {
	var out store.Replied
	err := s.do(ctx, "AppendReply", func(now time.Time) error {
		se, _ := s.session(p.Session, p.Principal, now)
		if p.Own && se.Principal != p.Principal {
			return chat.ErrSessionNotFound
		}
		reply := replyOf{p.Session, p.ID}
		had, ok := s.replies[reply]
		if !ok {
			se.UpdatedAt = now
			had = s.appendTo(se, se.SessionID, []chat.TranscriptEntry{p.Entry}, now)[0]
			s.replies[reply] = had
		}
		out = store.Replied{Entry: had, Principal: se.Principal}
		return nil
	})
	return out, err
}

// replyOf names a reply that was delivered into a transcript.
type replyOf struct {
	session chat.SessionKey
	id      string
}

// appendTo writes into the named transcript of a session, the current one or an archived one. Sequence numbers grow over all of them, so
// that a late entry in an archive has one, too.
func (s *Store) appendTo(se *session, id string, entries []chat.TranscriptEntry, now time.Time) []chat.TranscriptEntry {
	added := slices.Clone(entries)
	for i := range added {
		se.transcriptSeq++
		added[i].Seq, added[i].At = se.transcriptSeq, now
	}
	if id == se.SessionID {
		se.transcript = append(se.transcript, added...)
		return added
	}
	for i := range s.archive[se.Key] {
		if a := &s.archive[se.Key][i]; a.id == id {
			a.entries = append(a.entries, added...)
		}
	}
	return added
}

// Transcript reads a piece of a transcript, see store.TranscriptQuery.
func (s *Store) Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	var out store.Transcript
	err := s.do(ctx, "Transcript", func(time.Time) error {
		se := s.sessions[q.Session]
		if se != nil {
			out.SessionID = se.SessionID
			if q.Summary && se.summaryID == se.SessionID && (q.SessionID == "" || q.SessionID == se.SessionID) {
				out.Summary = se.summary
			}
		}
		entries := s.entries(se, q)
		if q.RunID != "" {
			entries = ofRun(entries, q.RunID)
		}
		out.Total, out.Entries = len(entries), page(entries, q)
		if len(entries) > 0 {
			out.LastSeq = entries[len(entries)-1].Seq
		}
		return nil
	})
	return out, err
}

// entries are those of the transcript to read; se is nil when there is no such session.
func (s *Store) entries(se *session, q store.TranscriptQuery) []chat.TranscriptEntry {
	if se != nil && (q.SessionID == "" || q.SessionID == se.SessionID) {
		return se.transcript
	}
	for _, a := range s.archive[q.Session] {
		if a.id == q.SessionID && (a.kept && (q.Visible == "" || q.Visible == a.principal) || !a.kept && se != nil) {
			return a.entries
		}
	}
	return nil
}

func ofRun(entries []chat.TranscriptEntry, runID string) []chat.TranscriptEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e chat.TranscriptEntry) bool { return e.RunID != runID })
}

func page(entries []chat.TranscriptEntry, q store.TranscriptQuery) []chat.TranscriptEntry {
	limit := cmp.Or(q.Limit, defaultEntries)
	forward := q.After > 0 || q.FromStart
	if forward {
		from := slices.IndexFunc(entries, func(e chat.TranscriptEntry) bool { return e.Seq > q.After })
		if from < 0 {
			return nil
		}
		entries = entries[from:min(from+limit, len(entries))]
	} else {
		to := max(len(entries)-q.Offset, 0)
		entries = entries[max(to-limit, 0):to]
	}
	list := slices.Clone(entries)
	for i := range list {
		list[i].Text = store.FirstChars(list[i].Text, q.MaxChars)
	}
	if !forward {
		slices.Reverse(list)
	}
	list = within(list, store.NewBudget(q.MaxBytes), func(e chat.TranscriptEntry) int { return len(e.Text) })
	if !forward {
		slices.Reverse(list)
	}
	return list
}

// within are the rows that come first and belong to one read.
func within[V any](list []V, b *store.Budget, size func(V) int) []V {
	for i, v := range list {
		if !b.Take(size(v)) {
			return list[:i]
		}
	}
	return list
}
