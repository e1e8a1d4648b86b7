package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Calls are the results of calls with an idempotency key, and the audit log.
type Calls struct{ db Engine }

var _ store.IdempotencyRecords = Calls{}

const (
	// reserveSQL inserts the record of a call. It changes no row when an unexpired record exists. On PostgreSQL it waits for a transaction that inserts the
	// same key. $5 is how long records are kept.
	reserveSQL = `INSERT INTO answers AS a (owner, method, key, hash, answer, at) VALUES ($1, $2, $3, $4, '', {now})
		ON CONFLICT (owner, method, key) DO UPDATE SET hash = excluded.hash, answer = '', at = excluded.at WHERE a.at <= excluded.at - $5`

	findRecordSQL = `SELECT hash, answer FROM answers WHERE owner = $1 AND method = $2 AND key = $3 AND at > {now} - $4`
)

// idempotent runs do and writes its result in the same transaction. When a record of this key exists, it returns the recorded result and does not run do.
// Without a key it only runs do.
func idempotent[T any](ctx context.Context, tx Tx, o *chat.IdempotencyKey, do func() (T, error)) (out T, err error) {
	if o == nil {
		return do()
	}
	n, err := tx.Exec(ctx, reserveSQL, o.Owner, o.Method, o.Key, o.Hash, store.IdempotencyTTL.Milliseconds())
	if err != nil {
		return out, err
	}
	if n == 0 {
		raw, err := findRecord(ctx, tx, *o)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			return out, fmt.Errorf("read the answer to %s: %w", o.Method, err)
		}
		return out, nil
	}
	if out, err = do(); err != nil {
		return out, err
	}
	answer, err := encode(out)
	if err != nil {
		return out, err
	}
	_, err = tx.Exec(ctx, `UPDATE answers SET answer = $4 WHERE owner = $1 AND method = $2 AND key = $3`, o.Owner, o.Method, o.Key, answer)
	return out, err
}

// findRecord reads the unexpired record of a call; nil when none exists.
func findRecord(ctx context.Context, tx Tx, o chat.IdempotencyKey) (json.RawMessage, error) {
	var hash, answer string
	found, err := one(ctx, tx, findRecordSQL, into(&hash, &answer), o.Owner, o.Method, o.Key, store.IdempotencyTTL.Milliseconds())
	switch {
	case err != nil || !found:
		return nil, err
	case hash != o.Hash:
		return nil, chat.ErrKeyReused
	}
	return json.RawMessage(answer), nil
}

// IdempotencyRecord reads the result of the first call with a key; see store.IdempotencyRecords.
func (s Calls) IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (answer json.RawMessage, err error) {
	err = s.db.View(ctx, "read an answer", func(ctx context.Context, tx Tx) error {
		answer, err = findRecord(ctx, tx, o)
		return err
	})
	return answer, err
}

// Audit adds one row to the audit log.
func (s Calls) Audit(ctx context.Context, a chat.Audit) error {
	return s.db.Update(ctx, "write the log of changes", func(ctx context.Context, tx Tx) error { return audit(ctx, tx, &a, "") })
}

// audit adds a row to the audit log, unless a is nil. The row's object is the object of a, or the given one when that is empty.
func audit(ctx context.Context, tx Tx, a *chat.Audit, object string) error {
	if a == nil {
		return nil
	}
	if a.Object != "" {
		object = a.Object
	}
	return logChange(ctx, tx, store.ChangedBy{Who: a.Who, Peer: a.Peer, RequestID: a.RequestID}, Change{a.Verb, object, a.Before, a.After})
}
