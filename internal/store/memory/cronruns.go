package memory

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// CancelRuns ends active runs, see cron.JobStore.
func (s *Store) CancelRuns(ctx context.Context, p cron.CancelParams) (out cron.Cancelled, err error) {
	err = s.do(ctx, "CancelRuns", func(now time.Time) error {
		out, err = idempotent(s, p.IdempotencyKey, now, func() (cron.Cancelled, error) { return s.cancel(p, now) })
		return err
	})
	return out, err
}

func (s *Store) cancel(p cron.CancelParams, now time.Time) (cron.Cancelled, error) {
	list := s.crons.rows(func(r *ledgerRow) bool {
		mine := p.Visible == "" || r.Owner == p.Visible
		return mine && (p.RunID == "" || r.ID == p.RunID) && (p.JobID == "" || r.JobID == p.JobID) && p.RunID+p.JobID != ""
	})
	out := cron.CancelledOf(s.cancelRuns(list, p, now))
	out.Finished = s.crons.takeFinished()
	switch {
	case len(out.Runs) > 0:
		s.crons.write(p.Audit.Between(out.States()), now)
	case p.RunID != "" && len(list) == 0, p.RunID == "" && s.crons.visible(p.JobID, p.Visible) == nil:
		return cron.Cancelled{}, chat.ErrNotFound
	}
	return out, nil
}

func (s *Store) cancelRuns(list []*ledgerRow, p cron.CancelParams, now time.Time) []cron.CancelledRun {
	var out []cron.CancelledRun
	for _, r := range list {
		if r.State.Active() {
			out = append(out, s.cancelRun(r, p, now))
		}
	}
	return out
}

// cancelRun ends a run that waits; one that runs is asked to stop and ends when its turn does.
func (s *Store) cancelRun(r *ledgerRow, p cron.CancelParams, now time.Time) cron.CancelledRun {
	m := s.messages[r.message]
	out := cron.CancelledRun{RunID: r.ID, JobID: r.JobID, MessageID: r.message, Session: m.Session, Seq: m.Seq}
	r.Reason = cmp.Or(p.Reason, cron.ReasonStopped)
	if r.State == cron.RunRunning {
		turn := s.runs[m.RunID]
		turn.StopBy = cmp.Or(turn.StopBy, p.By, "cron")
		out.Running, out.Node = true, turn.Owner
		return out
	}
	r.cancel(r.Reason, p.Note, now)
	s.crons.finished = append(s.crons.finished, s.crons.run(r))
	if m.State != store.StateDone {
		se := s.sessions[m.Session]
		s.end(se, m, chat.OutcomeStopped, string(r.Reason), now)
		s.settle(se, now)
	}
	return out
}

func (r *ledgerRow) cancel(reason cron.Reason, note string, now time.Time) {
	r.State, r.Reason, r.Error = cron.RunCancelled, reason, note
	r.FinishedAt, r.NextAttempt = now, time.Time{}
	if !r.StartedAt.IsZero() {
		r.Duration = now.Sub(r.StartedAt)
	}
}

// Runs lists ledger rows, see cron.RunFilter. A Limit of 0 is no bound.
func (s *Store) Runs(ctx context.Context, f cron.RunFilter) (cron.RunPage, error) {
	var out cron.RunPage
	err := s.do(ctx, "Runs", func(now time.Time) error {
		list := s.crons.rows(func(r *ledgerRow) bool { return wantedRun(r, f) })
		slices.SortFunc(list, func(a, b *ledgerRow) int {
			order := cmp.Or(a.ScheduledFor.Compare(b.ScheduledFor), cmp.Compare(a.ID, b.ID))
			if f.Ascending {
				return order
			}
			return -order
		})
		out.Total = len(list)
		bytes := func(r *ledgerRow) int {
			return encoded(r.Attempts) + len(r.Error) + len(r.Summary) + len(r.DeliveryError)
		}
		for _, r := range within(piece(list, f.Limit, f.Offset), store.NewBudget(0), bytes) {
			out.Runs = append(out.Runs, s.crons.run(r))
		}
		return nil
	})
	return out, err
}

func wantedRun(r *ledgerRow, f cron.RunFilter) bool {
	switch {
	case f.Visible != "" && r.Owner != f.Visible,
		f.JobID != "" && r.JobID != f.JobID,
		f.RunID != "" && r.ID != f.RunID,
		f.Agent != "" && r.Agent != f.Agent,
		len(f.Deliveries) > 0 && !slices.Contains(f.Deliveries, r.Delivery),
		!f.Since.IsZero() && r.ScheduledFor.Before(f.Since),
		!f.Until.IsZero() && r.ScheduledFor.After(f.Until):
		return false
	}
	return wantedState(r.State, f) && contains(f.Query, r.Error, r.Summary, r.JobName)
}

func wantedState(state cron.RunState, f cron.RunFilter) bool {
	if state.Active() {
		return f.IncludeActive || slices.Contains(f.States, state)
	}
	return len(f.States) == 0 || slices.Contains(f.States, state)
}

// Run reads one row; chat.ErrNotFound.
func (s *Store) Run(ctx context.Context, id, visible string) (cron.Run, error) {
	var out cron.Run
	err := s.do(ctx, "Run", func(time.Time) error {
		r := s.crons.ledger[id]
		if r == nil || (visible != "" && r.Owner != visible) {
			return chat.ErrNotFound
		}
		out = s.crons.run(r)
		return nil
	})
	return out, err
}

// Summary counts, see cron.JobStore.
func (s *Store) Summary(ctx context.Context, visible string) (cron.Summary, error) {
	var out cron.Summary
	err := s.do(ctx, "Summary", func(now time.Time) error {
		out = cron.Summary{OldestDue: -1, NextWake: s.crons.nextWake(visible, cron.ClaimParams{})}
		late := func(at time.Time) {
			if !at.IsZero() && !at.After(now) {
				out.Backlog++
				out.OldestDue = max(out.OldestDue, now.Sub(at))
			}
		}
		for _, j := range s.crons.jobs {
			if visible != "" && j.Owner != visible {
				continue
			}
			if j.Owner != cron.SystemOwner {
				out.Jobs++
			}
			if j.Pause != nil {
				out.Paused++
			} else {
				late(planned(j))
			}
		}
		for _, r := range s.crons.ledger {
			switch {
			case visible != "" && r.Owner != visible:
			case r.State == cron.RunRunning:
				out.Running++
			case r.State == cron.RunQueued:
				late(r.FireAt)
			}
		}
		return nil
	})
	return out, err
}

// Prune deletes old rows with their messages and runs, see cron.JobStore. A limit of 0 is no bound.
func (s *Store) Prune(ctx context.Context, p cron.PruneParams) (int, error) {
	gone := 0
	err := s.do(ctx, "Prune", func(time.Time) error {
		list := s.crons.rows(func(r *ledgerRow) bool { return r.State.Final() })
		slices.SortFunc(list, func(a, b *ledgerRow) int {
			return cmp.Or(b.FinishedAt.Compare(a.FinishedAt), cmp.Compare(b.ID, a.ID))
		})
		seen := map[string]int{}
		var old []*ledgerRow
		for _, r := range list {
			seen[r.JobID]++
			if (!p.Before.IsZero() && r.FinishedAt.Before(p.Before)) || (p.Keep > 0 && seen[r.JobID] > p.Keep) {
				old = append(old, r)
			}
		}
		slices.Reverse(old)
		old = piece(old, p.Limit, 0)
		for _, r := range old {
			s.forget(r)
		}
		gone = len(old)
		return nil
	})
	return gone, err
}

// forget deletes a row of the ledger with the messages and runs of all its attempts.
func (s *Store) forget(r *ledgerRow) {
	delete(s.crons.ledger, r.ID)
	delete(s.crons.message, r.message)
	for _, id := range r.messages() {
		if m := s.messages[id]; m != nil {
			delete(s.dedupe, m.dedupe)
		}
		delete(s.messages, id)
		delete(s.runs, id)
	}
	s.forgetSession(r)
}

// forgetSession deletes the session that a run had for itself, when nothing else is left in it.
func (s *Store) forgetSession(r *ledgerRow) {
	own := "cron:" + r.JobID + ":" + string(r.Trigger) + "-" + strconv.FormatInt(r.ScheduledFor.UnixMilli(), 10)
	for key := range s.sessions {
		if key.String() != r.SessionKey || key.Rest != own {
			continue
		}
		for _, m := range s.messages {
			if m.Session == key {
				return
			}
		}
		delete(s.sessions, key)
		delete(s.archive, key)
		delete(s.tombstones, key)
		return
	}
}
