package sqlstore

import (
	"context"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// SubTurns are messages that running turns have requested.
type SubTurns struct{ db Engine }

// Yield records that a run has no slot, or has one again; see store.Tasks.
func (s SubTurns) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	state := store.RunRunning
	if away {
		state = store.RunYielded
	}
	return s.db.Turn(ctx, "yield a run", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET state = $2 WHERE id = $1`, nil, runID, state)
	})
}

// Announced records that the end of a sub-turn needs no further announcement; see store.Tasks.
func (s SubTurns) Announced(ctx context.Context, id string) error {
	return s.db.Turn(ctx, "note an announcement", Alone, func(ctx context.Context, tx Tx) error {
		return tx.Later(ctx, `UPDATE inbox SET announce = 0 WHERE message_id = $1`, nil, id)
	})
}

// taskSQL reads sub-turns; %s is an index hint, and conditions follow. $1 characters of the message.
const taskSQL = `SELECT i.message_id, i.session_key, i.parent, i.root, i.lane, substr({json i.body} ->> 'text', 1, CAST($1 AS integer)), i.principal, i.state,
		COALESCE(i.outcome, ''), i.reason, COALESCE(r.error, ''), i.announce = 1, COALESCE(p.outcome, ''), i.accepted_at, r.started_at, i.ended_at,
		COALESCE(r.state, '')
	FROM inbox i%s LEFT JOIN inbox p ON p.message_id = i.parent LEFT JOIN runs r ON r.id = i.message_id WHERE i.parent IS NOT NULL`

// taskRows is taskSQL with the index that SQLite must use; "" leaves the choice to SQLite.
func taskRows(index string) string {
	if index != "" {
		index = " {by " + index + "}"
	}
	return strings.Replace(taskSQL, "%s", index, 1)
}

// openTasks is the condition of the index inbox_tasks, which the engines have in two forms.
func openTasks(tx Tx) string {
	return taskRows("inbox_tasks") + ` AND (` + tx.PerEngine(`i.ended_at IS NULL`, `i.state <> 'done'`) + ` OR i.announce = 1)`
}

func scanTask(r Row) (v store.Task, err error) {
	var ran string
	err = r.Scan(&v.ID, keyColumn{&v.Session}, &v.Parent, &v.Root, &v.Lane, &v.Text, &v.Principal, &v.State, &v.Outcome, &v.Reason, &v.Error, &v.Announce,
		&v.ParentOutcome, instant{&v.AcceptedAt}, instant{&v.StartedAt}, instant{&v.EndedAt}, &ran)
	v.Agent, v.State = v.Session.Agent, store.StateOf(v.State, ran)
	return v, err
}

// Tasks lists sub-turns; see store.Tasks. Reading what a crash may have left is a poll.
func (s SubTurns) Tasks(ctx context.Context, f store.TaskFilter) (list []store.Task, err error) {
	if f.Left {
		return poll(ctx, s.db, store.Poll{Kind: PollTasks}, func(ctx context.Context, tx Tx) (left found[[]store.Task], err error) {
			text, args := tasksSQL(tx, f)
			left.out, err = all(ctx, tx, text, scanTask, args...)
			left.idle = len(left.out) == 0
			return left, err
		})
	}
	err = s.db.List(ctx, "list sub-turns", func(ctx context.Context, tx Tx) (err error) {
		text, args := tasksSQL(tx, f)
		list, err = all(ctx, tx, text, scanTask, args...)
		return err
	})
	return list, err
}

// leftTasks selects what a crash may have left. Its cost is proportional to the open sub-turns.
const leftTasks = ` AND CASE WHEN i.state = 'done' THEN i.announce = 1 WHEN p.outcome IN ('` + string(chat.OutcomeStopped) + `', '` + string(chat.OutcomeSuperseded) + `') THEN true
	ELSE p.outcome IS NOT NULL AND i.announce = 0 END ORDER BY i.accepted_at, i.message_id {limit $2}`

// tasksSQL contains only the conditions in use, so that each can use its index.
func tasksSQL(tx Tx, f store.TaskFilter) (text string, args []any) {
	args = []any{store.TaskText, f.Most()}
	switch {
	case f.Left:
		return openTasks(tx) + leftTasks, args
	case f.ID != "" || len(f.Parents) > 0:
		text = taskRows("")
	case f.Open:
		text = openTasks(tx)
	default:
		text = taskRows("inbox_task_times")
	}
	where := func(condition string, value any) {
		args = append(args, value)
		text += ` AND ` + strings.Replace(condition, "$n", "$"+strconv.Itoa(len(args)), 1)
	}
	if f.Open {
		text += ` AND {open i}`
	}
	if f.ID != "" {
		where(`i.message_id = $n`, f.ID)
	}
	if len(f.Parents) > 0 {
		where(`i.parent {in $n}`, f.Parents)
	}
	if f.Visible != "" {
		where(`i.principal = $n`, f.Visible)
	}
	if !f.RootSession.IsZero() {
		where(`EXISTS (SELECT 1 FROM inbox q WHERE q.message_id = i.root AND q.session_key = $n)`, f.RootSession.String())
	}
	return text + ` ORDER BY i.accepted_at DESC, i.message_id {limit $2}`, args // the order of the index inbox_task_times
}
