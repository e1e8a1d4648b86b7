package memory

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// PruneInbox deletes messages that are over with their runs; see the port.
func (s *Store) PruneInbox(ctx context.Context, p store.PruneParams) (n int, err error) {
	err = s.do(ctx, "PruneInbox", func(time.Time) error {
		old := map[string]bool{} // runs to delete
		for _, m := range s.messages {
			if n+len(old) >= p.Most() {
				break
			}
			switch {
			case m.endedAt.IsZero() || !m.endedAt.Before(p.Before):
			case s.runs[m.RunID] == nil:
				s.forgetMessage(m)
				n++
			case s.active[m.RunID] == nil:
				old[m.RunID] = true
			}
		}
		for _, m := range s.messages {
			if old[m.RunID] && !m.endedAt.IsZero() {
				s.forgetMessage(m)
				n++
			}
		}
		for id := range old {
			delete(s.runs, id)
		}
		return nil
	})
	return n, err
}

func (s *Store) forgetMessage(m *message) {
	delete(s.messages, m.MessageID)
	if s.dedupe[m.dedupe] == m {
		delete(s.dedupe, m.dedupe)
	}
}

// PruneSessions deletes old sessions of sub-turns and compactions; see the port.
func (s *Store) PruneSessions(ctx context.Context, p store.PruneParams) (n int, err error) {
	err = s.do(ctx, "PruneSessions", func(time.Time) error {
		needed := map[chat.SessionKey]bool{}
		for _, m := range s.messages {
			if t := m.task; t != nil && (t.announce || s.active[t.parent] != nil || s.active[t.root] != nil) {
				needed[m.Session] = true
			}
		}
		for key, se := range s.sessions {
			if n < p.Most() && key.OfSideTurns() && se.UpdatedAt.Before(p.Before) && len(se.unfinished) == 0 && se.active == 0 && !needed[key] {
				s.forgetSideTurns(key)
				n++
			}
		}
		return nil
	})
	return n, err
}

func (s *Store) forgetSideTurns(key chat.SessionKey) {
	for _, m := range s.messages {
		if m.Session == key {
			s.forgetMessage(m)
		}
	}
	for id, r := range s.runs {
		if r.Session == key {
			delete(s.runs, id)
		}
	}
	delete(s.tombstones, key)
	if se := s.sessions[key]; !key.OfTask() { // its conversation may be compacted again
		s.tombstones[key] = tombstone{lastSeq: se.LastSeq, epoch: se.Epoch}
	}
	delete(s.sessions, key)
	delete(s.archive, key)
}

// PruneOutbox deletes outgoing messages that are over; see the port.
func (s *Store) PruneOutbox(ctx context.Context, p store.PruneParams) (n int, err error) {
	err = s.do(ctx, "PruneOutbox", func(time.Time) error {
		for id, row := range s.outbox {
			if n >= p.Most() {
				break
			}
			if !row.doneAt.IsZero() && row.doneAt.Before(p.Before) {
				delete(s.outbox, id)
				if part := (runPart{run: row.RunID, n: row.N}); s.byRun[part] == row {
					delete(s.byRun, part)
				}
				n++
			}
		}
		return nil
	})
	return n, err
}

// FilesInUse lists the files that something unfinished names; see the port.
func (s *Store) FilesInUse(ctx context.Context) ([]string, error) {
	var paths []string
	err := s.do(ctx, "FilesInUse", func(time.Time) error {
		for _, m := range s.messages {
			if m.endedAt.IsZero() {
				paths = append(paths, store.Paths(m.Content.Attachments)...)
			}
		}
		for _, row := range s.outbox {
			if row.doneAt.IsZero() && row.File != nil {
				paths = append(paths, store.Paths([]chat.Attachment{*row.File})...)
			}
		}
		return nil
	})
	return paths, err
}

// FilesNamed names none: a deletion lists no files here.
func (s *Store) FilesNamed(context.Context, []string) ([]string, error) { return nil, nil }
