package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// EndWaiting gives waiting messages an outcome, see store.Inbox.
func (s *Store) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	var out []store.Waiting
	err := s.do(ctx, "EndWaiting", func(now time.Time) error {
		if p.Outcome == "" {
			return chat.Errorf(chat.CodeInvalid, "a message that ends needs an outcome")
		}
		se, ok := s.sessions[p.Session]
		if !ok {
			return nil
		}
		list := startable(se, p.Seqs)
		before := s.endedBefore(p)
		for _, m := range list {
			s.end(se, m, p.Outcome, p.Reason, now)
		}
		if len(list) > 0 {
			s.notify(se.Key, p.Notice, list, now)
			s.settle(se, now)
		}
		out = rows(append(before, list...))
		return nil
	})
	return out, err
}

// endedBefore lists the messages that an earlier try of a repeated call has ended.
func (s *Store) endedBefore(p store.EndParams) (list []*message) {
	if !p.Again {
		return nil
	}
	for _, m := range s.messages {
		if m.Session == p.Session && m.State == store.StateDone && m.Outcome == p.Outcome && m.Reason == p.Reason && slices.Contains(p.Seqs, m.Seq) {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// Stop records a stop, see store.Inbox. A session that does not exist has nothing to stop.
func (s *Store) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	var out store.Stopped
	err := s.do(ctx, "Stop", func(now time.Time) error {
		se, ok := s.sessions[p.Session]
		if !ok {
			return nil
		}
		list, runs := s.met(se, p)
		for _, m := range list {
			s.end(se, m, chat.OutcomeStopped, p.Reason, now)
		}
		out.Waiting = rows(list)
		for _, r := range runs {
			r.StopBy = cmp.Or(r.StopBy, p.By)
			out.Running = append(out.Running, store.RunningRun{RunID: r.ID, Node: r.Owner})
		}
		if p.Scope == store.StopAll {
			se.StopSeq = se.LastSeq
			out.Cutoff = se.StopSeq
		}
		s.settle(se, now)
		return nil
	})
	return out, err
}

// met finds what a stop selects.
func (s *Store) met(se *session, p store.StopParams) ([]*message, []*run) {
	queued, running := se.queued(), s.running(se)
	switch p.Scope {
	case store.StopAll:
		return queued, running
	case store.StopRun:
		return s.named(se, p.MessageID, queued, running)
	default:
		running = slices.DeleteFunc(running, func(r *run) bool { return r.StopBy != "" })
		if len(running) > 0 {
			return nil, running[:1]
		}
		return queued[:min(len(queued), 1)], nil
	}
}

// named finds the run or the waiting message that an id names; a message that a run has taken selects the run.
func (s *Store) named(se *session, id string, queued []*message, running []*run) ([]*message, []*run) {
	runID := id
	if m, ok := s.messages[id]; ok && m.Session == se.Key && m.State == store.StateRunning {
		runID = m.RunID
	}
	queued = slices.DeleteFunc(queued, func(m *message) bool { return m.MessageID != id })
	running = slices.DeleteFunc(running, func(r *run) bool { return r.ID != runID })
	return queued, running
}

// running lists the running runs of a session, oldest first.
func (s *Store) running(se *session) []*run {
	var list []*run
	for _, r := range s.active {
		if r.Session == se.Key && r.works() {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *run) int { return cmp.Compare(a.SeqFrom, b.SeqFrom) })
	return list
}

// MessageByID finds a message by its id; chat.ErrNotFound.
func (s *Store) MessageByID(ctx context.Context, id string) (store.Waiting, error) {
	var out store.Waiting
	err := s.do(ctx, "MessageByID", func(time.Time) error {
		m, ok := s.messages[id]
		if !ok {
			return chat.ErrNotFound
		}
		out = m.row()
		return nil
	})
	return out, err
}

// FilesOfRuns lists the files that came with the messages of runs; see the port.
func (s *Store) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error) {
	found := map[string][]chat.Attachment{}
	err := s.do(ctx, "FilesOfRuns", func(time.Time) error {
		var list []*message
		for _, m := range s.messages {
			if m.Session == key && slices.Contains(runs, m.RunID) && len(m.Content.Attachments) > 0 {
				list = append(list, m)
			}
		}
		slices.SortFunc(list, func(a, b *message) int { return cmp.Compare(a.Seq, b.Seq) })
		for _, m := range list {
			found[m.RunID] = append(found[m.RunID], m.Content.Attachments...)
		}
		return nil
	})
	return found, err
}

// PendingInputs lists the waiting messages of a session, oldest first, and returns the number of all of them.
func (s *Store) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error) {
	var (
		out   []store.Waiting
		total int
	)
	err := s.do(ctx, "PendingInputs", func(time.Time) error {
		if se, ok := s.sessions[key]; ok {
			queued := se.queued()
			total = len(queued)
			queued = slices.DeleteFunc(queued, func(m *message) bool { return m.Seq <= after })
			out = rows(within(queued[:min(len(queued), max(limit, 0))], store.NewBudget(0), (*message).size))
		}
		return nil
	})
	return out, total, err
}

// CountUnfinished counts messages without an outcome.
func (s *Store) CountUnfinished(ctx context.Context) (int, error) {
	total := 0
	err := s.do(ctx, "CountUnfinished", func(time.Time) error {
		for _, se := range s.busy {
			total += len(se.unfinished)
		}
		return nil
	})
	return total, err
}
