package store

import (
	"context"
	"encoding/json"
	"fmt"

	"laneway/internal/chat"
)

// answerer is the read of [Answers].
type answerer interface {
	Answered(ctx context.Context, o chat.IdempotencyKey) (json.RawMessage, error)
}

// AnswerOf reads what the first call with an idempotency key came to, as the result of its operation; the zero value when there was none, or o is nil.
func AnswerOf[T any](ctx context.Context, st answerer, o *chat.IdempotencyKey) (out T, err error) {
	if o == nil {
		return out, nil
	}
	raw, err := st.Answered(ctx, *o)
	if err != nil || raw == nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("reading the answer to %s: %w", o.Method, err)
	}
	return out, nil
}
