package toolloop

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/chat"
)

// pauseOfTools is how long an endpoint that has refused tools receives requests without them.
const pauseOfTools = time.Hour

// Support remembers whether an endpoint takes tools. It is safe for concurrent use.
type Support struct {
	log   *slog.Logger
	until atomic.Int64 // Unix milliseconds; tools are not offered before
}

// NewSupport makes one for an endpoint that has not refused tools yet. A nil log discards.
func NewSupport(log *slog.Logger) *Support {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Support{log: log}
}

func (s *Support) offered() bool { return s == nil || time.Now().UnixMilli() >= s.until.Load() }

// refused records that the endpoint accepted a request without tools that it had refused with them. One line is logged, even when several
// turns call it at the same time.
func (s *Support) refused(ctx context.Context) {
	if s == nil {
		return
	}
	was, now := s.until.Load(), time.Now()
	if was > now.UnixMilli() || !s.until.CompareAndSwap(was, now.Add(pauseOfTools).UnixMilli()) {
		return
	}
	s.log.WarnContext(ctx, "the model endpoint refuses tools; its agent continues without them", "next_try_in", pauseOfTools.String())
}

// refused reports whether an endpoint refused a request as malformed: tools may be the reason.
func refused(err error) bool {
	var refusal *modelhttp.StatusError
	return errors.As(err, &refusal) && refusal.Status == http.StatusBadRequest && agent.ReasonOf(err) == chat.FailBadRequest
}
