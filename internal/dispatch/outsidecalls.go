package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// outsideTime limits an allowed call of another server.
const outsideTime = time.Minute

// outsideCalls are the allowed calls of tools of other servers. Such a call may take a minute and has no idempotency key at its server. So
// [questions.run] makes it concurrently with the command that allows it, and at most once. A call that a process may have started before it
// ended is not repeated, and the person is informed.
type outsideCalls struct {
	allowed chan store.Question // from the commands to run

	mu    sync.Mutex
	begun map[string]bool // by question
}

func newOutsideCalls() *outsideCalls {
	return &outsideCalls{allowed: make(chan store.Question), begun: map[string]bool{}}
}

// pass passes a call to run, unless it was passed before. The result is the reply for the person.
func (o *outsideCalls) pass(ctx context.Context, asked store.Question) (string, error) {
	const follows = "It is being done; the result follows."
	if !o.begin(asked.ID) {
		return follows, nil
	}
	select {
	case o.allowed <- asked:
		return follows, nil
	case <-ctx.Done():
		o.forget(asked.ID)
		return "", chat.Errorf(chat.CodeRateLimited, "the gateway is busy; write the same again")
	}
}

// begin reports whether this process has not started the call before.
func (o *outsideCalls) begin(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun[id] {
		return false
	}
	o.begun[id] = true
	return true
}

// all returns the calls that this process has started and not recorded.
func (o *outsideCalls) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.begun))
}

func (o *outsideCalls) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.begun, id)
}

// makeOutside makes a call of another server and sends the person its result. When the result cannot be recorded, the call remains marked
// as started: it is not repeated.
func (q *questions) makeOutside(ctx context.Context, asked store.Question) {
	p, err := pending(asked)
	if err == nil {
		bound, cancel := context.WithTimeout(ctx, outsideTime)
		result := q.tools.Make(bound, p)
		cancel()
		err = q.report(ctx, asked, p, result)
	}
	if err != nil {
		q.log.WarnContext(ctx, "the result of an allowed call was not recorded", "question", asked.ID, "err", err)
		return
	}
	q.outside.forget(asked.ID)
}
