package dispatch

import (
	"context"
	"sync"
)

// waits are the calls of one turn that wait for sub-turns. While there is at least one, the turn has no slot: the first one gives it back, the last one takes
// it again. The store knows first that the slot is free, and last that it is taken, so that it never counts more turns than the lane has slots.
type waits struct {
	// yield gives the slot back while fn runs and takes it again; note writes that into the store. Both are called on the goroutine of hold and end with the
	// turn, not with a call: a call can end earlier, and the turn then goes on with its slot.
	yield func(fn func()) error
	note  func(away bool) error
	// leave ends the turn in a drain, so that the next process runs it again.
	leave func()

	mu    sync.Mutex
	count int
	// last is closed when the last wait has ended, over when the slot is taken again; nil while the turn has its slot.
	last, over chan struct{}
	holding    sync.WaitGroup
}

// during runs wait without a slot. It returns when wait has returned and, for the last one of several, the turn has its slot again, or has ended.
func (w *waits) during(ctx context.Context, wait func(context.Context) error) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	err := wait(ctx)
	w.end()
	return err
}

// begin joins the waits, or frees the slot. It does so after the slot is taken again when the earlier waits have just ended.
func (w *waits) begin(ctx context.Context) error {
	for {
		w.mu.Lock()
		if w.over == nil {
			w.count, w.last, w.over = 1, make(chan struct{}), make(chan struct{})
			w.hold()
			w.mu.Unlock()
			return nil
		}
		if w.count > 0 {
			w.count++
			w.mu.Unlock()
			return nil
		}
		over := w.over
		w.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold gives the slot back until the last wait has ended. An error of it has no reader: the turn either ends with its context, or goes on.
func (w *waits) hold() {
	last, over := w.last, w.over
	w.holding.Go(func() {
		defer func() {
			w.mu.Lock()
			w.last, w.over = nil, nil
			w.mu.Unlock()
			close(over)
		}()
		if w.note(true) != nil { // it keeps its slot: the store must not count less than there is
			<-last
			return
		}
		err := w.yield(func() { <-last })
		<-last // also when the slot was not freed, because the turn is over
		if err == nil {
			_ = w.note(false) //nolint:errcheck // when it fails the claim is gone, and so is the turn
		}
	})
}

// end leaves the waits. The last one waits for the slot.
func (w *waits) end() {
	w.mu.Lock()
	w.count--
	if w.count > 0 {
		w.mu.Unlock()
		return
	}
	over := w.over
	close(w.last)
	w.mu.Unlock()
	<-over
}

// wait returns when the goroutine of the waits has ended; every call must have returned.
func (w *waits) wait() { w.holding.Wait() }
