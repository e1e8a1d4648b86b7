package store

import (
	"context"
	"encoding/json"
	"fmt"

	"laneway/internal/chat"
)

// AnswerOf returns the result of the first call with an idempotency key, which read reads ([IdempotencyRecords]); the zero value when no call was made or o is
// nil.
func AnswerOf[T any](
	ctx context.Context, read func(context.Context, chat.IdempotencyKey) (json.RawMessage, error), o *chat.IdempotencyKey,
) (out T, err error) {
	if o == nil {
		return out, nil
	}
	raw, err := read(ctx, *o)
	if err != nil || raw == nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("reading the recorded result of %s: %w", o.Method, err)
	}
	return out, nil
}
