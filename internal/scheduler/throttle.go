package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
)

// errMovedOn is the cause of an estimate's context when the answer does not matter any more.
var errMovedOn = errors.New("the session has moved on")

// estimateState is what is known about the size of a session's history.
type estimateState uint8

const (
	estimateUnknown estimateState = iota
	estimateAsked
	estimateSmall
	estimateLarge
)

// question is a token estimate to be asked for.
type question[M any] struct {
	x      *session[M]
	key    string
	number uint64
}

// unthrottled reports whether the session may start one more turn beside those that run. When the answer is not known it is
// asked for, and the session is settled again when it has come.
func (s *Scheduler[M]) unthrottled(x *session[M], fx *effects[M]) bool {
	if s.cfg.TokenEstimate == nil || x.estimate == estimateSmall {
		return true
	}
	if x.estimate == estimateUnknown && !s.draining {
		x.question++
		x.estimate = estimateAsked
		s.live++
		fx.questions = append(fx.questions, question[M]{x: x, key: x.key, number: x.question})
	}
	return false
}

// dropEstimate forgets the answer, and an answer that is still to come.
func (s *Scheduler[M]) dropEstimate(x *session[M], fx *effects[M]) {
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
	if s.asks(q, cancel) && s.large(ctx, q) {
		answer = estimateLarge
	}
}

// asks lets the session call the question off, and reports whether it has not done so yet.
func (s *Scheduler[M]) asks(q question[M], cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.x.question != q.number {
		return false
	}
	q.x.forgetAsk = cancel
	return true
}

// large asks whether the session's history is too large for turns side by side. An estimate that panics throttles nothing.
func (s *Scheduler[M]) large(ctx context.Context, q question[M]) (large bool) {
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(ctx, "token estimate panicked", slog.String("session", q.key), slog.Any("err", v),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	tokens, window := s.cfg.TokenEstimate(ctx, q.key)
	return window > 0 && float64(tokens) >= s.cfg.ThrottleAt*float64(window)
}

// answer notes the estimate, unless the session has moved on.
func (s *Scheduler[M]) answer(q question[M], answer estimateState) {
	fx := s.begin()
	s.mu.Lock()
	if q.x.question == q.number {
		q.x.estimate, q.x.forgetAsk = answer, nil
		s.settle(q.x, &fx)
	}
	s.ended()
	s.mu.Unlock()
	s.flush(&fx)
}
