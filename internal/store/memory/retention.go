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
