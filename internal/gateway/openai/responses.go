package openai

import (
	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
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
	Tools             []string          `json:"tools"`
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

type outputItem struct {
	Type    string       `json:"type"`
	ID      string       `json:"id"`
	Status  string       `json:"status"`
	Role    string       `json:"role"`
	Content []outputText `json:"content"`
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
		Reasoning: reasoning{Effort: raw.Reasoning.Effort}, Store: true, Temperature: raw.Temperature, Text: outputFormat{raw.Text.format()}, ToolChoice: "auto",
		Tools: []string{}, TopP: raw.TopP, Truncation: "disabled", Metadata: map[string]string{},
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
	r.Output = []outputItem{r.item(r.Status, end.Text)}
	r.Usage = &responseUsage{
		InputTokens: end.Usage.InputTokens, OutputTokens: end.Usage.OutputTokens, TotalTokens: end.Usage.InputTokens + end.Usage.OutputTokens,
	}
	return r
}

// item returns the only message of the output.
func (r response) item(state, text string) outputItem {
	return outputItem{Type: "message", ID: "msg_" + r.ID[len(responsePrefix):], Status: state, Role: chat.RoleAssistant, Content: []outputText{textPart(text)}}
}

func textPart(text string) outputText {
	return outputText{Type: "output_text", Text: text, Annotations: []string{}, Logprobs: []string{}}
}

func (responses) whole(a *run, end chat.RunEnd) any { return responseOf(a).end(end) }

// responseEvents streams an answer in the form of responses. Events are numbered from 0.
type responseEvents struct {
	out *eventStream
	a   *run
	seq int
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
	item := r.item(stateInProgress, "")
	item.Content = []outputText{}
	e.put(e.ofItem("response.output_item.added", item))
	part, ev := textPart(""), e.ofText("response.content_part.added")
	ev.Part = &part
	e.put(ev)
}

func (e *responseEvents) text(more string) {
	ev := e.ofText("response.output_text.delta")
	ev.Delta = &more
	e.put(ev)
}

func (e *responseEvents) finish(end chat.RunEnd) {
	r := responseOf(e.a).end(end)
	done := e.ofText("response.output_text.done")
	done.Text = &end.Text
	e.put(done)
	part, ev := textPart(end.Text), e.ofText("response.content_part.done")
	ev.Part = &part
	e.put(ev)
	e.put(e.ofItem("response.output_item.done", r.Output[0]))
	e.put(streamEvent{Type: "response." + r.Status, Response: &r})
}

func (e *responseEvents) fail(refused *fault.Error) {
	r := responseOf(e.a)
	if e.seq == 0 {
		e.put(streamEvent{Type: "response.created", Response: &r})
	}
	shown := errorOf(refused.HTTPStatus(), refused)
	r.Status, r.Error = stateFailed, &responseError{Code: shown.Type, Message: shown.Message}
	if shown.Code != nil {
		r.Error.Code = *shown.Code
	}
	if e.out.sent != "" {
		r.Output = []outputItem{r.item(stateIncomplete, e.out.sent)}
	}
	e.put(streamEvent{Type: "response.failed", Response: &r})
}
