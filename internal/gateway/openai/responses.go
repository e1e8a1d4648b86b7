package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
)

// States of a response.
const (
	stateInProgress = "in_progress"
	stateCompleted  = "completed"
	stateIncomplete = "incomplete"
	stateFailed     = "failed"
)

// response is an answer in the form of POST /v1/responses, complete or in progress.
type response struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	CreatedAt         int64             `json:"created_at"`
	Status            string            `json:"status"`
	Background        bool              `json:"background"`
	Error             *responseError    `json:"error"`
	IncompleteDetails *incomplete       `json:"incomplete_details"`
	Instructions      *string           `json:"instructions"`
	MaxOutputTokens   *int              `json:"max_output_tokens"`
	Model             string            `json:"model"`
	Output            []outputItem      `json:"output"`
	ParallelToolCalls bool              `json:"parallel_tool_calls"`
	Previous          *string           `json:"previous_response_id"`
	Conversation      *conversationRef  `json:"conversation,omitempty"`
	Reasoning         reasoning         `json:"reasoning"`
	Store             bool              `json:"store"`
	Temperature       *float64          `json:"temperature"`
	Text              outputFormat      `json:"text"`
	ToolChoice        string            `json:"tool_choice"`
	Tools             []json.RawMessage `json:"tools"`
	TopP              *float64          `json:"top_p"`
	Truncation        string            `json:"truncation"`
	Usage             *responseUsage    `json:"usage"`
	Metadata          map[string]string `json:"metadata"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type conversationRef struct {
	ID string `json:"id"`
}

type reasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type outputFormat struct {
	Format textFormat `json:"format"`
}

// outputItem is a message, or a call of a tool of the client.
type outputItem struct {
	Type      string       `json:"type"`
	ID        string       `json:"id"`
	Status    string       `json:"status"`
	Role      string       `json:"role,omitempty"`
	Content   []outputText `json:"content,omitzero"`
	CallID    string       `json:"call_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Arguments *string      `json:"arguments,omitempty"`
	Extra     extraContent `json:"extra_content,omitempty"`
}

type outputText struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"`
	Logprobs    []string `json:"logprobs"`
}

type responseUsage struct {
	InputTokens        int           `json:"input_tokens"`
	InputTokensDetails inputDetails  `json:"input_tokens_details"`
	OutputTokens       int           `json:"output_tokens"`
	OutputDetails      outputDetails `json:"output_tokens_details"`
	TotalTokens        int           `json:"total_tokens"`
}

type inputDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

type outputDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// responseOf returns the response of a run in progress.
func responseOf(a *run) response {
	raw := &a.prompt.raw
	out := response{
		ID: responsePrefix + chat.ShownRunID(a.receipt.RunID), Object: "response", CreatedAt: a.created, Status: stateInProgress,
		Instructions: raw.Instructions, MaxOutputTokens: raw.MaxOutputTokens, Model: a.prompt.model, Output: []outputItem{}, Previous: raw.PreviousResponseID,
		Reasoning: reasoning{Effort: raw.Reasoning.Effort}, Store: !a.prompt.passing, Temperature: raw.Temperature, Text: outputFormat{raw.Text.format()}, ToolChoice: "auto",
		ParallelToolCalls: raw.ParallelToolCalls == nil || *raw.ParallelToolCalls,
		Tools:             append([]json.RawMessage{}, raw.Tools...), TopP: raw.TopP, Truncation: "disabled", Metadata: map[string]string{},
	}
	if name := a.prompt.conversation; name != nil {
		out.Conversation = &conversationRef{*name}
	}
	return out
}

// end completes the response of a run that has an answer.
func (r response) end(end chat.RunEnd) response {
	r.Status = stateCompleted
	if end.StopReason == agent.StopLength {
		r.Status, r.IncompleteDetails = stateIncomplete, &incomplete{"max_output_tokens"}
	}
	if end.Text != "" || len(end.Calls) == 0 {
		r.Output = []outputItem{r.item(r.Status, end.Text)}
	}
	r.Output = append(r.Output, r.callItems(end.Calls)...)
	r.Usage = &responseUsage{
		InputTokens: end.Usage.InputTokens, OutputTokens: end.Usage.OutputTokens, TotalTokens: end.Usage.InputTokens + end.Usage.OutputTokens,
	}
	return r
}

// fail completes the response of a run that has no answer.
func (r response) fail(refused *fault.Error) response {
	shown := errorOf(refused.HTTPStatus(), refused)
	r.Status, r.Error = stateFailed, &responseError{Code: shown.Type, Message: shown.Message}
	if shown.Code != nil {
		r.Error.Code = *shown.Code
	}
	return r
}

// item returns the only message of the output.
func (r response) item(state, text string) outputItem {
	return outputItem{Type: "message", ID: itemPrefix + r.ID[len(responsePrefix):], Status: state, Role: chat.RoleAssistant, Content: []outputText{textPart(text)}}
}

func textPart(text string) outputText {
	return outputText{Type: "output_text", Text: text, Annotations: []string{}, Logprobs: []string{}}
}

func (responses) whole(a *run, end chat.RunEnd) any { return responseOf(a).end(end) }

// responseEvents streams an answer in the form of responses. Events are numbered from 0.
type responseEvents struct {
	out    *eventStream
	a      *run
	seq    int
	opened bool // the message of the output has begun
}

func (responses) voice(out *eventStream, a *run) voice { return &responseEvents{out: out, a: a} }

// streamEvent is any event of a stream; its members depend on its type.
type streamEvent struct {
	Type         string      `json:"type"`
	Sequence     int         `json:"sequence_number"`
	Response     *response   `json:"response,omitempty"`
	OutputIndex  *int        `json:"output_index,omitempty"`
	ContentIndex *int        `json:"content_index,omitempty"`
	ItemID       string      `json:"item_id,omitempty"`
	Item         *outputItem `json:"item,omitempty"`
	Part         *outputText `json:"part,omitempty"`
	Delta        *string     `json:"delta,omitempty"`
	Text         *string     `json:"text,omitempty"`
	Arguments    *string     `json:"arguments,omitempty"`
	Logprobs     []string    `json:"logprobs,omitempty"`
}

func (e *responseEvents) put(ev streamEvent) {
	ev.Sequence = e.seq
	e.seq++
	e.out.event(ev.Type, ev)
}

// ofText returns an event about the text of the only message of the output.
func (e *responseEvents) ofText(kind string) streamEvent {
	first := 0
	return streamEvent{Type: kind, ItemID: responseOf(e.a).item("", "").ID, OutputIndex: &first, ContentIndex: &first}
}

// ofItem returns an event about that message.
func (e *responseEvents) ofItem(kind string, item outputItem) streamEvent {
	first := 0
	return streamEvent{Type: kind, OutputIndex: &first, Item: &item}
}

func (e *responseEvents) begin() {
	r := responseOf(e.a)
	e.put(streamEvent{Type: "response.created", Response: &r})
	e.put(streamEvent{Type: "response.in_progress", Response: &r})
	if e.a.prompt.client == nil { // otherwise the answer may have calls alone
		e.open()
	}
}

// open begins the message of the output, once.
func (e *responseEvents) open() {
	if e.opened {
		return
	}
	e.opened = true
	item := responseOf(e.a).item(stateInProgress, "")
	item.Content = []outputText{}
	e.put(e.ofItem("response.output_item.added", item))
	part, ev := textPart(""), e.ofText("response.content_part.added")
	ev.Part = &part
	e.put(ev)
}

func (e *responseEvents) text(more string) {
	e.open()
	ev := e.ofText("response.output_text.delta")
	ev.Delta = &more
	e.put(ev)
}

func (e *responseEvents) finish(end chat.RunEnd) {
	r := responseOf(e.a).end(end)
	for i, item := range r.Output {
		if item.Type == "message" {
			e.finishText(end.Text, item)
		} else {
			e.call(i, item)
		}
	}
	e.put(streamEvent{Type: "response." + r.Status, Response: &r})
}

func (e *responseEvents) finishText(text string, item outputItem) {
	e.open()
	done := e.ofText("response.output_text.done")
	done.Text = &text
	e.put(done)
	part, ev := textPart(text), e.ofText("response.content_part.done")
	ev.Part = &part
	e.put(ev)
	e.put(e.ofItem("response.output_item.done", item))
}

// call sends a call of a tool of the client.
func (e *responseEvents) call(index int, item outputItem) {
	begun, none := item, ""
	begun.Status, begun.Arguments = stateInProgress, &none
	e.put(streamEvent{Type: "response.output_item.added", OutputIndex: &index, Item: &begun})
	e.put(streamEvent{Type: "response.function_call_arguments.delta", ItemID: item.ID, OutputIndex: &index, Delta: item.Arguments})
	e.put(streamEvent{Type: "response.function_call_arguments.done", ItemID: item.ID, OutputIndex: &index, Arguments: item.Arguments})
	e.put(streamEvent{Type: "response.output_item.done", OutputIndex: &index, Item: &item})
}

func (e *responseEvents) fail(refused *fault.Error) {
	r := responseOf(e.a)
	if e.seq == 0 {
		e.put(streamEvent{Type: "response.created", Response: &r})
	}
	r = r.fail(refused)
	if e.out.sent != "" {
		r.Output = []outputItem{r.item(stateIncomplete, e.out.sent)}
	}
	e.put(streamEvent{Type: "response.failed", Response: &r})
}

// responses implements the form of POST /v1/responses.
type responses struct{}

func (responses) name() string { return "responses" }

func (responses) formatMember() string { return "text.format" }

// responseRequest has the supported members of a request for a response. Unknown ones are ignored,
// because clients send many.
type responseRequest struct {
	Model              string            `json:"model"`
	Input              json.RawMessage   `json:"input"`
	Instructions       *string           `json:"instructions"`
	Stream             bool              `json:"stream"`
	PreviousResponseID *string           `json:"previous_response_id"`
	Conversation       json.RawMessage   `json:"conversation"`
	Background         bool              `json:"background"`
	Tools              []json.RawMessage `json:"tools"`
	ToolChoice         json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls  *bool             `json:"parallel_tool_calls"`
	Temperature        *float64          `json:"temperature"`
	TopP               *float64          `json:"top_p"`
	MaxOutputTokens    *int              `json:"max_output_tokens"`
	Text               responseText      `json:"text"`
	Reasoning          responseReasoning `json:"reasoning"`
	Store              *bool             `json:"store"`
}

type responseText struct {
	Format *textFormat `json:"format"`
}

// format returns the format of the answer, with its default.
func (t responseText) format() textFormat {
	if t.Format == nil {
		return textFormat{Type: formatText}
	}
	return *t.Format
}

type responseReasoning struct {
	Effort *string `json:"effort"`
}

// inputItem is an item of the input: a message, a reference to one, a call of a tool of the client
// or its result, or one that is ignored or refused.
type inputItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Extra     extraContent    `json:"extra_content"`
	inputMessage
}

func (responses) read(body []byte) (prompt, error) {
	var req responseRequest
	if err := decode(body, &req); err != nil {
		return prompt{}, err
	}
	if err := refuseUndone(body); err != nil {
		return prompt{}, err
	}
	if err := req.check(); err != nil {
		return prompt{}, err
	}
	messages, err := req.messages()
	if err != nil {
		return prompt{}, err
	}
	settings, err := req.params()
	if err != nil {
		return prompt{}, err
	}
	p := prompt{model: req.Model, stream: req.Stream, keep: true, params: settings, raw: req, messages: messages, member: "input", passing: req.Store != nil && !*req.Store}
	tools := make([]clientTool, len(req.Tools))
	for i, raw := range req.Tools {
		if json.Unmarshal(raw, &tools[i]) != nil {
			return prompt{}, invalid("tools", "tools[%d] must be an object with a type, a name and parameters", i)
		}
	}
	if p.client, err = toolsOf(tools, req.ToolChoice, req.ParallelToolCalls); err != nil {
		return prompt{}, err
	}
	format, err := req.Text.Format.format()
	if err != nil {
		return prompt{}, err
	}
	if p.format, err = format.param(); err != nil {
		return prompt{}, err
	}
	if req.Instructions != nil {
		p.instructions = *req.Instructions
	}
	if req.PreviousResponseID != nil {
		p.previous = *req.PreviousResponseID
	}
	if p.thinking, err = effort("reasoning.effort", req.Reasoning.Effort); err != nil {
		return prompt{}, err
	}
	if p.conversation, err = req.conversation(); err == nil && p.conversation != nil && p.previous != "" {
		err = errors.New("previous_response_id and conversation cannot be used together")
	}
	return p, err
}

func separated(text string) string {
	if text == "" {
		return ""
	}
	return "\n\n" + text
}

func (req *responseRequest) check() error {
	switch {
	case req.Model == "":
		return invalid("model", "model is required; GET /v1/models lists what there is")
	case req.Background:
		return invalid("background", "background is not supported; send the header X-Laneway-Detach: 1 and close the connection instead")
	default:
		return nil
	}
}

// messages returns the messages of the input.
func (req *responseRequest) messages() ([]inputMessage, error) {
	raw := bytes.TrimSpace(req.Input)
	if len(raw) > 0 && raw[0] == '"' {
		only := inputMessage{Role: chat.RoleUser, Content: raw}
		err := only.read()
		return []inputMessage{only}, err
	}
	var items []inputItem
	if len(raw) == 0 || json.Unmarshal(raw, &items) != nil {
		return nil, invalid("input", "input must be a string or a list of messages")
	}
	if len(items) == 0 || len(items) > maxMessages {
		return nil, invalid("input", "input must have 1 to %d items", maxMessages)
	}
	messages := make([]inputMessage, 0, len(items))
	for i, item := range items {
		m, err := item.message()
		if named := (*chat.Error)(nil); errors.As(err, &named) {
			return nil, err
		}
		if err != nil {
			return nil, invalid("input", "input[%d]: %s", i, err)
		}
		if m != nil {
			messages = append(messages, *m)
		}
	}
	return messages, nil
}

// message returns the message of an item; nil = it is ignored.
func (item *inputItem) message() (*inputMessage, error) {
	if item.Type == "" && item.ID != "" && item.Role == "" {
		item.Type = "item_reference"
	}
	switch item.Type {
	case "reasoning": // reasoning that a client repeats from an earlier answer
		return nil, nil // it is ignored
	case "item_reference":
		if !strings.HasPrefix(item.ID, itemPrefix) && !strings.HasPrefix(item.ID, callPrefix) {
			return nil, invalid("input", "the item %s is none of this gateway's; send the message itself", quoted(item.ID))
		}
		return &inputMessage{Role: chat.RoleAssistant, reference: item.ID}, nil
	case "function_call":
		return &inputMessage{Role: chat.RoleAssistant, calls: []chat.ToolCall{{ID: item.CallID, Name: item.Name, Args: item.Arguments, Extra: string(item.Extra)}}}, nil
	case "function_call_output":
		item.inputMessage = inputMessage{Role: roleTool, ToolCallID: item.CallID, Content: item.Output}
	case "", "message":
		if item.Role == roleTool {
			return nil, errors.New("a result of a tool is an item of type function_call_output")
		}
		item.ToolCalls = nil
	default:
		return nil, invalid("input", "an item of type %s is not supported, only message, item_reference, function_call and function_call_output", quoted(item.Type))
	}
	return &item.inputMessage, item.read()
}

// conversation returns the name of the conversation that the client has chosen, given as a string
// or as an object with an id; nil = no name.
func (req *responseRequest) conversation() (*string, error) {
	raw := bytes.TrimSpace(req.Conversation)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil // no conversation is no error
	}
	var name string
	if json.Unmarshal(raw, &name) != nil {
		var object struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &object) != nil {
			return nil, errors.New("conversation must be a string or an object with an id")
		}
		name = object.ID
	}
	return &name, checkName("conversation", name)
}

func (req *responseRequest) params() (map[string]any, error) {
	return params(req.Temperature, req.TopP, bound{"max_output_tokens", req.MaxOutputTokens})
}

// The prefixes of the ids of responses, and of the messages and calls in their output.
const (
	responsePrefix = "resp_"
	itemPrefix     = "msg_"
	callPrefix     = "fc_"
)

// recall replaces each reference to an item of an answer by the item, and joins the calls of one
// answer. An answer that the caller may not use counts as one that does not exist.
func (h *Handler) recall(ctx context.Context, c *call) error {
	var all []inputMessage
	for _, m := range c.prompt.messages {
		if m.reference != "" {
			if err := h.resolve(ctx, c, &m); err != nil {
				return err
			}
		}
		if last := len(all) - 1; last >= 0 && m.Role == chat.RoleAssistant && len(m.calls) > 0 && m.text == "" && all[last].Role == chat.RoleAssistant {
			all[last].calls = append(slices.Clip(all[last].calls), m.calls...)
			continue
		}
		all = append(all, m)
	}
	c.prompt.messages = all
	return nil
}

// resolve reads the text or the call that a message is by reference.
func (h *Handler) resolve(ctx context.Context, c *call, m *inputMessage) error {
	id, call := strings.TrimPrefix(m.reference, itemPrefix), -1
	if rest, is := strings.CutPrefix(m.reference, callPrefix); is {
		var number string
		id, number, _ = strings.Cut(rest, "_")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			call = n
		} else {
			id = ""
		}
	}
	end, err := h.answered(ctx, c.cred, id)
	switch {
	case err != nil:
	case call < 0:
		m.text, m.outside = end.Text, end.Foreign
	case call < len(end.Calls):
		m.calls = []chat.ToolCall{end.Calls[call]}
	default:
		err = chat.ErrNotFound
	}
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrSessionNotFound) {
		err = chat.Errorf(chat.CodeNotFound, "the item %s does not exist, or its conversation was removed", quoted(m.reference)).With("param", "input")
	}
	return err
}

// place returns the place of a run that the caller may use and that is kept. chat.ErrNotFound,
// chat.ErrSessionNotFound.
func (h *Handler) place(ctx context.Context, cred auth.Credential, runID string) (chat.Place, error) {
	at, err := h.runs.Place(ctx, runID)
	if err == nil && at.Session.Passing() {
		err = chat.ErrNotFound
	}
	if err == nil {
		err = h.server.MayUse(ctx, cred, at.Session)
	}
	return at, err
}

// answered returns the end of a run that has an answer and that the caller may use.
// chat.ErrNotFound, chat.ErrSessionNotFound.
func (h *Handler) answered(ctx context.Context, cred auth.Credential, runID string) (chat.RunEnd, error) {
	at, err := h.place(ctx, cred, runID)
	if err == nil && !at.Ended {
		err = chat.ErrNotFound
	}
	if err != nil {
		return chat.RunEnd{}, err
	}
	end, err := h.runs.Wait(ctx, runID)
	if err == nil && end.Outcome != chat.OutcomeAnswered {
		err = chat.ErrNotFound
	}
	return end, err
}

// Response answers GET /v1/responses/{id} with what the store has of it: its state and its output.
func (h *Handler) Response() http.HandlerFunc {
	return handled(h.server, responses{}.name(), chat.ScopeRead, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		if r.URL.Query().Get("stream") == "true" {
			return invalid("stream", "a response is streamed only by the request that makes it; leave stream out")
		}
		c := &call{cred: cred, prompt: prompt{previous: chi.URLParam(r, "id")}}
		at, err := h.previous(r.Context(), c)
		if err != nil {
			return err
		}
		a := &run{
			cred: cred, prompt: prompt{model: "laneway/" + at.Session.Agent}, form: responses{}, receipt: chat.Receipt{RunID: at.RunID}, created: at.AcceptedAt.Unix(),
		}
		out := responseOf(a)
		if at.Ended {
			end, err := h.runs.Wait(r.Context(), at.RunID)
			if err != nil {
				return err // for the client as it is
			}
			if err := a.fault(end); err != nil {
				out = out.fail(h.server.Explain(r.Context(), a.form.name(), err))
			} else {
				out = out.end(end)
			}
		}
		httpbody.WriteJSON(w, http.StatusOK, out)
		return nil
	})
}

// DeleteResponse answers DELETE /v1/responses/{id} by deleting its session, if the response is all
// of it.
func (h *Handler) DeleteResponse() http.HandlerFunc {
	return handled(h.server, responses{}.name(), chat.ScopeWrite, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		if e := h.server.Refusal(); e != nil {
			return e
		}
		c := &call{cred: cred, prompt: prompt{previous: chi.URLParam(r, "id")}}
		at, err := h.previous(r.Context(), c)
		if err != nil {
			return err
		}
		deleted, err := h.runs.DeleteWhole(r.Context(), at, c.caller())
		if err == nil && !deleted {
			err = chat.Errorf(chat.CodeConflict, "the response %s is a part of the conversation %s; delete the whole with: laneway sessions delete %s",
				quoted(c.prompt.previous), at.Session, at.Session)
		}
		if err != nil {
			return err
		}
		httpbody.WriteJSON(w, http.StatusOK, deletedObject{ID: c.prompt.previous, Object: "response", Deleted: true})
		return nil
	})
}

// following returns the place after an earlier response. If the response's message is the newest of
// its session, the session continues there. Otherwise the conversation branches: a new session
// begins with its entries up to the response.
//
// Two concurrent requests may continue the same response. The id of a message that continues one is
// derived from the response, so the store accepts only the first; the other one branches.
func (h *Handler) following(ctx context.Context, c *call, agentID string) (destination, error) {
	at, err := h.previous(ctx, c)
	if err != nil {
		return destination{}, err
	}
	if !at.Newest || at.Session.Agent != agentID {
		return h.branchAt(ctx, c, at, agentID)
	}
	return destination{key: at.Session, id: uuid.NewSHA1(uuid.Nil, []byte("behind "+at.RunID)).String(), claims: true}, nil
}

// branch returns the message of a request in a new session, after another request has continued its
// response.
func (h *Handler) branch(ctx context.Context, c *call) (chat.Message, error) {
	at, err := h.previous(ctx, c)
	if err == nil {
		c.to, err = h.branchAt(ctx, c, at, agentOf(c.prompt.model, h.runs))
	}
	if err != nil {
		return chat.Message{}, err
	}
	return c.message(), nil
}

func (h *Handler) branchAt(ctx context.Context, c *call, at chat.Place, agentID string) (destination, error) {
	if !at.Ended {
		return destination{}, chat.Errorf(chat.CodeConflict, "the response %s is not complete yet; wait for its end", c.prompt.previous)
	}
	point, err := h.runs.BranchAt(ctx, at.Session, at.RunID)
	if errors.Is(err, chat.ErrNotFound) {
		err = c.unknownResponse()
	}
	out := c.newDestination(agentID)
	out.branch = &point
	return out, err
}

// previous returns the response that a request continues. One that the caller may not use counts as
// one that does not exist.
func (h *Handler) previous(ctx context.Context, c *call) (chat.Place, error) {
	id, ok := strings.CutPrefix(c.prompt.previous, responsePrefix)
	if !ok {
		return chat.Place{}, c.unknownResponse()
	}
	at, err := h.place(ctx, c.cred, id)
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrSessionNotFound) {
		err = c.unknownResponse()
	}
	return at, err
}

func (c *call) unknownResponse() error {
	return chat.Errorf(chat.CodeNotFound, "the response %s does not exist, or its conversation was removed", quoted(c.prompt.previous)).With("param", "previous_response_id")
}
