package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/store"
)

// stopTime bounds the stop of a run whose client has gone.
const stopTime = 10 * time.Second

// completion is the answer to a request that is not streamed.
type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   completionUsage    `json:"usage"`
}

type completionChoice struct {
	Index        int              `json:"index"`
	Message      completionAnswer `json:"message"`
	Logprobs     *string          `json:"logprobs"`
	FinishReason string           `json:"finish_reason"` //nolint:tagliatelle // OpenAI's name
}

type completionAnswer struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type completionUsage struct {
	PromptTokens     int `json:"prompt_tokens"`     //nolint:tagliatelle // OpenAI's name
	CompletionTokens int `json:"completion_tokens"` //nolint:tagliatelle // OpenAI's name
	TotalTokens      int `json:"total_tokens"`      //nolint:tagliatelle // OpenAI's name
}

func completionUsageOf(u chat.Usage) completionUsage {
	return completionUsage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
}

func finishReason(end chat.RunEnd) string {
	if end.StopReason == agent.StopLength {
		return agent.StopLength
	}
	return agent.StopNormal
}

// completions answers POST /v1/chat/completions: the message goes the way of every message, and the request waits for its end. waits
// is over when the gateway begins to stop.
func (s *Server) completions(waits context.Context, w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	cred, ok := s.bearer(w, r, chat.ScopeWrite)
	if !ok {
		return
	}
	cl := s.httpCall(completionsName, cred)
	req, m, err := s.acceptable(cl, w, r)
	var receipt chat.Receipt
	var listen *listener
	if err == nil {
		// A client that goes now is looked after later: whether its message was accepted has to be known.
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), s.cfg.Deadlines.Request, fault.ErrRequestTimeout)
		defer cancel()
		if req.Stream {
			listen = newListener(m.ID)
			defer s.backend.Subscribe(listen.hear, listen.wants)()
		}
		receipt, err = s.backend.ReceiveFrom(ctx, m, cl.caller())
	}
	if err == nil && req.Stream && receipt.Duplicate {
		err = chat.Errorf(chat.CodeKeyReused, "this request was accepted before as run %s; send it without stream to get its answer", chat.ShownRunID(receipt.RunID))
	}
	s.count(cl.m, err, time.Since(began))
	if err != nil {
		s.failAPI(r.Context(), w, cl, err)
		return
	}
	w.Header().Set(headerRun, chat.ShownRunID(receipt.RunID))
	s.attend(waits, w, r, &attendance{cl: cl, req: req, receipt: receipt, listen: listen, created: time.Now().Unix()})
}

// acceptable reads the request and refuses what cannot become a message, before anything is done.
func (s *Server) acceptable(cl *call, w http.ResponseWriter, r *http.Request) (req completionRequest, m chat.Message, err error) {
	if no := s.doorFault(); no != nil {
		return req, m, no
	}
	if no := s.auth.Spend(r.Context(), cl.principal(), completionsName, auth.LimitChats); no != nil {
		return req, m, no
	}
	if !httpbody.IsJSON(r) {
		return req, m, fault.Invalid("the body must be application/json").WithStatus(http.StatusUnsupportedMediaType)
	}
	body, err := httpbody.Read(w, r, s.cfg.MaxPayload, s.cfg.Deadlines.Message)
	if err != nil {
		return req, m, err
	}
	if no := s.auth.SpendBytes(r.Context(), cl.principal(), completionsName, len(body)); no != nil {
		return req, m, no
	}
	if req, err = readCompletion(body); err != nil {
		return req, m, fault.Invalid(err.Error())
	}
	m, err = cl.completionMessageOf(r, &req, body)
	return req, m, err
}

// attendance is a completion whose message is durable.
type attendance struct {
	cl      *call
	req     completionRequest
	receipt chat.Receipt
	listen  *listener // nil = not streamed
	created int64
}

func (a *attendance) id() string { return "chatcmpl-" + chat.ShownRunID(a.receipt.RunID) }

// attend waits for the end of the run. A client that goes takes its run along, unless it said that it would; a gateway that stops leaves
// the run alone, because another process goes on with it.
func (s *Server) attend(waits context.Context, w http.ResponseWriter, r *http.Request, a *attendance) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(waits, func() { cancel(context.Cause(waits)) })()
	var err error
	if a.listen == nil {
		err = s.answerWhole(ctx, w, a)
	} else {
		err = s.answerStream(ctx, w, a)
	}
	gone := ctx.Err() != nil && waits.Err() == nil
	if (gone || errors.Is(err, errPeerGone)) && r.Header.Get(headerDetach) != "1" {
		s.abandon(r.Context(), a)
	}
}

func (s *Server) answerWhole(ctx context.Context, w http.ResponseWriter, a *attendance) error {
	end, err := s.backend.Wait(ctx, a.receipt.RunID)
	switch {
	case err == nil:
		err = completionFault(end)
	case errors.Is(context.Cause(ctx), context.Canceled):
		return errPeerGone
	}
	if err != nil {
		s.failAPI(ctx, w, a.cl, err)
		return nil
	}
	httpbody.WriteJSON(w, http.StatusOK, completion{
		ID: a.id(), Object: "chat.completion", Created: a.created, Model: a.req.Model,
		Choices: []completionChoice{{Message: completionAnswer{Role: chat.RoleAssistant, Content: end.Text}, FinishReason: finishReason(end)}},
		Usage:   completionUsageOf(end.Usage),
	})
	return nil
}

// abandon stops a run that nobody waits for any more. A repetition has not started it and does not end it.
func (s *Server) abandon(ctx context.Context, a *attendance) {
	if a.receipt.Duplicate {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	_, err := s.backend.Stop(ctx, store.StopParams{
		Session: a.receipt.Session, Scope: store.StopRun, MessageID: a.receipt.RunID, By: a.cl.principal(), Reason: "stop",
	})
	if err != nil {
		s.log.WarnContext(ctx, "a run whose client has gone was not stopped", slog.String("run_id", a.receipt.RunID), slog.Any("err", err))
	}
}

// completionFault is what a run that ended without an answer looks like; nil = it has one.
func completionFault(end chat.RunEnd) error {
	_, err := endOf(end)
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return err
	}
	w, _ := fault.From(e)
	switch status := e.Details["status"]; {
	case status == "timeout":
		w.WithStatus(http.StatusGatewayTimeout).Details["code"] = apiRunTimeout
	case status == "cancelled", e.Code == chat.CodeStale, e.Code == chat.CodeCleared:
		w.WithStatus(http.StatusConflict).Details["code"] = apiRunCancelled
	}
	w.Retryable = false // the turn was paid for; whether it is wanted again is the caller's decision
	return w
}
