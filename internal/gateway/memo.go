package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"laneway/internal/chat"
)

const (
	memoFor  = 24 * time.Hour
	memoSize = 4_096
)

// memo answers a repeated call with the first outcome, for the few methods whose effect has no idempotency key in the store. It
// lives as long as the process: after a restart, or on another replica, a repeated reset begins one more empty transcript.
type memo struct {
	mu    sync.Mutex
	known map[string]*outcome
	order []string // oldest first
}

type outcome struct {
	hash   string
	at     time.Time
	done   chan struct{}
	result any
	err    error
}

func newMemo() *memo { return &memo{known: map[string]*outcome{}} }

// once runs do for the first call with key; others wait for its outcome. A refusal that may be retried is not remembered.
func (m *memo) once(ctx context.Context, key, hash string, do func() (any, error)) (any, error) {
	o, first := m.claim(key, hash)
	if o.hash != hash {
		return nil, chat.Errorf(chat.CodeKeyReused, "this idempotencyKey was used with other params")
	}
	if first {
		m.perform(key, o, do)
	}
	select {
	case <-o.done:
		return o.result, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *memo) perform(key string, o *outcome, do func() (any, error)) {
	defer close(o.done)
	o.err = errors.New("the call did not end") // stands when do panics
	defer func() {
		var e *chat.Error
		if o.err != nil && (!errors.As(o.err, &e) || e.Retryable) {
			m.drop(key)
		}
	}()
	o.result, o.err = do()
}

func (m *memo) claim(key, hash string) (*outcome, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.known[key]; o != nil && time.Since(o.at) < memoFor {
		return o, false
	}
	if len(m.order) >= memoSize {
		delete(m.known, m.order[0])
		m.order = m.order[1:]
	}
	o := &outcome{hash: hash, at: time.Now(), done: make(chan struct{})}
	m.known[key] = o
	m.order = append(m.order, key)
	return o, true
}

func (m *memo) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}
