package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/wire"
)

// reporter reports how requests ended: to clients, to the log and to the observer.
type reporter struct {
	log      *slog.Logger
	observer Observer
}

// Explain converts an error to the form for clients. For a defect, that is a number; the log has the error with this number.
func (r *reporter) Explain(ctx context.Context, method string, err error) *fault.Error {
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	if errors.Is(err, errStopping) {
		return fault.Draining()
	}
	if e, ok := fault.From(err); ok {
		if e.Details["code"] == string(chat.CodeRateLimited) && e.Details["method"] == nil {
			e.Details["method"] = method
		}
		return e
	}
	id := uuid.NewString()
	r.log.ErrorContext(ctx, "request failed", slog.String("method", method), slog.String("error_id", id), slog.Any("err", err))
	e := fault.New(wire.CodeUnavailable, "internal error; the gateway's log has it under "+id)
	e.Details = map[string]any{"code": wire.DetailInternal, "errorId": id}
	return e
}

// Count counts a request with the code of its error. An error without a code is a defect.
func (r *reporter) Count(method string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = string(chat.CodeInternal)
		if e, ok := fault.From(err); ok {
			result = e.Label()
		}
	}
	r.observer.Request(method, result, took)
}
