package gateway

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
)

// keepAlive is how often a stream that waits says that it is there: proxies close what is silent for a minute.
const keepAlive = 15 * time.Second

// listener keeps what happens in one run until its stream has time for it. It holds the text so far and not the pieces, so it is as
// large as the answer, however slow the reader is.
type listener struct {
	run  string
	some chan struct{} // capacity 1: look again

	mu      sync.Mutex
	started bool
	text    string
}

func newListener(run string) *listener { return &listener{run: run, some: make(chan struct{}, 1)} }

// hear is called for every event of the process and never waits.
func (l *listener) hear(ev chat.Event) {
	if ev.RunID != l.run || (ev.Kind != chat.EventStarted && ev.Kind != chat.EventDelta) {
		return
	}
	l.mu.Lock()
	l.started, l.text = true, ev.Text
	l.mu.Unlock()
	select {
	case l.some <- struct{}{}:
	default:
	}
}

// wants says that ends of runs elsewhere are asked of the store, as every end is.
func (l *listener) wants(chat.Event) bool { return false }

func (l *listener) now() (started bool, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started, l.text
}

type chunk struct {
	ID      string           `json:"id"`
	Object  string           `json:"object"`
	Created int64            `json:"created"`
	Model   string           `json:"model"`
	Choices []chunkChoice    `json:"choices"`
	Usage   *completionUsage `json:"usage,omitempty"`
}

type chunkChoice struct {
	Index        int        `json:"index"`
	Delta        chunkDelta `json:"delta"`
	Logprobs     *string    `json:"logprobs"`
	FinishReason *string    `json:"finish_reason"` //nolint:tagliatelle // OpenAI's name
}

type chunkDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// eventStream writes server-sent events; after the first fault it writes nothing more.
type eventStream struct {
	w    http.ResponseWriter
	a    *attendance
	role bool   // the first chunk went out
	sent string // text that the client has
	err  error
}

func (e *eventStream) write(text string) {
	if e.err != nil {
		return
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		e.err = errPeerGone
		return
	}
	if err := http.NewResponseController(e.w).Flush(); err != nil {
		e.err = errPeerGone
	}
}

func (e *eventStream) data(v any) { e.write("data: " + string(strictjson.Encode(v)) + "\n\n") }

func (e *eventStream) chunk(choices ...chunkChoice) chunk {
	if choices == nil {
		choices = []chunkChoice{}
	}
	return chunk{ID: e.a.id(), Object: "chat.completion.chunk", Created: e.a.created, Model: e.a.req.Model, Choices: choices}
}

// begin sends the role, once.
func (e *eventStream) begin() {
	if e.role {
		return
	}
	e.role = true
	empty := ""
	e.data(e.chunk(chunkChoice{Delta: chunkDelta{Role: chat.RoleAssistant, Content: &empty}}))
}

// say sends what text has more than the client; false when the client has something else: the run has begun again after an
// interruption and says it differently.
func (e *eventStream) say(text string) bool {
	more, ok := strings.CutPrefix(text, e.sent)
	switch {
	case !ok && strings.HasPrefix(e.sent, text): // a second attempt that has not come so far yet
		return true
	case !ok:
		return false
	case more == "":
		return true
	}
	e.begin()
	e.sent = text
	e.data(e.chunk(chunkChoice{Delta: chunkDelta{Content: &more}}))
	return true
}

func (e *eventStream) finish(end chat.RunEnd) {
	e.begin()
	reason := finishReason(end)
	e.data(e.chunk(chunkChoice{FinishReason: &reason}))
	if e.a.req.StreamOptions.IncludeUsage {
		c, usage := e.chunk(), completionUsageOf(end.Usage)
		c.Usage = &usage
		e.data(c)
	}
	e.done()
}

func (e *eventStream) done() { e.write("data: [DONE]\n\n") }

func (e *eventStream) fail(fault *fault.Error) {
	e.data(apiError{apiFaultOf(fault.HTTPStatus(), fault)})
	e.done()
}

// answerStream tells the run as it goes on. The end comes from Wait and not from the events, because a run may be taken over by another
// process, whose events are not heard here.
func (s *Server) answerStream(ctx context.Context, w http.ResponseWriter, a *attendance) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects the stream would make it useless
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	out := &eventStream{w: w, a: a}
	out.write("") // the head: the client learns the id of the run while it waits

	waiting, giveUp := context.WithCancel(ctx)
	ended := make(chan runEnd, 1)
	var wait sync.WaitGroup
	wait.Go(func() {
		end, err := s.backend.Wait(waiting, a.receipt.RunID)
		ended <- runEnd{end, err}
	})
	defer wait.Wait()
	defer giveUp()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for out.err == nil {
		select {
		case <-a.listen.some:
			started, text := a.listen.now()
			if started {
				out.begin()
			}
			if !out.say(text) {
				out.fail(diverged(a.receipt.RunID))
				return out.err
			}
		case <-alive.C:
			out.write(": keepalive\n\n")
		case end := <-ended:
			s.endStream(ctx, out, end)
			return out.err
		}
	}
	return out.err
}

type runEnd struct {
	end chat.RunEnd
	err error
}

func (s *Server) endStream(ctx context.Context, out *eventStream, r runEnd) {
	err := r.err
	if err == nil {
		err = completionFault(r.end)
	}
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		out.err = errPeerGone
	case err != nil:
		out.fail(s.explain(ctx, out.a.cl, err))
	case !out.say(r.end.Text) || r.end.Text != out.sent:
		out.fail(diverged(out.a.receipt.RunID))
	default:
		out.finish(r.end)
	}
}

// diverged ends a stream whose run was begun again and says something else than the client has: that cannot be taken back.
func diverged(run string) *fault.Error {
	w := &fault.Error{Code: fault.CodeUnavailable, Message: "the answer was interrupted and begun again; its text is in the history of the session"}
	w.Details = map[string]any{"code": string(chat.CodeRunFailed), "runId": chat.ShownRunID(run)}
	return w
}
