package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Sweep takes over sessions that no live node owns, see store.Inbox. A dead node gets chat.ErrFenced.
func (s *Store) Sweep(ctx context.Context, p store.SweepParams) ([]store.Taken, error) {
	var out []store.Taken
	err := s.do(ctx, "Sweep", func(now time.Time) error {
		if !s.alive(p.Node, now) {
			return chat.ErrFenced
		}
		s.endStopping(now)
		budget := store.NewBudget(0)
		for _, se := range s.busySessions() {
			if len(out) == p.Limit {
				break
			}
			if !s.alive(se.Owner, now) && !se.debounceUntil.After(now) && (p.Agents == nil || slices.Contains(p.Agents, se.Key.Agent)) {
				size := 0
				for _, m := range se.unfinished {
					size += m.size()
				}
				if !budget.Take(size) {
					break
				}
				s.takeOver(se, p.Node, now)
				out = append(out, s.taken(se, se.unfinished))
			}
		}
		s.forgetNodes(now)
		return nil
	})
	return out, err
}

// busySessions lists the sessions with unfinished messages, the longest waiting first.
func (s *Store) busySessions() []*session {
	list := make([]*session, 0, len(s.busy))
	for _, se := range s.busy {
		list = append(list, se)
	}
	slices.SortFunc(list, func(a, b *session) int {
		return cmp.Or(a.unfinished[0].AcceptedAt.Compare(b.unfinished[0].AcceptedAt), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return list
}

// takeOver moves a session to a new owner. What ran under the old one is interrupted and waits again; it counts as a crash unless the old
// owner has deleted its row.
func (s *Store) takeOver(se *session, nodeID string, now time.Time) {
	for _, r := range s.active {
		if r.Session != se.Key {
			continue
		}
		if _, crashed := s.nodes[r.Owner]; crashed && r.State != store.RunYielded { // a run that waited did not end its process
			r.Crashes++
		}
		s.crons.waitAgain(r.ID, now)
		se.requeue(r)
		s.endRow(se, r, store.RunInterrupted, now)
	}
	se.Owner = nodeID
	se.Epoch++
	se.UpdatedAt = now
}

func (s *Store) taken(se *session, list []*message) store.Taken {
	out := store.Taken{
		Claim:    store.Claim{Session: se.Key, Node: se.Owner, Epoch: se.Epoch},
		RunLimit: se.RunLimit, Mode: se.Mode, Principal: se.Principal, Cutoff: se.StopSeq, LastSeq: se.LastSeq,
		Messages: rows(list), Runs: map[string]store.Run{},
	}
	for _, m := range list {
		if r, ok := s.runs[m.RunID]; ok {
			out.Runs[r.ID] = r.Run
		}
	}
	return out
}

// forgetNodes deletes the rows of nodes that died long ago. One that still has work is kept: without its row the takeover would look like
// one after a clean stop.
func (s *Store) forgetNodes(now time.Time) {
	for id, n := range s.nodes {
		if now.Sub(n.leaseUntil) >= keepDeadNode && !s.hasWork(id) {
			delete(s.nodes, id)
		}
	}
}

func (s *Store) hasWork(nodeID string) bool {
	for _, se := range s.busy {
		if se.Owner == nodeID {
			return true
		}
	}
	for _, r := range s.active {
		if r.Owner == nodeID {
			return true
		}
	}
	return false
}

// Hinted returns what other nodes accepted for sessions of this one, see store.Inbox.
func (s *Store) Hinted(ctx context.Context, nodeID string, limit int) ([]store.Taken, error) {
	var out []store.Taken
	err := s.do(ctx, "Hinted", func(now time.Time) error {
		if !s.alive(nodeID, now) {
			return nil
		}
		budget := store.NewBudget(0)
		for _, se := range s.busySessions() {
			if se.Owner != nodeID || limit <= 0 {
				continue
			}
			list := slices.DeleteFunc(se.queued(), func(m *message) bool { return m.node == nodeID })
			list = within(list[:min(len(list), limit)], budget, (*message).size)
			limit -= len(list)
			if len(list) > 0 {
				out = append(out, s.taken(se, list))
			}
		}
		return nil
	})
	return out, err
}
