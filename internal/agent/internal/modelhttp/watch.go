package modelhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

// The causes with which a watch cancels.
var (
	errFirstByte = errors.New("nothing arrived within the time for the first byte")
	errSilence   = errors.New("nothing more arrived within the time of silence")
	errTail      = errors.New("the stream was not closed after its end")
	errTooMuch   = errors.New("the response is larger than it may be")
)

// watch cancels a request when nothing arrives in time. Its methods belong to the goroutine of the request; the timer only cancels.
type watch struct {
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	silence time.Duration
}

func startWatch(ctx context.Context, first, silence time.Duration) (*watch, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, silence: silence}
	w.after(first, errFirstByte)
	return w, ctx
}

func (w *watch) after(d time.Duration, why error) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if d > 0 {
		w.timer = time.AfterFunc(d, func() { w.cancel(why) })
	}
}

// alive restarts the time of silence when something has arrived.
func (w *watch) alive() { w.after(w.silence, errSilence) }

// last bounds the time for the rest of the stream.
func (w *watch) last(d time.Duration) { w.after(d, errTail) }

func (w *watch) stop() {
	w.after(0, nil)
	w.cancel(context.Canceled)
}

// watched is a bounded body that resets its watch with each line, or each byte.
type watched struct {
	in      io.Reader
	watch   *watch
	left    int64
	anyByte bool
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if n > 0 && (b.anyByte || bytes.ContainsAny(p[:n], "\n\r")) {
		b.watch.alive()
	}
	b.left -= int64(n)
	if b.left < 0 {
		return 0, errTooMuch
	}
	return n, err // io.EOF must not be wrapped
}
