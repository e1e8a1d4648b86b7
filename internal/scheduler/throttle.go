package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
)

// errMovedOn is the cause of an estimate's context when the result is no longer needed.
var errMovedOn = errors.New("the session has moved on")

// estimateState is the known size class of a session's history.
type estimateState uint8

const (
	estimateUnknown estimateState = iota
	estimateAsked
	estimateSmall
	estimateLarge
)

// throttle limits a session with a large history to one turn at a time. The session stores the result of the estimate together with the number of the question:
// a result for an older question is ignored.
type throttle[M any] struct {
	on      bool // a TokenEstimate is configured
	pending *pending
}

// question is a pending token estimate.
type question[M any] struct {
	x      *session[M]
	key    string
	number uint64
}

// allows reports whether the session may start one more concurrent turn. If no estimate is known, it requests one, and the session is settled again when the
// result arrives.
func (th *throttle[M]) allows(x *session[M], draining bool, fx *effects[M]) bool {
	if !th.on || x.estimate == estimateSmall {
		return true
	}
	if x.estimate == estimateUnknown && !draining {
		x.question++
		x.estimate = estimateAsked
		th.pending.add()
		fx.questions = append(fx.questions, question[M]{x: x, key: x.key, number: x.question})
	}
	return false
}

// forget drops the estimate, and cancels one in progress.
func (th *throttle[M]) forget(x *session[M], fx *effects[M]) {
	x.question++
	x.estimate = estimateUnknown
	if x.forgetAsk != nil {
		fx.cancels = append(fx.cancels, cancelCall{cancel: x.forgetAsk, cause: errMovedOn})
		x.forgetAsk = nil
	}
}

// ask is the goroutine of one question. It ends when TokenEstimate returns.
func (s *Scheduler[M]) ask(q question[M]) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(errMovedOn)
	answer := estimateSmall
	defer func() { s.answer(q, answer) }()
	if s.register(q, cancel) && s.large(ctx, q) {
		answer = estimateLarge
	}
}

// register lets the session cancel the question, and reports whether the result is still needed.
func (s *Scheduler[M]) register(q question[M], cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.x.question != q.number {
		return false
	}
	q.x.forgetAsk = cancel
	return true
}

// large estimates whether the session's history is too large for concurrent turns. An estimate that panics throttles nothing.
func (s *Scheduler[M]) large(ctx context.Context, q question[M]) (large bool) {
	defer func() {
		if v := recover(); v != nil {
			s.out.log.ErrorContext(ctx, "token estimate panicked", slog.String("session", q.key), slog.Any("err", v),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	tokens, window := s.cfg.TokenEstimate(ctx, q.key)
	return window > 0 && float64(tokens) >= s.cfg.ThrottleAt*float64(window)
}

// answer stores the estimate, unless the session has changed since.
func (s *Scheduler[M]) answer(q question[M], answer estimateState) {
	fx := s.begin()
	s.mu.Lock()
	if q.x.question == q.number {
		q.x.estimate, q.x.forgetAsk = answer, nil
		s.core.settle(q.x, &fx)
	}
	s.core.pending.done()
	s.mu.Unlock()
	s.perform(&fx)
}
