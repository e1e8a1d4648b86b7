package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Inbox is the life of messages from their acceptance to their outcome.
type Inbox struct {
	db   Engine
	cron Cron

	accepts  *together[*acceptOp]
	starts   *together[*startOp]
	finishes *together[*finishOp]
}

var _ store.Inbox = Inbox{}

func newInbox(db Engine, jobs Cron) Inbox {
	s := Inbox{db: db, cron: jobs}
	s.accepts = newTogether(db, "accept a message", s.acceptAll)
	s.starts = newTogether(db, "start a run", s.startAll)
	s.finishes = newTogether(db, "finish a run", s.finishAll)
	return s
}

// EndGroups waits for the shared transactions and prevents new ones.
func (s Inbox) EndGroups() {
	s.accepts.close()
	s.starts.close()
	s.finishes.close()
}

const (
	// messageColumns are the columns that scanMessage reads.
	messageColumns = `session_key, seq, COALESCE(message_id, ''), state, COALESCE(outcome, ''), reason, COALESCE(run_id, ''),
		COALESCE(merged_into, 0), lane, principal, channel, external_id, body, accepted_at`

	messagesSQL = `SELECT ` + messageColumns + ` FROM inbox WHERE session_key = $1 AND seq {ints $2} ORDER BY seq`

	// queuedFrom are the waiting messages of a session $1.
	queuedFrom = ` FROM inbox WHERE session_key = $1 AND {open} AND state <> 'running'`

	// filesOfRunsSQL reads the messages in the range of the runs. $1 session, $2 runs, $3 joinedAhead.
	filesOfRunsSQL = `WITH named AS MATERIALIZED (SELECT id, seq_from, seq_to FROM runs WHERE session_key = $1 AND id {in $2})
		SELECT run_id, {json body} ->> 'attachments' FROM inbox
		WHERE session_key = $1 AND seq BETWEEN (SELECT min(seq_from) FROM named) AND (SELECT max(seq_to) FROM named) + $3
			AND run_id IN (SELECT id FROM named) AND {json body} ->> 'attachments' IS NOT NULL
		ORDER BY seq`

	// runColumns are the columns that scanRun reads.
	runColumns = `id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, crashes, state, cause, error, detail, COALESCE(stop_by, ''), preview,
		outside, program, queued_at, started_at, ended_at, input_tokens, output_tokens, model, provider`
)

func scanMessage(r Row) (m store.Waiting, err error) {
	err = r.Scan(messageTargets(&m)...)
	return m, err
}

// messageTargets are the scan targets for messageColumns.
func messageTargets(m *store.Waiting) []any {
	return []any{
		keyColumn{&m.Session},
		&m.Seq, &m.MessageID, &m.State, (*string)(&m.Outcome), &m.Reason, &m.RunID, &m.MergedInto, &m.Lane, &m.Principal, &m.Channel,
		&m.ExternalID,
		jsonColumn{&m.Content},
		instant{&m.AcceptedAt},
	}
}

// runRow is a run with the transcript to which it writes.
type runRow struct {
	store.Run

	transcript string
}

func scanRun(r Row) (u runRow, err error) {
	err = r.Scan(&u.ID, keyColumn{&u.Session}, &u.transcript, &u.SeqFrom, &u.SeqTo, &u.Lane, &u.Owner, &u.Epoch, &u.Attempt, &u.Crashes,
		&u.State, &u.Cause, &u.Error, &u.Detail, &u.StopBy, &u.Preview, &u.Outside, jsonColumn{&u.Program}, instant{&u.QueuedAt}, instant{&u.StartedAt}, instant{&u.EndedAt},
		&u.Usage.InputTokens, &u.Usage.OutputTokens, &u.Usage.Model, &u.Usage.Provider)
	return u, err
}

// first reads the first row of a query; chat.ErrNotFound when the query has no rows.
func first[T any](ctx context.Context, db Engine, q query, scan func(Row) (T, error)) (v T, err error) {
	err = db.View(ctx, q.doing, func(ctx context.Context, tx Tx) error {
		found, err := one(ctx, tx, q.text, func(r Row) (err error) { v, err = scan(r); return err }, q.args...)
		if err == nil && !found {
			err = chat.ErrNotFound
		}
		return err
	})
	return v, err
}

// MessageByID finds a message by its id; chat.ErrNotFound.
func (s Inbox) MessageByID(ctx context.Context, id string) (store.Waiting, error) {
	return first(ctx, s.db, query{"find a message", `SELECT ` + messageColumns + ` FROM inbox WHERE message_id = $1`, []any{id}}, scanMessage)
}

// RunByID reads a run; chat.ErrNotFound.
func (s Inbox) RunByID(ctx context.Context, id string) (store.Run, error) {
	u, err := first(ctx, s.db, query{"find a run", `SELECT ` + runColumns + ` FROM runs WHERE id = $1`, []any{id}}, scanRun)
	return u.Run, err
}

// FilesOfRuns lists the files of the messages of runs; see store.Inbox.
func (s Inbox) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (found map[string][]chat.Attachment, err error) {
	err = s.db.List(ctx, "list files of messages", func(ctx context.Context, tx Tx) error {
		found = make(map[string][]chat.Attachment, len(runs))
		return tx.Query(ctx, filesOfRunsSQL, func(r Row) error {
			var (
				run   string
				files []chat.Attachment
			)
			err := r.Scan(&run, jsonColumn{&files})
			found[run] = append(found[run], files...)
			return err
		}, key.String(), runs, joinedAhead)
	})
	return found, err
}

// PendingInputs lists the waiting messages of a session, oldest first, and counts them as far as store.Counted.
func (s Inbox) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) (list []store.Waiting, total int, err error) {
	err = s.db.List(ctx, "list waiting messages", func(ctx context.Context, tx Tx) (err error) {
		if _, err := one(ctx, tx, `SELECT count(*) FROM (SELECT 1`+queuedFrom+` {limit $2}) n`, into(&total), key.String(), store.Counted+1); err != nil {
			return err
		}
		list, err = readPage(ctx, tx, page{
			columns: messageColumns, rows: `SELECT *, octet_length(body) AS page_size` + queuedFrom + ` AND seq > $2 ORDER BY seq {limit $3}`,
			args: []any{key.String(), after, max(limit, 0)},
		}, scanMessage)
		return err
	})
	return list, total, err
}
