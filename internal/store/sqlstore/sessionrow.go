package sqlstore

import (
	"context"
	"errors"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// sessionRow has the columns of a session that operations on its messages need. They read it once, under its lock, change it in memory and write it back.
type sessionRow struct {
	key, id, principal, mode, lane string
	owner                          string
	ownerAlive                     bool
	epoch                          int64
	lastSeq, takenSeq, doneSeq     int64
	stopSeq, waiting, runLimit     int64
	debounceUntil, lastMessageAt   int64
	transcriptSeq, createdAt       int64
	notes                          map[string]string
}

const (
	// lockRowsSQL waits for locks, in one order. The rows are then read by a further statement, which sees the current state of the nodes.
	lockRowsSQL = `SELECT key FROM sessions WHERE key {in $1} ORDER BY key {lock}`

	// rowsSQL and rowSQL lock the rows that they read. They skip rows that another transaction has locked.
	readRows = `SELECT s.key, s.session_id, s.principal, s.mode, s.lane, COALESCE(s.owner, ''),
			COALESCE((SELECT n.lease_until > {now} FROM nodes n WHERE n.id = s.owner), false), s.epoch,
			s.last_seq, s.taken_seq, s.done_seq, s.stop_seq, s.waiting, s.run_limit, s.debounce_until, s.last_message_at, s.transcript_seq, s.created_at, s.notes, {now}
		FROM sessions s WHERE `
	rowsSQL = readRows + `s.key {in $1} {skip}`
	rowSQL  = readRows + `s.key = $1 {skip}`

	saveRowsSQL = `{set key text, lane text, owner text, epoch int, last int, taken int, done int, waiting int, runs int, hold int, message int, entry int}
		UPDATE sessions AS s SET lane = v.lane, owner = NULLIF(v.owner, ''), epoch = v.epoch, last_seq = v.last, taken_seq = v.taken, done_seq = v.done,
			waiting = v.waiting, run_limit = v.runs, debounce_until = v.hold, last_message_at = v.message, transcript_seq = v.entry, updated_at = {now}
		{from} WHERE s.key = v.key`

	endStoppingOfDeadSQL = `UPDATE runs SET state = 'stopped', ended_at = {now} WHERE ended_at IS NULL AND state IN ('running', 'stopping', 'yielded')
		AND state = 'stopping' AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = runs.owner AND n.lease_until > {now})`
)

// ErrAgain means that another transaction has changed a row on which this one relies. The engine runs it again.
var ErrAgain = errors.New("another transaction was faster")

// sessionRows are the rows of locked sessions, by key, and the clock.
type sessionRows struct {
	rows map[string]*sessionRow
	now  int64
}

// lockRows locks sessions and reads them; the rows are available after the next Query. With wait it waits for locks, else it skips rows that another
// transaction has locked.
func lockRows(ctx context.Context, tx Tx, keys []string, wait bool) (*sessionRows, error) {
	l := &sessionRows{rows: make(map[string]*sessionRow, len(keys))}
	if wait && tx.PerEngine("locks", "") != "" {
		if err := tx.Later(ctx, lockRowsSQL, nil, keys); err != nil {
			return nil, err
		}
	}
	text, arg := rowsSQL, any(keys)
	if len(keys) == 1 { // the usual case needs no list
		text, arg = rowSQL, keys[0]
	}
	return l, tx.Later(ctx, text, func(r Row) error {
		s := &sessionRow{}
		err := r.Scan(&s.key, &s.id, &s.principal, &s.mode, &s.lane, &s.owner, &s.ownerAlive, &s.epoch, &s.lastSeq, &s.takenSeq, &s.doneSeq,
			&s.stopSeq, &s.waiting, &s.runLimit, &s.debounceUntil, &s.lastMessageAt, &s.transcriptSeq, &s.createdAt, jsonColumn{&s.notes}, &l.now)
		l.rows[s.key] = s
		return err
	}, arg)
}

// heldBy returns the session of a claim; nil when the claim does not hold.
func (l *sessionRows) heldBy(c store.Claim) *sessionRow {
	r := l.rows[c.Session.String()]
	if r == nil || r.owner != c.Node || r.epoch != c.Epoch || !r.ownerAlive {
		return nil
	}
	return r
}

// idle reports that every message has an outcome.
func (r *sessionRow) idle() bool { return r.doneSeq == r.lastSeq }

// settle updates done_seq; oldest is the first message without an outcome, 0 when none exists.
func (r *sessionRow) settle(oldest int64) {
	r.doneSeq = r.lastSeq
	if oldest > 0 {
		r.doneSeq = oldest - 1
	}
	r.takenSeq = max(r.takenSeq, r.doneSeq)
}

// release ends the ownership of the session when no work is left: no message without an outcome, and no goroutine that may still write.
func (r *sessionRow) release(active int64) bool {
	if !r.idle() || active > 0 {
		return false
	}
	r.owner = ""
	return true
}

// values are the row for saveRowsSQL.
func (r *sessionRow) values() []any {
	return []any{
		r.key, r.lane, r.owner, r.epoch, r.lastSeq, r.takenSeq, r.doneSeq, r.waiting, r.runLimit, r.debounceUntil, r.lastMessageAt, r.transcriptSeq,
	}
}

func saveRows(ctx context.Context, tx Tx, rows ...*sessionRow) error {
	if len(rows) == 0 {
		return nil
	}
	set := make(Set, len(rows))
	for i, r := range rows {
		set[i] = r.values()
	}
	return tx.Later(ctx, saveRowsSQL, nil, set)
}

const (
	// restSQL is the remaining work of sessions besides a run: the oldest message without an outcome that is not part of the run, and how many other runs are
	// running or stopping.
	restSQL = `{set key text, run text}
		SELECT v.key, COALESCE((SELECT min(i.seq) FROM inbox i WHERE i.session_key = v.key AND i.ended_at IS NULL AND i.state <> 'done'
				AND NOT (i.state = 'running' AND COALESCE(i.run_id, '') = v.run)), 0),
			(SELECT count(*) FROM runs r WHERE r.session_key = v.key AND r.ended_at IS NULL AND r.state IN ('running', 'stopping', 'yielded') AND r.id <> v.run)
		{from}`
	restOnSQLite = `{set key text, run text}
		SELECT v.key, COALESCE((SELECT min(i.seq) FROM inbox i INDEXED BY inbox_unfinished WHERE i.session_key = v.key AND i.state <> 'done'
				AND NOT (i.state = 'running' AND COALESCE(i.run_id, '') = v.run)), 0),
			(SELECT count(*) FROM runs r INDEXED BY runs_open WHERE r.session_key = v.key AND r.state IN ('running', 'stopping', 'yielded') AND r.id <> v.run)
		{from}`
)

// rest is the remaining work of a session besides a run.
type rest struct{ oldest, active int64 }

// readRest reads the remaining work of sessions besides their runs; each row of the set is (key, run).
func readRest(ctx context.Context, tx Tx, of Set) (map[string]rest, error) {
	left := make(map[string]rest, len(of))
	return left, tx.Later(ctx, tx.PerEngine(restSQL, restOnSQLite), func(r Row) error {
		var (
			key string
			v   rest
		)
		err := r.Scan(&key, &v.oldest, &v.active)
		left[key] = v
		return err
	}, of)
}

// ending is the outcome of messages that wait.
type ending struct {
	outcome chat.Outcome
	reason  string
	notice  *store.Outgoing // nil when no notice is sent
}

const endMessagesSQL = `{set seq int} UPDATE inbox AS i SET state = 'done', outcome = $2, reason = $3, ended_at = {now}, notice_id = COALESCE(CAST($4 AS text), notice_id)
	{from} WHERE i.session_key = $1 AND i.seq = v.seq`

// endMessages gives waiting messages of a session their outcome, in the table and in the list, adds the notice, and ends the job runs that they belonged to.
// The session is locked.
func endMessages(ctx context.Context, tx Tx, session string, list []store.Waiting, e ending) error {
	if len(list) == 0 {
		return nil
	}
	notice, err := notify(ctx, tx, session, e.notice, len(list))
	if err != nil {
		return err
	}
	set := make(Set, len(list))
	for i := range list {
		m := &list[i]
		m.State, m.Outcome, m.Reason = store.StateDone, e.outcome, chat.CleanText(e.reason)
		set[i] = []any{m.Seq}
	}
	if err := tx.Later(ctx, endMessagesSQL, nil, session, string(e.outcome), e.reason, null(notice), set); err != nil {
		return err
	}
	return endRunsOf(ctx, tx, list)
}

// EndWaiting gives waiting messages an outcome; see store.Inbox.
func (s Inbox) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	if p.Outcome == "" {
		return nil, chat.Errorf(chat.CodeInvalid, "a message that ends needs an outcome")
	}
	return result(ctx, s.db.Update, "end waiting messages", func(ctx context.Context, tx Tx) ([]store.Waiting, error) {
		key := p.Session.String()
		if _, err := lockRows(ctx, tx, []string{key}, true); err != nil {
			return nil, err
		}
		list, err := all(ctx, tx, messagesSQL, scanMessage, key, p.Seqs)
		if err != nil {
			return nil, err
		}
		var before, ended []store.Waiting
		for _, m := range list {
			switch {
			case m.State == store.StateHeld || m.State == store.StateWaiting:
				ended = append(ended, m)
			case (p.Again || tx.Repeated()) && m.State == store.StateDone && m.Outcome == p.Outcome && m.Reason == chat.CleanText(p.Reason):
				before = append(before, m)
			}
		}
		if err := endRunsOf(ctx, tx, before); err != nil {
			return nil, err
		}
		if len(ended) == 0 {
			return before, nil
		}
		if err := endMessages(ctx, tx, key, ended, ending{p.Outcome, p.Reason, p.Notice}); err != nil {
			return nil, err
		}
		return slices.Concat(before, ended), settle(ctx, tx, []string{key})
	})
}
