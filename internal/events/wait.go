package events

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
)

// pollInterval is how often a waiter reads a message from the store that another replica may be running.
const pollInterval = time.Second

// waiters are callers that wait for the end of a message, by its id.
type waiters struct {
	mu   sync.Mutex
	byID map[string][]chan chat.RunEnd
}

func (w *waiters) add(id string) chan chat.RunEnd {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = map[string][]chan chat.RunEnd{}
	}
	c := make(chan chat.RunEnd, 1)
	w.byID[id] = append(w.byID[id], c)
	return c
}

func (w *waiters) remove(id string, c chan chat.RunEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.byID[id], func(o chan chat.RunEnd) bool { return o == c })
	if len(left) == 0 {
		delete(w.byID, id)
		return
	}
	w.byID[id] = left
}

// Ended wakes the callers that wait for a message.
func (p *Publisher) Ended(e chat.RunEnd) {
	w := &p.waiters
	w.mu.Lock()
	waiting := w.byID[e.RunID]
	delete(w.byID, e.RunID)
	w.mu.Unlock()
	for _, c := range waiting {
		c <- e // never blocks: capacity 1 and one end per message
	}
}

// Wait returns when the message has ended, or when ctx ends (then with its cause). read reads the end from the store, for a message that another replica runs;
// it is called first, and then each second. Wait holds no slot and no lock.
func (p *Publisher) Wait(ctx context.Context, id string, read func(ctx context.Context, id string) (end chat.RunEnd, done bool, err error)) (chat.RunEnd, error) {
	c := p.waiters.add(id)
	defer p.waiters.remove(id, c)
	for {
		end, done, err := read(ctx, id)
		if done || (err != nil && !errors.Is(err, chat.ErrStoreUnavailable)) {
			return end, err
		}
		t := time.NewTimer(pollInterval)
		select {
		case end := <-c:
			t.Stop()
			return end, nil
		case <-ctx.Done():
			t.Stop()
			return chat.RunEnd{}, context.Cause(ctx)
		case <-t.C:
		}
	}
}
