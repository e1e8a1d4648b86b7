package sqlite

import (
	"context"

	"laneway/internal/chat"
)

// row has the columns of a session that a deletion needs.
type row struct {
	key, id, principal string
	epoch, lastSeq     int64
}

// find reads a session; ok is false when it does not exist.
func (t *tx) find(ctx context.Context, key chat.SessionKey) (r *row, ok bool, err error) {
	r = &row{key: key.String()}
	err = t.one(ctx, `SELECT session_id, principal, epoch, last_seq FROM sessions WHERE key = ?`, r.key).Scan(&r.id, &r.principal, &r.epoch, &r.lastSeq)
	if none(err) {
		return nil, false, nil
	}
	return r, err == nil, err
}
