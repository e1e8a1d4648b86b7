package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// keepAlive is the interval of comments in a waiting stream: proxies close connections that are
// idle for a minute.
const keepAlive = 15 * time.Second

// progress buffers the text of one run until its stream can send it. It holds the text so far and
// not the pieces, so its size is that of the answer, however slowly the client reads.
type progress struct {
	run     string
	changed chan struct{} // capacity 1

	mu      sync.Mutex
	started bool
	text    string
}

// observe is called for every event of the process and must not block.
func (l *progress) observe(ev chat.Event) {
	if ev.RunID != l.run || (ev.Kind != chat.EventStarted && ev.Kind != chat.EventDelta) {
		return
	}
	l.mu.Lock()
	l.started, l.text = true, ev.Text
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// wanted returns false for events of other processes: ends are read from the store.
func (l *progress) wanted(chat.Event) bool { return false }

func (l *progress) now() (started bool, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started, l.text
}

// voice writes the events of one streamed answer in one form of the API. Its methods are called in
// this order: begin once, text for each piece, then finish or fail. Without a text and an end,
// begin is called by the start of the turn.
type voice interface {
	begin()
	text(more string)
	finish(end chat.RunEnd)
	// fail ends without an answer; begin may not have been called.
	fail(refused *fault.Error)
}

// eventStream writes server-sent events; after the first error it writes nothing more.
type eventStream struct {
	w     http.ResponseWriter
	voice voice
	begun bool
	sent  string // text that was sent
	err   error
}

func (e *eventStream) write(text string) {
	if e.err != nil {
		return
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		e.err = errClientGone
		return
	}
	if err := http.NewResponseController(e.w).Flush(); err != nil {
		e.err = errClientGone
	}
}

// data writes an event without a name.
func (e *eventStream) data(v any) { e.write("data: " + string(strictjson.Encode(v)) + "\n\n") }

// event writes an event with a name.
func (e *eventStream) event(name string, v any) {
	e.write("event: " + name + "\ndata: " + string(strictjson.Encode(v)) + "\n\n")
}

// begin starts the answer, once.
func (e *eventStream) begin() {
	if !e.begun {
		e.begun = true
		e.voice.begin()
	}
}

// send sends the part of text that was not sent yet. It returns false when the sent text differs,
// because the run has started again after an interruption.
func (e *eventStream) send(text string) bool {
	more, ok := strings.CutPrefix(text, e.sent)
	switch {
	case !ok && strings.HasPrefix(e.sent, text): // a second attempt that has less text so far
		return true
	case !ok:
		return false
	case more == "":
		return true
	}
	e.begin()
	e.sent = text
	e.voice.text(more)
	return true
}

func (e *eventStream) finish(end chat.RunEnd) {
	e.begin()
	e.voice.finish(end)
}

// answerStream sends the text of the run as it grows. The end comes from Wait and not from the
// events, because another process may take over the run, and its events do not reach this one.
func (h *Handler) answerStream(ctx context.Context, w http.ResponseWriter, a *run) error {
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no") // a proxy that buffers the stream would make it useless
	head.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	out := &eventStream{w: w}
	out.voice = a.form.voice(out, a)
	out.write("") // sends the headers, which contain the id of the run

	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan runEnd, 1)
	var wait sync.WaitGroup
	wait.Go(func() {
		end, err := h.runs.Wait(waiting, a.receipt.RunID)
		ended <- runEnd{end, err}
	})
	defer wait.Wait()
	defer cancel()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for out.err == nil {
		select {
		case <-a.progress.changed:
			started, text := a.progress.now()
			if started {
				out.begin()
			}
			if !out.send(text) {
				out.voice.fail(diverged(a.receipt.RunID))
				return out.err
			}
		case <-alive.C:
			out.write(": keepalive\n\n")
		case end := <-ended:
			h.endStream(ctx, out, a, end)
			return out.err
		}
	}
	return out.err
}

type runEnd struct {
	end chat.RunEnd
	err error
}

func (h *Handler) endStream(ctx context.Context, out *eventStream, a *run, r runEnd) {
	err := r.err
	if err == nil {
		err = a.fault(r.end)
	}
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		out.err = errClientGone
	case err != nil:
		out.voice.fail(h.server.Explain(ctx, a.form.name(), err))
	case !out.send(r.end.Text) || r.end.Text != out.sent:
		out.voice.fail(diverged(a.receipt.RunID))
	default:
		out.finish(r.end)
	}
}

// diverged returns the error that ends a stream whose run was started again with another text: sent
// text cannot be revoked.
func diverged(run string) *fault.Error {
	e := fault.New(wire.CodeUnavailable, "the answer was interrupted and begun again; its text is in the history of the session")
	e.Details = map[string]any{"code": string(chat.CodeRunFailed), "runId": chat.ShownRunID(run)}
	return e
}
