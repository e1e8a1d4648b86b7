package sqlite

import (
	"context"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

// row has the columns of a sessions row that the write operations need. They read it once, change it here and write it back with save:
// inside the only writing transaction no other statement can change it in between.
type row struct {
	key                          string
	id, principal, mode          string
	lane                         string
	owner                        string
	ownerAlive                   bool
	epoch                        int64
	lastSeq, takenSeq, doneSeq   int64
	stopSeq, waiting, runLimit   int64
	debounceUntil, lastMessageAt int64
	transcriptSeq                int64
	notes                        map[string]string
}

const rowColumns = `s.key, s.session_id, s.principal, s.mode, s.lane, coalesce(s.owner, ''),
	coalesce(n.lease_until > ?, 0), s.epoch, s.last_seq, s.taken_seq, s.done_seq, s.stop_seq, s.waiting, s.run_limit, s.debounce_until,
	s.last_message_at, s.transcript_seq, s.notes`

func (r *row) fields() []any {
	return []any{
		&r.key, &r.id, &r.principal, &r.mode, &r.lane, &r.owner, &r.ownerAlive, &r.epoch, &r.lastSeq, &r.takenSeq, &r.doneSeq,
		&r.stopSeq, &r.waiting, &r.runLimit, &r.debounceUntil, &r.lastMessageAt, &r.transcriptSeq,
		jsonColumn{&r.notes},
	}
}

// find reads a session; ok is false when it does not exist.
func (t *tx) find(ctx context.Context, key chat.SessionKey) (r *row, ok bool, err error) {
	r = &row{}
	err = packed{t.one(ctx, `SELECT `+asOne+rowColumns+column+` FROM sessions s LEFT JOIN nodes n ON n.id = s.owner WHERE s.key = ?`,
		t.now, key.String())}.Scan(r.fields()...)
	if none(err) {
		return nil, false, nil
	}
	return r, err == nil, err
}

// findOrMake reads a session or makes it. A session that was deleted continues with its numbers, so that no message, claim or run from
// before the deletion matches one of the new session.
func (t *tx) findOrMake(ctx context.Context, key chat.SessionKey, principal string) (r *row, created bool, err error) {
	r, ok, err := t.find(ctx, key)
	if ok || err != nil {
		return r, false, err
	}
	r = &row{key: key.String(), id: newID(), principal: principal, runLimit: 1, notes: map[string]string{}}
	err = t.one(ctx, `SELECT last_seq, epoch FROM tombstones WHERE key = ?`, r.key).Scan(&r.lastSeq, &r.epoch)
	if err != nil && !none(err) {
		return nil, false, err
	}
	r.takenSeq, r.doneSeq = r.lastSeq, r.lastSeq
	_, err = t.exec(ctx, `
		INSERT INTO sessions (key, agent, principal, session_id, epoch, last_seq, taken_seq, done_seq, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.key, key.Agent, principal, r.id, r.epoch, r.lastSeq, r.takenSeq, r.doneSeq, t.now, t.now)
	return r, true, err
}

// save writes back what the message operations change.
func (t *tx) save(ctx context.Context, r *row) error {
	_, err := t.exec(ctx, `
		UPDATE sessions SET session_id = ?, lane = ?, owner = ?, epoch = ?, last_seq = ?, taken_seq = ?, done_seq = ?, stop_seq = ?,
			waiting = ?, run_limit = ?, debounce_until = ?, last_message_at = ?, transcript_seq = ?, updated_at = ?
		WHERE key = ?`,
		r.id, r.lane, null(r.owner), r.epoch, r.lastSeq, r.takenSeq, r.doneSeq, r.stopSeq,
		r.waiting, r.runLimit, r.debounceUntil, r.lastMessageAt, r.transcriptSeq, t.now, r.key)
	return err
}

// settle brings done_seq up to date after messages ended: the highest number below which everything has an outcome. It returns how many
// runs of the session are running or stopping.
func (t *tx) settle(ctx context.Context, r *row) (active int, err error) {
	var oldest int64
	err = t.one(ctx, `
		SELECT coalesce((SELECT min(seq) FROM inbox INDEXED BY inbox_unfinished WHERE session_key = ?1 AND state <> 'done'), 0),
			(SELECT count(*) FROM runs INDEXED BY runs_open WHERE session_key = ?1 AND state IN ('running', 'stopping', 'yielded'))`, r.key).Scan(&oldest, &active)
	if err != nil {
		return 0, err
	}
	r.doneSeq = r.lastSeq
	if oldest > 0 {
		r.doneSeq = oldest - 1
	}
	r.takenSeq = max(r.takenSeq, r.doneSeq)
	return active, nil
}

// idle reports that every message has an outcome.
func (r *row) idle() bool { return r.doneSeq == r.lastSeq }

// release ends the ownership of the session when nothing is left to do: no message without an outcome, and no goroutine that may still
// write. Both were read in the writer's transaction, so a concurrent accept either was seen or finds no owner.
func (r *row) release(active int) bool {
	if !r.idle() || active > 0 {
		return false
	}
	r.owner = ""
	return true
}

// newID makes an id that sorts by time. The random source of the platforms that we run on cannot fail.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
