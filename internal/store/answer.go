package store

import (
	"context"
	"encoding/json"
	"fmt"

	"laneway/internal/chat"
)

// idempotencyReader reads [IdempotencyRecords].
type idempotencyReader interface {
	IdempotencyRecord(ctx context.Context, o chat.IdempotencyKey) (json.RawMessage, error)
}

// AnswerOf returns the result of the first call with an idempotency key; the zero value when there was none, or o is nil.
func AnswerOf[T any](ctx context.Context, st idempotencyReader, o *chat.IdempotencyKey) (out T, err error) {
	if o == nil {
		return out, nil
	}
	raw, err := st.IdempotencyRecord(ctx, *o)
	if err != nil || raw == nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("reading the recorded result of %s: %w", o.Method, err)
	}
	return out, nil
}
