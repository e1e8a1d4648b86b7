package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const duplicateSQL = `
SELECT ` + waitingColumns + `, COALESCE(i.dedupe, ''), i.params_hash, i.node,
	COALESCE(s.owner, ''), COALESCE(s.epoch, 0), COALESCE(s.session_id, ''), COALESCE(s.principal, ''), COALESCE(s.mode, '')
FROM inbox i LEFT JOIN sessions s ON s.key = i.session_key
WHERE i.message_id = $1 OR i.dedupe = $2
ORDER BY (i.dedupe = $2) IS TRUE DESC LIMIT 1`

// findDuplicate returns the message that was accepted before, or chat.ErrKeyReused when its key names another message. chat.ErrNotFound:
// there is none. After a try whose answer was lost, the message of this call is not a duplicate: the caller has not got its result yet.
func (a *acceptOp) findDuplicate(ctx context.Context, repeated bool) error {
	old, err := one(ctx, a.s, earlier{}.scan, duplicateSQL, a.p.Message.ID, orNull(a.p.Message.Dedupe))
	if err != nil {
		return orNone(err, chat.ErrNotFound)
	}
	if !old.is(a.p.Message) {
		return chat.ErrKeyReused
	}
	if a.p.Offset != nil {
		b := &pgx.Batch{}
		a.moveOffset(b)
		if err := send(ctx, a.s.turns, b); err != nil {
			return err
		}
	}
	a.out = old.accepted
	a.out.Mine = a.out.Owner != "" && a.out.Owner == a.p.Node
	if repeated && old.accepted.Existing.MessageID == a.p.Message.ID && old.node == a.p.Node {
		a.out.Duplicate, a.out.Existing = false, store.Waiting{}
	}
	return nil
}

// earlier is a message that was accepted before.
type earlier struct {
	accepted           store.Accepted
	dedupe, hash, node string
}

func (earlier) scan(row pgx.CollectableRow) (earlier, error) {
	var e earlier
	out := &e.accepted
	w, err := scanWaiting(prefixRow{row, []any{&e.dedupe, &e.hash, &e.node, &out.Owner, &out.Epoch, &out.SessionID, &out.Principal, &out.Mode}})
	out.Duplicate, out.Existing, out.Seq, out.AcceptedAt = true, w, w.Seq, w.AcceptedAt
	return e, err
}

func (e earlier) is(m chat.Message) bool {
	return e.dedupe == m.Dedupe && (e.hash == "" || m.ParamsHash == "" || e.hash == m.ParamsHash)
}

// prefixRow lets a scan function read the first columns of a row; tail reads the others.
type prefixRow struct {
	pgx.CollectableRow

	tail []any
}

// Scan reads the whole row.
func (r prefixRow) Scan(dest ...any) error {
	if err := r.CollectableRow.Scan(append(dest, r.tail...)...); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	return nil
}
