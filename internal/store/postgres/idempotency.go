package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// reserveSQL inserts the record of a call. It returns no row when a record exists that is still kept. It waits for a transaction that
// inserts the same key. $1 clock, $2 owner, $3 method, $4 key, $5 hash, $6 how long records are kept.
const reserveSQL = `
INSERT INTO answers AS a (owner, method, key, hash, answer, at) VALUES ($2, $3, $4, $5, '', ` + nowSQL + `)
ON CONFLICT (owner, method, key) DO UPDATE SET hash = excluded.hash, answer = '', at = excluded.at WHERE a.at <= excluded.at - $6::bigint
RETURNING 1`

const answeredSQL = `SELECT hash, answer FROM answers WHERE owner = $2 AND method = $3 AND key = $4 AND at > ` + nowSQL + ` - $5::bigint`

// idempotent runs do and writes its result in the same transaction. When a record of this key exists, idempotent returns its result and
// does not run do. Without a key it only runs do.
func idempotent[T any](ctx context.Context, s *Store, tx pgx.Tx, o *chat.IdempotencyKey, do func() (T, error)) (out T, err error) {
	if o == nil {
		return do()
	}
	tag, err := tx.Exec(ctx, reserveSQL, s.clock(), o.Owner, o.Method, o.Key, o.Hash, store.IdempotencyTTL.Milliseconds())
	if err != nil {
		return out, err
	}
	if tag.RowsAffected() == 0 {
		raw, err := s.findRecord(ctx, tx, *o)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			return out, fmt.Errorf("reading the answer to %s: %w", o.Method, err)
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

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// findRecord reads the record of a call that is still kept; nil = there is none.
func (s *Store) findRecord(ctx context.Context, q rowQuerier, o chat.IdempotencyKey) (json.RawMessage, error) {
	var hash, answer string
	err := q.QueryRow(ctx, answeredSQL, s.clock(), o.Owner, o.Method, o.Key, store.IdempotencyTTL.Milliseconds()).Scan(&hash, &answer)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	case hash != o.Hash:
		return nil, chat.ErrKeyReused
	}
	return json.RawMessage(answer), nil
}

// IdempotencyRecord reads the result of the first call with a key, see store.IdempotencyRecords.
func (s *Store) IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (answer json.RawMessage, err error) {
	err = s.do(ctx, "reading an answer", func(ctx context.Context) error {
		answer, err = s.findRecord(ctx, s.pool, o)
		return err
	})
	return answer, err
}

// PruneIdempotencyRecords deletes old records, see store.IdempotencyRecords.
func (s *Store) PruneIdempotencyRecords(ctx context.Context, limit int) (n int, err error) {
	err = s.do(ctx, "pruning the answers", func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `DELETE FROM answers WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM answers WHERE at <= `+nowSQL+` - $2::bigint ORDER BY at LIMIT $3 FOR UPDATE SKIP LOCKED))`,
			s.clock(), store.IdempotencyTTL.Milliseconds(), limit)
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// Audit adds one row to the log of changes.
func (s *Store) Audit(ctx context.Context, a chat.Audit) error {
	return s.do(ctx, "writing the log of changes", func(ctx context.Context) error {
		b := &pgx.Batch{}
		if err := s.audit(b, &a); err != nil {
			return err
		}
		return send(ctx, s.pool, b)
	})
}
