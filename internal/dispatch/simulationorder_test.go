package dispatch_test

import (
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// eventsInOrder checks the events of each run that the subscribers of a process received: increasing numbers, at most one end, and nothing
// after it.
func (s *simulation) eventsInOrder(h *simulated) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, over := map[string]int64{}, map[string]bool{}
	for _, e := range h.events {
		if e.Kind == chat.EventSession {
			continue
		}
		if over[e.RunID] || e.Seq <= last[e.RunID] {
			s.t.Errorf("event %s of %s has number %d after %d, over: %t", e.Kind, e.RunID, e.Seq, last[e.RunID], over[e.RunID])
		}
		last[e.RunID] = e.Seq
		over[e.RunID] = e.Kind == chat.EventFinal || e.Kind == chat.EventAborted || e.Kind == chat.EventFailed
		s.tally.Events++
	}
}

// rowsInOrder checks that the transcript of a session has the messages in the order of their acceptance.
func (s *simulation) rowsInOrder(h *simulated, session string) {
	key := h.msg(session, "x").Session
	tr, err := s.st.Transcript(s.t.Context(), store.TranscriptQuery{Session: key, FromStart: true, Limit: 100_000})
	if err != nil {
		s.t.Fatal(err)
	}
	rowsOf := map[string]int{} // user rows by run
	for _, e := range tr.Entries {
		if e.Role == chat.RoleUser && !e.Command {
			rowsOf[e.RunID]++
		}
	}
	seqs := s.seqsByRun(key)
	last, lastRun := int64(0), ""
	taken := map[string]int{}
	for _, e := range tr.Entries {
		if e.Role != chat.RoleUser || e.Command || rowsOf[e.RunID] != len(seqs[e.RunID]) {
			continue // a message that had an outcome when its turn started has a row as well
		}
		seq := seqs[e.RunID][taken[e.RunID]]
		taken[e.RunID]++
		if seq < last {
			s.t.Errorf("session %s: message %d of run %s is after message %d of run %s", session, seq, e.RunID, last, lastRun)
		}
		last, lastRun = seq, e.RunID
		s.tally.Rows++
	}
}

// seqsByRun returns the numbers of the messages of each run of a session, ascending.
func (s *simulation) seqsByRun(key chat.SessionKey) map[string][]int64 {
	seqs := map[string][]int64{}
	for _, id := range s.ids {
		m, err := s.st.MessageByID(s.t.Context(), id)
		if err == nil && m.Session == key && m.RunID != "" {
			seqs[m.RunID] = append(seqs[m.RunID], m.Seq)
		}
	}
	for _, list := range seqs {
		slices.Sort(list)
	}
	return seqs
}
