package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// idempotent runs do and writes its result in the same transaction. When a record of this key exists, idempotent returns its result and
// does not run do. Without a key it only runs do.
func idempotent[T any](ctx context.Context, t *tx, o *chat.IdempotencyKey, do func() (T, error)) (out T, err error) {
	if o == nil {
		return do()
	}
	raw, err := findRecord(ctx, t, *o, t.now)
	if err != nil {
		return out, err
	}
	if raw != nil {
		if err := json.Unmarshal(raw, &out); err != nil {
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
	_, err = t.exec(ctx, `REPLACE INTO answers (owner, method, key, hash, answer, at) VALUES (?, ?, ?, ?, ?, ?)`,
		o.Owner, o.Method, o.Key, o.Hash, answer, t.now)
	return out, err
}

// findRecord reads the record of a call that is still kept; nil = there is none.
func findRecord(ctx context.Context, q querier, o chat.IdempotencyKey, now int64) (json.RawMessage, error) {
	var hash, answer string
	err := q.one(ctx, `SELECT hash, answer FROM answers WHERE owner = ? AND method = ? AND key = ? AND at > ?`,
		o.Owner, o.Method, o.Key, now-store.IdempotencyTTL.Milliseconds()).Scan(&hash, &answer)
	switch {
	case none(err):
		return nil, nil
	case err != nil:
		return nil, err
	case hash != o.Hash:
		return nil, chat.ErrKeyReused
	}
	return json.RawMessage(answer), nil
}

// IdempotencyRecord reads the result of the first call with a key; see the port.
func (s *Store) IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (answer json.RawMessage, err error) {
	err = s.view(ctx, "read an answer", func(ctx context.Context, q querier) error {
		answer, err = findRecord(ctx, q, o, s.now().UnixMilli())
		return err
	})
	return answer, err
}

// PruneIdempotencyRecords deletes old records; see the port.
func (s *Store) PruneIdempotencyRecords(ctx context.Context, limit int) (int, error) {
	return result(ctx, s.write, ordinary("prune the answers"), func(ctx context.Context, t *tx) (int, error) {
		n, err := t.exec(ctx, `DELETE FROM answers WHERE (owner, method, key) IN (SELECT owner, method, key FROM answers WHERE at <= ? ORDER BY at LIMIT +?)`,
			t.now-store.IdempotencyTTL.Milliseconds(), limit)
		return int(n), err
	})
}

// Audit adds one row to the log of changes.
func (s *Store) Audit(ctx context.Context, a chat.Audit) error {
	return s.write.do(ctx, ordinary("write the log of changes"), func(ctx context.Context, t *tx) error { return t.audit(ctx, &a, "") })
}
