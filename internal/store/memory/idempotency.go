package memory

import (
	"context"
	"encoding/json"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// call is the name of a call with an idempotency key.
type call struct{ owner, method, key string }

// answer is its result.
type answer struct {
	hash string
	json json.RawMessage
	at   time.Time
}

// idempotent runs do and keeps its result. When a record of this key exists, idempotent returns its result and does not run do.
func idempotent[T any](s *Store, o *chat.IdempotencyKey, now time.Time, do func() (T, error)) (out T, err error) {
	if o == nil {
		return do()
	}
	raw, err := s.answered(*o, now)
	if err != nil {
		return out, err
	}
	if raw != nil {
		return out, json.Unmarshal(raw, &out)
	}
	if out, err = do(); err != nil {
		return out, err
	}
	raw, err = json.Marshal(out)
	s.answers[call{o.Owner, o.Method, o.Key}] = answer{hash: o.Hash, json: raw, at: now}
	return out, err
}

func (s *Store) answered(o chat.IdempotencyKey, now time.Time) (json.RawMessage, error) {
	a, ok := s.answers[call{o.Owner, o.Method, o.Key}]
	switch {
	case !ok || now.Sub(a.at) >= store.IdempotencyTTL:
		return nil, nil
	case a.hash != o.Hash:
		return nil, chat.ErrKeyReused
	}
	return a.json, nil
}

// IdempotencyRecord reads the result of the first call with a key, see store.IdempotencyRecords.
func (s *Store) IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (out json.RawMessage, err error) {
	err = s.do(ctx, "Answered", func(now time.Time) error {
		out, err = s.answered(o, now)
		return err
	})
	return out, err
}

// PruneIdempotencyRecords deletes old records, see store.IdempotencyRecords.
func (s *Store) PruneIdempotencyRecords(ctx context.Context, limit int) (n int, err error) {
	err = s.do(ctx, "PruneIdempotencyRecords", func(now time.Time) error {
		for name, a := range s.answers {
			if n < limit && now.Sub(a.at) >= store.IdempotencyTTL {
				delete(s.answers, name)
				n++
			}
		}
		return nil
	})
	return n, err
}

// Audit adds one row to the log of changes.
func (s *Store) Audit(ctx context.Context, a chat.Audit) error {
	return s.do(ctx, "Audit", func(now time.Time) error {
		s.crons.write(&a, now)
		return nil
	})
}
