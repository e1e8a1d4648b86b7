package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// treeSQL reads what decides about a further sub-turn of a run; the fence of the run's session comes before it. It locks the row of the root, so that
// sub-turns of one tree are counted one after the other, on whatever replica their parents run. It returns no row when the run does not run under the
// claim. $1 run, $2 session, $3 node, $4 epoch, $5 root.
const (
	lockRootSQL = `SELECT 1 FROM runs WHERE id = $1 FOR NO KEY UPDATE`
	treeSQL     = `
SELECT stop_by <> '', (SELECT count(*) FROM inbox WHERE parent = $1), (SELECT count(*) FROM inbox WHERE root = $5)
FROM runs WHERE id = $1 AND (session_key = $2) IS TRUE AND owner = $3 AND epoch = $4 AND state IN ('running', 'yielded')`
	markTaskSQL = `UPDATE inbox SET parent = $2, root = $3, announce = $4 WHERE message_id = $1`
	yieldSQL    = `
WITH r AS (
	UPDATE runs SET state = $5
	WHERE id = $1 AND (session_key = $2) IS TRUE AND owner = $3 AND epoch = $4 AND state IN ('running', 'yielded') RETURNING 1
)
SELECT 1 / count(*) FROM r`
)

// Spawn accepts the message of a sub-turn, see store.Tasks. A new one takes four round trips.
func (s *Store) Spawn(ctx context.Context, p store.SpawnParams) (store.Accepted, error) {
	a, err := s.newAcceptOp(p.Accept)
	if err != nil {
		return store.Accepted{}, err
	}
	repeated := false
	err = s.do(ctx, "accepting a sub-turn", func(ctx context.Context) error {
		a.out = store.Accepted{}
		err := pgx.BeginFunc(ctx, s.turns, func(tx pgx.Tx) error { return s.spawn(ctx, tx, p, a) })
		if errors.Is(err, errKnown) || isUnique(err) {
			err = a.findDuplicate(ctx, repeated)
		}
		repeated = true
		return err
	})
	return a.out, err
}

// errKnown undoes a transaction that finds its message accepted. It never leaves the package.
var errKnown = errors.New("the message is there")

func (s *Store) spawn(ctx context.Context, tx pgx.Tx, p store.SpawnParams, a *acceptOp) error {
	var (
		stops, known   bool
		children, tree int
	)
	b := &pgx.Batch{}
	s.fence(b, p.Claim)
	b.Queue(lockRootSQL, p.Root)
	b.Queue(`SELECT EXISTS (SELECT 1 FROM inbox WHERE message_id = $1)`, p.Accept.Message.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
	b.Queue(treeSQL, p.RunID, p.Session.String(), p.Node, p.Epoch, p.Root).QueryRow(func(row pgx.Row) error { return row.Scan(&stops, &children, &tree) })
	err := send(ctx, tx, b)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return chat.ErrFenced
	case err != nil:
		return err
	case known:
		return errKnown
	case stops:
		return store.ErrRunStops
	case children >= p.MaxChildren:
		return store.ErrManyChildren
	case tree >= p.MaxTree:
		return store.ErrManyInTree
	}
	if err := a.insert(ctx, tx, &pgx.Batch{}, 0); err != nil {
		return err
	}
	announce := 0
	if p.Announce {
		announce = 1
	}
	_, err = tx.Exec(ctx, markTaskSQL, p.Accept.Message.ID, p.RunID, p.Root, announce)
	return err
}

// Yield notes that a run has no slot, or has one again, see store.Tasks. One round trip.
func (s *Store) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	state := store.RunRunning
	if away {
		state = store.RunYielded
	}
	return s.do(ctx, "yielding a run", func(ctx context.Context) error {
		b := &pgx.Batch{}
		s.fence(b, c)
		b.Queue(yieldSQL, runID, c.Session.String(), c.Node, c.Epoch, state).QueryRow(func(row pgx.Row) error { return row.Scan(nil) })
		return send(ctx, s.turns, b)
	})
}

// Announced notes that the end of a sub-turn needs no announcement any more, see store.Tasks.
func (s *Store) Announced(ctx context.Context, id string) error {
	return s.do(ctx, "noting an announcement", func(ctx context.Context) error {
		_, err := s.turns.Exec(ctx, `UPDATE inbox SET announce = 0 WHERE message_id = $1`, id)
		return err
	})
}

// taskSQL reads sub-turns; conditions follow.
const taskSQL = `
SELECT i.message_id, i.session_key, i.parent, i.root, i.lane, left(i.body::json ->> 'text', $1), i.principal, i.state,
	COALESCE(i.outcome, ''), i.reason, COALESCE(r.error, ''), i.announce = 1, COALESCE(p.outcome, ''), i.accepted_at, COALESCE(r.started_at, 0),
	COALESCE(i.ended_at, 0), COALESCE(r.state, '')
FROM inbox i LEFT JOIN inbox p ON p.message_id = i.parent LEFT JOIN runs r ON r.id = i.message_id
WHERE i.parent IS NOT NULL`

func scanTask(row pgx.CollectableRow) (v store.Task, err error) {
	var (
		key, ran                 string
		accepted, started, ended int64
	)
	err = row.Scan(&v.ID, &key, &v.Parent, &v.Root, &v.Lane, &v.Text, &v.Principal, &v.State, &v.Outcome, &v.Reason, &v.Error, &v.Announce,
		&v.ParentOutcome, &accepted, &started, &ended, &ran)
	v.Session = parseKey(key)
	v.Agent = v.Session.Agent
	v.AcceptedAt, v.StartedAt, v.EndedAt = fromMillis(accepted), fromMillis(started), fromMillis(ended)
	return v.Ran(ran), err
}

// Tasks lists sub-turns, see store.Tasks.
func (s *Store) Tasks(ctx context.Context, f store.TaskFilter) (list []store.Task, err error) {
	sql, args := tasksSQL(f)
	err = s.do(ctx, "listing sub-turns", func(ctx context.Context) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(sql, args...).Query(collect(&list, scanTask))
		return send(ctx, s.turns, b)
	})
	return list, err
}

// tasksSQL has the conditions that select something, so that each is found by its index.
func tasksSQL(f store.TaskFilter) (sql string, args []any) {
	sql, args = taskSQL, []any{store.TaskText, f.Most()}
	where := func(condition string, value any) {
		args = append(args, value)
		sql += ` AND ` + strings.Replace(condition, "?", "$"+strconv.Itoa(len(args)), 1)
	}
	if f.Open {
		sql += ` AND i.ended_at IS NULL`
	}
	if f.ID != "" {
		where(`i.message_id = ?`, clean(f.ID))
	}
	if len(f.Parents) > 0 {
		where(`i.parent = ANY(?::text[])`, f.Parents)
	}
	if f.Visible != "" {
		where(`i.principal = ?`, clean(f.Visible))
	}
	if !f.RootSession.IsZero() {
		where(`EXISTS (SELECT 1 FROM inbox q WHERE q.message_id = i.root AND q.session_key = ?)`, f.RootSession.String())
	}
	return sql + ` ORDER BY i.accepted_at DESC, i.message_id LIMIT $2`, args // the order of the index inbox_task_times
}

// LeftTasks lists what a crash may have left, see store.Tasks.
func (s *Store) LeftTasks(ctx context.Context, limit int) (list []store.Task, err error) {
	err = s.do(ctx, "listing left sub-turns", func(ctx context.Context) error {
		list = nil
		b := &pgx.Batch{}
		b.Queue(taskSQL+` AND (i.ended_at IS NULL OR i.announce = 1) AND CASE WHEN i.ended_at IS NOT NULL THEN i.announce = 1
	WHEN p.outcome IN ('stopped', 'superseded') THEN true ELSE p.outcome IS NOT NULL AND i.announce = 0 END
ORDER BY i.accepted_at, i.message_id LIMIT $2`, store.TaskText, max(limit, 0)).Query(collect(&list, scanTask))
		return send(ctx, s.turns, b)
	})
	return list, err
}
