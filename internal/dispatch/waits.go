package dispatch

import (
	"context"
	"sync"
)

// waits are the calls of one turn that wait for sub-turns. While there is at least one, the turn has no slot: the first one releases it,
// the last one acquires it again. The store records the release first and the acquisition last, so that it never counts more turns than the
// lane has slots.
type waits struct {
	// yield releases the slot while fn runs and acquires it again; note records that in the store. Both are called on the goroutine of hold
	// and end with the turn, not with a call: a call can end earlier, and the turn then continues with its slot.
	yield func(fn func()) error
	note  func(away bool) error
	// leave ends the turn in a drain, so that the next process runs it again.
	leave func()

	mu    sync.Mutex
	count int
	// last is closed when the last wait has ended, over when the slot is acquired again; nil while the turn has its slot.
	last, over chan struct{}
	holding    sync.WaitGroup
}

// during runs wait without a slot. It returns when wait has returned and, for the last one of several, the turn has its slot again or has
// ended.
func (w *waits) during(ctx context.Context, wait func(context.Context) error) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	err := wait(ctx)
	w.end()
	return err
}

// begin joins the current waits, or releases the slot. If the earlier waits have just ended, it first waits until the slot is acquired
// again.
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

// hold releases the slot until the last wait has ended. Its error is ignored: the turn either ends with its context, or continues.
func (w *waits) hold() {
	last, over := w.last, w.over
	w.holding.Go(func() {
		defer func() {
			w.mu.Lock()
			w.last, w.over = nil, nil
			w.mu.Unlock()
			close(over)
		}()
		if w.note(true) != nil { // it keeps its slot: the store must not count fewer turns than hold one
			<-last
			return
		}
		err := w.yield(func() { <-last })
		<-last // also when the slot was not released, because the turn has ended
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
