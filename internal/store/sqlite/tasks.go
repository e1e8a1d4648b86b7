package sqlite

import (
	"context"
	"time"

	"laneway/internal/store"
)

// Spawn accepts the message of a sub-turn; see the port.
func (s *Store) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	in := incoming{AcceptParams: p.Accept}
	if err := in.encode(); err != nil {
		return store.Accepted{}, err
	}
	return result(ctx, s.write, ordinary("accept a sub-turn"), func(ctx context.Context, t *tx) (store.Accepted, error) {
		return t.spawn(ctx, &p, &in)
	})
}

func (t *tx) spawn(ctx context.Context, p *store.SpawnParams, in *incoming) (out store.Accepted, err error) {
	if _, _, err := t.holdRun(ctx, p.Claim, p.RunID); err != nil {
		return out, err
	}
	if old, known, err := t.findDuplicate(ctx, &in.Message); err != nil || known {
		return t.duplicate(ctx, in.Node, old, err)
	}
	var (
		stops          bool
		children, tree int
	)
	err = t.one(ctx, `SELECT (SELECT stop_by IS NOT NULL FROM runs WHERE id = ?1),
		(SELECT count(*) FROM inbox WHERE parent = ?1), (SELECT count(*) FROM inbox WHERE root = ?2)`, p.RunID, p.Root).Scan(&stops, &children, &tree)
	switch {
	case err != nil:
		return out, err
	case stops:
		return out, store.ErrRunStops
	case children >= p.MaxChildren:
		return out, store.ErrManyChildren
	case tree >= p.MaxTree:
		return out, store.ErrManyInTree
	}
	if out, err = t.accept(ctx, in); err != nil {
		return out, err
	}
	_, err = t.exec(ctx, `UPDATE inbox SET parent = ?, root = ?, announce = ? WHERE message_id = ?`, p.RunID, p.Root, p.Announce, in.Message.ID)
	return out, err
}

// Yield notes that a run has no slot, or has one again; see the port.
func (s *Store) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	return s.write.do(ctx, ordinary("yield a run"), func(ctx context.Context, t *tx) error {
		if _, _, err := t.holdRun(ctx, c, runID); err != nil {
			return err
		}
		state := store.RunRunning
		if away {
			state = store.RunYielded
		}
		_, err := t.exec(ctx, `UPDATE runs SET state = ? WHERE id = ?`, state, runID)
		return err
	})
}

// Announced notes that the end of a sub-turn needs no announcement any more; see the port.
func (s *Store) Announced(ctx context.Context, id string) error {
	return s.write.do(ctx, ordinary("note an announcement"), func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `UPDATE inbox SET announce = 0 WHERE message_id = ?`, id)
		return err
	})
}

// taskColumns read sub-turns from inbox, as taskRows joins it; the name of an index and conditions follow.
const (
	taskColumns = `
	SELECT i.message_id, i.session_key, i.parent, i.root, i.lane, substr(json_extract(i.body, '$.text'), 1, ?1), i.principal, i.state,
		coalesce(i.outcome, ''), i.reason, coalesce(r.error, ''), i.announce, coalesce(p.outcome, ''), i.accepted_at, r.started_at, i.ended_at, coalesce(r.state, '')
	FROM inbox i`
	taskRows = ` LEFT JOIN inbox p ON p.message_id = i.parent LEFT JOIN runs r ON r.id = i.message_id WHERE i.parent IS NOT NULL`
	// openTasks has the condition of the index inbox_tasks.
	openTasks = taskColumns + ` INDEXED BY inbox_tasks` + taskRows + ` AND (i.state <> 'done' OR i.announce = 1)`
)

func scanTask(row scanner) (v store.Task, err error) {
	var ran string
	err = row.Scan(&v.ID, keyColumn{&v.Session}, &v.Parent, &v.Root, &v.Lane, &v.Text, &v.Principal, &v.State,
		&v.Outcome, &v.Reason, &v.Error, &v.Announce, &v.ParentOutcome, timeColumn{&v.AcceptedAt}, timeColumn{&v.StartedAt}, timeColumn{&v.EndedAt}, &ran)
	v.Agent = v.Session.Agent
	return v.Ran(ran), err
}

// Tasks lists sub-turns; see the port.
func (s *Store) Tasks(ctx context.Context, f store.TaskFilter) (list []store.Task, err error) {
	parents, err := encode(append([]string{}, f.Parents...))
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "list sub-turns", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, tasksSQL(f), store.TaskText, f.ID, parents, f.Visible, f.RootSession.String(), f.Most())
		list, err = collect(rows, err, scanTask)
		return err
	})
	return list, err
}

// tasksSQL has the conditions that select something, behind the index that leads to them.
func tasksSQL(f store.TaskFilter) (sql string) {
	switch {
	case f.ID != "" || len(f.Parents) > 0:
		sql = taskColumns + taskRows
	case f.Open:
		sql = openTasks
	default:
		sql = taskColumns + ` INDEXED BY inbox_task_times` + taskRows
	}
	if f.Open {
		sql += ` AND i.state <> 'done'`
	}
	if f.ID != "" {
		sql += ` AND i.message_id = ?2`
	}
	if len(f.Parents) > 0 {
		sql += ` AND i.parent IN (SELECT value FROM json_each(?3))`
	}
	if f.Visible != "" {
		sql += ` AND i.principal = ?4`
	}
	if !f.RootSession.IsZero() {
		sql += ` AND EXISTS (SELECT 1 FROM inbox q WHERE q.message_id = i.root AND q.session_key = ?5)`
	}
	return sql + ` ORDER BY i.accepted_at DESC, i.message_id LIMIT +?6`
}

// LeftTasks lists what a crash may have left; see the port. Its cost follows the open sub-turns.
func (s *Store) LeftTasks(ctx context.Context, limit int) (list []store.Task, err error) {
	p := store.Poll{Kind: pollTasks}
	if _, resting, err := s.resting(ctx, p); resting || err != nil {
		return nil, err
	}
	now, changes := s.now(), s.gate.Changes()
	err = s.view(ctx, pollTasks, func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, openTasks+` AND CASE WHEN i.state = 'done' THEN i.announce = 1
			WHEN p.outcome IN ('stopped', 'superseded') THEN 1 ELSE p.outcome IS NOT NULL AND i.announce = 0 END
			ORDER BY i.accepted_at, i.message_id LIMIT +?2`, store.TaskText, max(limit, 0))
		list, err = collect(rows, err, scanTask)
		return err
	})
	if err == nil && len(list) == 0 && limit > 0 {
		s.gate.Rest(p, changes, now, time.Time{})
	}
	return list, err
}
