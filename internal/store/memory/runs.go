package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// previewBytes is how much of an answer a list shows.
const previewBytes = 200

// Start turns waiting messages into a run, see store.Inbox.
func (s *Store) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	var out store.Started
	err := s.do(ctx, "Start", func(now time.Time) error {
		se, err := s.holds(p.Claim, now)
		if err != nil {
			return err
		}
		r := s.runs[p.RunID]
		if r != nil && r.State == store.RunRunning && r.Session == p.Session {
			out = started(se, r) // a repetition, see the port
			if r.Attempt == 1 {
				out.Entries = s.newestOfRun(se, r, len(p.Transcript))
			}
			return nil
		}
		if list := startable(se, p.Seqs); len(list) > 0 {
			out = s.start(se, p, list, now)
			s.crons.begin(p.Cron, now)
		}
		return nil
	})
	return out, err
}

// Join adds waiting messages to a running run, see store.Inbox. The range of the run stays what it began with: messages of
// other runs may lie between.
func (s *Store) Join(ctx context.Context, p store.StartParams) ([]int64, error) {
	var out []int64
	err := s.do(ctx, "Join", func(now time.Time) error {
		se, err := s.holds(p.Claim, now)
		if err != nil {
			return err
		}
		r, err := s.claimed(p.Claim, p.RunID)
		if err != nil {
			return err
		}
		list := startable(se, p.Seqs)
		for _, seq := range p.Seqs {
			if m := se.find(seq); m != nil && (m.State != store.StateRunning || m.RunID == r.ID && seq > r.SeqTo) { // a repetition returns what has joined
				out = append(out, seq)
			}
		}
		if len(list) > 0 {
			se.take(list, r)
			s.appendTo(se, r.sessionID, p.Transcript, now)
			if round := r.round(p.Round); round != nil {
				for _, m := range list {
					round.Input = append(round.Input, m.Seq)
				}
			}
			se.UpdatedAt = now
		}
		return nil
	})
	return out, err
}

// claimed finds a run that runs under exactly this claim.
func (s *Store) claimed(c store.Claim, runID string) (*run, error) {
	r := s.runs[runID]
	if r == nil || r.Session != c.Session || !r.works() || r.Owner != c.Node || r.Epoch != c.Epoch {
		return nil, chat.ErrFenced
	}
	return r, nil
}

// take marks messages as taken by a run.
func (se *session) take(list []*message, r *run) {
	for _, m := range list {
		m.State, m.RunID = store.StateRunning, r.ID
		se.Waiting--
		se.TakenSeq = max(se.TakenSeq, m.Seq)
	}
}

// startable leaves out messages that have an outcome or run already.
func startable(se *session, seqs []int64) []*message {
	var list []*message
	for _, seq := range seqs {
		if m := se.find(seq); m != nil && m.State != store.StateRunning {
			list = append(list, m)
		}
	}
	return list
}

func (s *Store) start(se *session, p store.StartParams, list []*message, now time.Time) store.Started {
	r := s.runs[p.RunID]
	if r == nil {
		r = newRun(se, p, list)
		s.runs[p.RunID] = r
	}
	r.Lane, r.Owner, r.Epoch, r.State, r.Cause = p.Lane, p.Node, p.Epoch, store.RunRunning, ""
	r.Attempt++
	r.StartedAt, r.EndedAt = now, time.Time{}
	if r.Attempt == 1 {
		r.StartedAt = se.notAfterLater(r, now)
	}
	se.runs = append(se.runs, r)
	se.active++
	s.active[r.ID] = r
	se.take(list, r)
	se.UpdatedAt = now
	out := started(se, r)
	if r.Attempt == 1 {
		out.Entries = s.appendTo(se, r.sessionID, p.Transcript, now)
	}
	return out
}

func newRun(se *session, p store.StartParams, list []*message) *run {
	return &run{sessionID: se.SessionID, Run: store.Run{
		ID: p.RunID, Session: p.Session, QueuedAt: list[0].AcceptedAt,
		SeqFrom: list[0].Seq, SeqTo: list[len(list)-1].Seq,
	}}
}

// notAfterLater keeps first attempts in the order of their messages in the table, whichever Start came first.
func (se *session) notAfterLater(r *run, at time.Time) time.Time {
	for _, later := range se.runs {
		if later.Attempt == 1 && later.SeqFrom > r.SeqTo && later.StartedAt.Before(at) {
			at = later.StartedAt
		}
	}
	return at
}

func started(se *session, r *run) store.Started {
	out := store.Started{
		Attempt: r.Attempt, Crashes: r.Crashes, StopBy: r.StopBy, StartedAt: r.StartedAt,
		SessionID: r.sessionID, Notes: maps.Clone(se.Notes), Principal: se.Principal,
	}
	for _, m := range se.of(r.ID) {
		out.Seqs = append(out.Seqs, m.Seq)
	}
	return out
}

// Finish ends a run, see store.Inbox.
func (s *Store) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	var out store.Finished
	err := s.do(ctx, "Finish", func(now time.Time) error {
		if p.Outcome == "" && !p.Requeue {
			return chat.Errorf(chat.CodeInvalid, "a run that ends needs an outcome")
		}
		se, held := s.holds(p.Claim, now)
		r, running := s.claimed(p.Claim, p.RunID)
		if err := errors.Join(held, running); err != nil {
			var ok bool
			if out, ok = s.finishedBefore(p, now); ok {
				return nil
			}
			return err
		}
		out = s.finish(se, r, p, now)
		return nil
	})
	return out, err
}

// finishedBefore returns the result of an earlier Finish with the same parameters.
func (s *Store) finishedBefore(p store.FinishParams, now time.Time) (store.Finished, bool) {
	r := s.runs[p.RunID]
	if r == nil {
		return store.Finished{}, false
	}
	e := store.EndedRun{Run: r.Run}
	if se := s.sessions[r.Session]; se != nil {
		e.Owner, e.Epoch = se.Owner, se.Epoch
		e.Entries = s.newestOfRun(se, r, len(p.Transcript))
	}
	for _, m := range s.messages {
		if m.Session == r.Session && m.RunID == r.ID && m.Outcome == chat.OutcomeMerged {
			e.Merged = append(e.Merged, m.row())
		}
	}
	slices.SortFunc(e.Merged, func(a, b store.Waiting) int { return cmp.Compare(a.Seq, b.Seq) })
	return p.Repeats(e, now)
}

// newestOfRun are the newest n entries of a run, oldest first.
func (s *Store) newestOfRun(se *session, r *run, n int) []chat.TranscriptEntry {
	list := se.transcript
	for _, a := range s.archive[se.Key] {
		if a.id == r.sessionID {
			list = a.entries
		}
	}
	list = ofRun(list, r.ID)
	return slices.Clone(list[max(0, len(list)-n):])
}

func (s *Store) finish(se *session, r *run, p store.FinishParams, now time.Time) store.Finished {
	out := store.Finished{EndedAt: now}
	notice := ""
	for _, o := range p.Outgoing {
		o.RunID, o.Epoch = p.RunID, p.Epoch
		if id := s.send(o, now); o.Kind == store.KindNotice {
			notice = id
		}
	}
	s.crons.finish(p.Cron, now)
	if p.Requeue {
		s.crons.waitAgain(r.ID, now)
		se.requeue(r)
	} else {
		out.Merged = se.endRun(r, p, notice, now)
		se.remember(r, p)
		if p.Journal {
			r.rounds = nil
		}
	}
	r.Usage, r.Cause, r.Error, r.Detail = p.Usage, p.Cause, p.Error, p.Detail
	if p.StillRunning {
		r.State = store.RunStopping
	} else {
		s.endRow(se, r, p.State, now)
	}
	out.Entries = s.appendTo(se, r.sessionID, p.Transcript, now)
	s.settle(se, now)
	out.Released = se.release()
	return out
}

// endRun gives the messages of a run their outcomes.
func (se *session) endRun(r *run, p store.FinishParams, notice string, now time.Time) []store.Waiting {
	list := se.of(r.ID)
	lead := leader(list, r.ID)
	var merged []store.Waiting
	for _, m := range list {
		m.notice = cmp.Or(m.notice, notice)
		if m == lead || p.Outcome != chat.OutcomeAnswered {
			se.end(m, p.Outcome, p.Cause, now)
			continue
		}
		se.end(m, chat.OutcomeMerged, p.Cause, now)
		m.MergedInto = lead.Seq
		merged = append(merged, m.row())
	}
	return merged
}

// leader is the message that gave the run its id, else the newest.
func leader(list []*message, runID string) *message {
	var lead *message
	for _, m := range list {
		if lead = m; m.MessageID == runID {
			break
		}
	}
	return lead
}

// requeue lets the messages of a run wait again. They are held, not waiting: they have the place of a running turn.
func (se *session) requeue(r *run) {
	for _, m := range se.of(r.ID) {
		m.State = store.StateHeld
		se.Waiting++
	}
}

// remember keeps the columns of the run that ended last, which lists show.
func (se *session) remember(r *run, p store.FinishParams) {
	se.LastRunID, se.LastState, se.LastCause, se.LastError = r.ID, p.State, p.Cause, p.Error
	se.TotalTokens += p.Usage.InputTokens + p.Usage.OutputTokens
	if p.Preview != "" {
		se.Preview = chat.Cut(p.Preview, previewBytes)
	}
}

// endRow ends a run that is running or stopping.
func (s *Store) endRow(se *session, r *run, state string, now time.Time) {
	r.State, r.EndedAt = state, now
	delete(s.active, r.ID)
	se.active--
}

// EndStopping ends a run whose goroutine has returned at last.
func (s *Store) EndStopping(ctx context.Context, c store.Claim, runID string) error {
	return s.do(ctx, "EndStopping", func(now time.Time) error {
		r := s.runs[runID]
		if r == nil || r.Session != c.Session || r.State != store.RunStopping {
			return nil
		}
		se, err := s.holds(c, now)
		if err != nil {
			return err
		}
		s.endRow(se, r, store.RunStopped, now)
		se.UpdatedAt = now
		se.release()
		return nil
	})
}

// endStopping ends the stopping runs of dead nodes: their goroutines have ended with their process.
func (s *Store) endStopping(now time.Time) {
	for _, r := range s.active {
		if r.State == store.RunStopping && !s.alive(r.Owner, now) {
			s.endRow(s.sessions[r.Session], r, store.RunStopped, now)
		}
	}
}

// RunByID reads a run; chat.ErrNotFound.
func (s *Store) RunByID(ctx context.Context, id string) (store.Run, error) {
	var out store.Run
	err := s.do(ctx, "RunByID", func(time.Time) error {
		r, ok := s.runs[id]
		if !ok {
			return chat.ErrNotFound
		}
		out = r.Run
		return nil
	})
	return out, err
}
