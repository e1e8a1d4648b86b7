package openai

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
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

// answer waits for the end of the run. A client that disconnects stops its run, unless it set the
// header for detaching. A gateway that stops does not stop the run, because another process
// continues it.
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

// stop stops a run that no client waits for. A repeated request has not started its run and does
// not stop it.
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

// completions implements the form of POST /v1/chat/completions.
type completions struct{}

func (completions) name() string { return "chat.completions" }

func (completions) formatMember() string { return paramFormat }

func (completions) whole(a *run, end chat.RunEnd) any {
	message := answerMessage{Role: chat.RoleAssistant, Content: &end.Text, ToolCalls: madeCalls(end.Calls, false)}
	if len(end.Calls) > 0 && end.Text == "" {
		message.Content = nil
	}
	return completion{
		ID: completionID(a), Object: "chat.completion", Created: a.created, Model: a.prompt.model,
		Choices: []choice{{Message: message, FinishReason: finishReason(end)}},
		Usage:   usageOf(end.Usage),
	}
}

func completionID(a *run) string { return "chatcmpl-" + chat.ShownRunID(a.receipt.RunID) }

// completion is the answer to a request that is not streamed.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   usage    `json:"usage"`
}

type choice struct {
	Index        int           `json:"index"`
	Message      answerMessage `json:"message"`
	Logprobs     *string       `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

type answerMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []madeCall `json:"tool_calls,omitempty"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func usageOf(u chat.Usage) usage {
	return usage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
}

func finishReason(end chat.RunEnd) string {
	switch {
	case len(end.Calls) > 0:
		return chat.StopCalls
	case end.StopReason == agent.StopLength:
		return agent.StopLength
	default:
		return agent.StopNormal
	}
}

// fault returns the error of a run that ended without an answer, or nil.
func (a *run) fault(end chat.RunEnd) error {
	err := fault.OfRun(end, a.cred.Administers(a.cred.Scopes))
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return err
	}
	w, _ := fault.From(e)
	switch status := e.Details["status"]; {
	case status == "error" && providers(w, chat.FailReason(end.Reason)):
	case status == "timeout":
		w.WithStatus(http.StatusGatewayTimeout).Details["code"] = codeRunTimeout
	case status == "cancelled", e.Code == chat.CodeStale, e.Code == chat.CodeCleared:
		w.WithStatus(http.StatusConflict).Details["code"] = codeRunCancelled
	}
	w.Retryable = false // the turn was paid for; only the caller can decide to run it again
	return w
}

// providers gives an error the status and code of the API when the provider refused this request
// itself, which is no failure of the gateway. It returns false for other errors.
func providers(e *fault.Error, reason chat.FailReason) bool {
	switch reason {
	case chat.FailContextLength:
		e.WithStatus(http.StatusBadRequest).Details["code"] = "context_length_exceeded"
	case chat.FailRefusal:
		e.WithStatus(http.StatusBadRequest).Details["code"] = "content_filter"
	case chat.FailRateLimit:
		e.WithStatus(http.StatusTooManyRequests).Details["code"] = "rate_limit_exceeded"
	default:
		return false // all others are failures
	}
	return true
}

type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
	Usage   *usage        `json:"usage,omitempty"`
}

type chunkChoice struct {
	Index        int        `json:"index"`
	Delta        chunkDelta `json:"delta"`
	Logprobs     *string    `json:"logprobs"`
	FinishReason *string    `json:"finish_reason"`
}

type chunkDelta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []madeCall `json:"tool_calls,omitempty"`
}

// chunks streams an answer in the form of completions.
type chunks struct {
	out *eventStream
	a   *run
}

func (completions) voice(out *eventStream, a *run) voice { return chunks{out, a} }

func (c chunks) chunk(choices ...chunkChoice) chunk {
	if choices == nil {
		choices = []chunkChoice{}
	}
	return chunk{ID: completionID(c.a), Object: "chat.completion.chunk", Created: c.a.created, Model: c.a.prompt.model, Choices: choices}
}

// begin sends the role.
func (c chunks) begin() {
	empty := ""
	c.out.data(c.chunk(chunkChoice{Delta: chunkDelta{Role: chat.RoleAssistant, Content: &empty}}))
}

func (c chunks) text(more string) {
	c.out.data(c.chunk(chunkChoice{Delta: chunkDelta{Content: &more}}))
}

func (c chunks) finish(end chat.RunEnd) {
	if calls := madeCalls(end.Calls, true); len(calls) > 0 {
		c.out.data(c.chunk(chunkChoice{Delta: chunkDelta{ToolCalls: calls}}))
	}
	reason := finishReason(end)
	c.out.data(c.chunk(chunkChoice{FinishReason: &reason}))
	if c.a.prompt.usage {
		last, usage := c.chunk(), usageOf(end.Usage)
		last.Usage = &usage
		c.out.data(last)
	}
	c.done()
}

func (c chunks) done() { c.out.write("data: [DONE]\n\n") }

func (c chunks) fail(refused *fault.Error) {
	c.out.data(errorBody{errorOf(refused.HTTPStatus(), refused)})
	c.done()
}

type modelList struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// Models answers GET /v1/models with the models of completions: the default agent by its short
// name, and every agent.
func (h *Handler) Models(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.server.Bearer(w, r, chat.ScopeRead); !ok {
		return
	}
	created := h.cfg.StartedAt.Unix()
	list := modelList{Object: "list", Data: []model{{"laneway", "model", created, "laneway"}}}
	for _, a := range h.runs.Agents() {
		list.Data = append(list.Data, model{"laneway/" + a.ID, "model", created, "laneway"})
	}
	httpbody.WriteJSON(w, http.StatusOK, list)
}

// Model answers GET /v1/models/ID with any name that requests may use. Clients send the slash of a
// name as it is, or escaped.
func (h *Handler) Model(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.server.Bearer(w, r, chat.ScopeRead); !ok {
		return
	}
	id := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	if agentOf(id, h.runs) == "" {
		refuse(r.Context(), h.server, w, "models", noModel(id))
		return
	}
	httpbody.WriteJSON(w, http.StatusOK, model{id, "model", h.cfg.StartedAt.Unix(), "laneway"})
}

func noModel(id string) error {
	return chat.Errorf(chat.CodeUnknownAgent, "the model %s does not exist; GET /v1/models lists what there is", quoted(id)).With("param", "model")
}

// agentOf returns the agent of a model: laneway (the default agent), laneway/AGENT, agent:AGENT, or
// the bare id of an agent; "" when no such agent exists.
func agentOf(model string, agents Runs) string {
	id := model
	if name, ok := strings.CutPrefix(model, "agent:"); ok {
		id = name
	}
	for _, prefix := range []string{"laneway", "openclaw"} {
		name, ok := strings.CutPrefix(model, prefix)
		switch {
		case !ok:
		case name == "", name == "/default":
			return agents.DefaultAgent()
		case name[0] == '/':
			id = name[1:]
		}
	}
	if !slices.ContainsFunc(agents.Agents(), func(a agent.Info) bool { return a.ID == id }) {
		return ""
	}
	return id
}

// errorBody is an error in the form of OpenAI.
type errorBody struct {
	Error apiError `json:"error"`
}

type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param"`
}

// Codes that are not the lower-case form of a code of the core.
const (
	codeModelNotFound = "model_not_found"
	codeRunTimeout    = "run_timeout"
	codeRunCancelled  = "run_cancelled"
)

func errorOf(status int, e *fault.Error) apiError {
	f := apiError{Message: e.Message, Type: typeOf(status)}
	if code, ok := e.Details["code"].(string); ok {
		code = codeOf(code)
		f.Code = &code
	}
	if param, ok := e.Details["param"].(string); ok {
		f.Param = &param
	}
	return f
}

func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

func codeOf(code string) string {
	switch chat.Code(code) {
	case chat.CodeUnknownAgent:
		return codeModelNotFound
	case chat.CodeQueueDropped:
		return "queue_full"
	default:
		return strings.ToLower(code)
	}
}

// WriteError answers with an error. Client libraries repeat a request automatically for many
// statuses. When the turn has run, a header forbids that, because a second turn is a second effect.
func WriteError(w http.ResponseWriter, status int, e *fault.Error) {
	if !e.Retryable {
		w.Header().Set("X-Should-Retry", "false")
	}
	httpbody.SetRetryAfter(w.Header(), status, e)
	httpbody.WriteJSON(w, status, errorBody{errorOf(status, e)})
}
