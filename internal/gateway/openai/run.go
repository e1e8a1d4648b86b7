package openai

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/store"
)

// stopTimeout limits the stop of a run whose client has disconnected.
const stopTimeout = 10 * time.Second

var errClientGone = errors.New("the client is gone")

// run is a request whose message is durable.
type run struct {
	cred        auth.Credential
	prompt      prompt
	form        form
	receipt     chat.Receipt
	progress    *progress // nil = not streamed
	unsubscribe func()
	created     int64 // Unix seconds
}

// answer waits for the end of the run. A client that disconnects stops its run, unless it set the header for detaching. A gateway that
// stops does not stop the run, because another process continues it.
func (h *Handler) answer(stopping context.Context, w http.ResponseWriter, r *http.Request, a *run) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(stopping, func() { cancel(context.Cause(stopping)) })()
	var err error
	if a.progress == nil {
		err = h.answerWhole(ctx, w, a)
	} else {
		err = h.answerStream(ctx, w, a)
	}
	gone := ctx.Err() != nil && stopping.Err() == nil
	if (gone || errors.Is(err, errClientGone)) && r.Header.Get(headerDetach) != "1" {
		h.stop(r.Context(), a)
	}
}

func (h *Handler) answerWhole(ctx context.Context, w http.ResponseWriter, a *run) error {
	end, err := h.runs.Wait(ctx, a.receipt.RunID)
	switch {
	case err == nil:
		err = a.fault(end)
	case errors.Is(context.Cause(ctx), context.Canceled):
		return errClientGone
	}
	if err != nil {
		h.fail(ctx, w, a.form, err)
		return nil
	}
	httpbody.WriteJSON(w, http.StatusOK, a.form.whole(a, end))
	return nil
}

// stop stops a run that no client waits for. A repeated request has not started its run and does not stop it.
func (h *Handler) stop(ctx context.Context, a *run) {
	if a.receipt.Duplicate {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_, err := h.runs.Stop(ctx, store.StopParams{
		Session: a.receipt.Session, Scope: store.StopRun, MessageID: a.receipt.RunID, By: a.cred.Name, Reason: "stop",
	})
	if err != nil {
		h.log.WarnContext(ctx, "a run whose client is gone was not stopped", slog.String("run_id", a.receipt.RunID), slog.Any("err", err))
	}
}
