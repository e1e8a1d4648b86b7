package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/store"
)

// task is what a message is besides a message: a sub-turn.
type task struct {
	parent, root string
	announce     bool
}

// Spawn accepts the message of a sub-turn, see store.Tasks.
func (s *Store) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	var out store.Accepted
	err := s.do(ctx, "Spawn", func(now time.Time) error {
		if _, err := s.holds(p.Claim, now); err != nil {
			return err
		}
		parent, err := s.claimed(p.Claim, p.RunID)
		if err != nil {
			return err
		}
		if old, err := s.findDuplicate(p.Accept.Message); old != nil || err != nil {
			if err == nil {
				out = s.duplicate(old, p.Accept.Node)
			}
			return err
		}
		children, tree := s.countTasks(p)
		switch {
		case parent.StopBy != "":
			return store.ErrRunStops
		case children >= p.MaxChildren:
			return store.ErrManyChildren
		case tree >= p.MaxTree:
			return store.ErrManyInTree
		}
		if out, err = s.accept(p.Accept, now); err == nil {
			s.messages[p.Accept.Message.ID].task = &task{parent: p.RunID, root: p.Root, announce: p.Announce}
		}
		return err
	})
	return out, err
}

func (s *Store) countTasks(p store.SpawnParams) (children, tree int) {
	for _, m := range s.messages {
		if m.task != nil && m.task.parent == p.RunID {
			children++
		}
		if m.task != nil && m.task.root == p.Root {
			tree++
		}
	}
	return children, tree
}

// Yield notes that a run has no slot, or has one again, see store.Tasks.
func (s *Store) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	return s.record(ctx, "Yield", c, runID, func(r *run) {
		if r.State = store.RunRunning; away {
			r.State = store.RunYielded
		}
	})
}

// Announced notes that the end of a sub-turn needs no announcement any more, see store.Tasks.
func (s *Store) Announced(ctx context.Context, id string) error {
	return s.do(ctx, "Announced", func(time.Time) error {
		if m := s.messages[id]; m != nil && m.task != nil {
			m.task.announce = false
		}
		return nil
	})
}

// Tasks lists sub-turns, see store.Tasks.
func (s *Store) Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error) {
	return s.listTasks(ctx, "Tasks", f.Most(), func(t store.Task) bool {
		root := s.messages[t.Root]
		return (f.ID == "" || f.ID == t.ID) && (len(f.Parents) == 0 || slices.Contains(f.Parents, t.Parent)) &&
			(f.Visible == "" || f.Visible == t.Principal) && (!f.Open || t.State != store.StateDone) &&
			(f.RootSession.IsZero() || root != nil && root.Session == f.RootSession)
	}, func(a, b store.Task) int { return cmp.Or(b.AcceptedAt.Compare(a.AcceptedAt), cmp.Compare(a.ID, b.ID)) })
}

// LeftTasks lists what a crash may have left, see store.Tasks.
func (s *Store) LeftTasks(ctx context.Context, limit int) ([]store.Task, error) {
	return s.listTasks(ctx, "LeftTasks", limit, func(t store.Task) bool { return t.Left() || t.State == store.StateDone && t.Announce },
		func(a, b store.Task) int { return cmp.Or(a.AcceptedAt.Compare(b.AcceptedAt), cmp.Compare(a.ID, b.ID)) })
}

func (s *Store) listTasks(ctx context.Context, op string, limit int, match func(store.Task) bool, order func(a, b store.Task) int) ([]store.Task, error) {
	var list []store.Task
	err := s.do(ctx, op, func(time.Time) error {
		for _, m := range s.messages {
			if m.task == nil {
				continue
			}
			if t := s.taskOf(m); match(t) {
				list = append(list, t)
			}
		}
		slices.SortFunc(list, order)
		list = list[:min(len(list), max(limit, 0))]
		return nil
	})
	return list, err
}

func (s *Store) taskOf(m *message) store.Task {
	t := store.Task{
		ID: m.MessageID, Session: m.Session, Parent: m.task.parent, Root: m.task.root, Lane: m.Lane, Text: m.Content.Text, Principal: m.Principal,
		Agent: m.Session.Agent, State: m.State, Outcome: m.Outcome, Reason: m.Reason, Announce: m.task.announce, AcceptedAt: m.AcceptedAt, EndedAt: m.endedAt,
	}
	if text := []rune(t.Text); len(text) > store.TaskText {
		t.Text = string(text[:store.TaskText])
	}
	if parent := s.messages[t.Parent]; parent != nil {
		t.ParentOutcome = parent.Outcome
	}
	ran := ""
	if r := s.runs[t.ID]; r != nil {
		t.Error, t.StartedAt, ran = r.Error, r.StartedAt, r.State
	}
	return t.Ran(ran)
}

// works reports whether a run has begun and was not ended, and its goroutine has not been given up.
func (r *run) works() bool { return r.State == store.RunRunning || r.State == store.RunYielded }
