package openai

import (
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
)

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
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
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
