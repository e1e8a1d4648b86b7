package agent

import (
	"context"
	"encoding/json"

	"laneway/internal/chat"
)

// ToolSpec is what a model is offered.
type ToolSpec struct {
	Name, Description string
	// Schema is the JSON Schema of the arguments, an object.
	Schema json.RawMessage
	// Idempotent: a call that is repeated under its key has no second effect.
	Idempotent bool
	// Waits: a call may take as long as the turn, because it waits for the end of another turn.
	Waits bool
	// InOrder: the calls of such tools run one after the other, in the order in which the model has asked for them, because a person reads their effects in
	// that order. Other calls run beside each other.
	InOrder bool
}

// CallOrder makes the calls of tools that run in order wait for each other, in the order in which they join. The zero value is ready for use; it is not safe for
// concurrent use, its places are.
type CallOrder struct{ last <-chan struct{} }

// CallPlace is the place of one call. The zero value waits for no other call.
type CallPlace struct {
	before <-chan struct{}
	left   chan<- struct{}
}

// Join adds a call; one of a tool that does not run in order gets the zero place. The caller leaves the place when the call has ended, also when it was not made.
func (o *CallOrder) Join(spec ToolSpec) CallPlace {
	if !spec.InOrder {
		return CallPlace{}
	}
	left := make(chan struct{})
	place := CallPlace{before: o.last, left: left}
	o.last = left
	return place
}

// Await blocks until the call before has ended; false = ctx ended first.
func (p CallPlace) Await(ctx context.Context) bool {
	if p.before == nil {
		return true
	}
	select {
	case <-p.before:
		return true
	case <-ctx.Done():
		return false
	}
}

// Leave lets the next call begin.
func (p CallPlace) Leave() {
	if p.left != nil {
		close(p.left)
	}
}

// Toolbox is the tools of one turn. It is safe for concurrent use.
type Toolbox interface {
	// Specs are the tools that the turn may use, in the order in which they are offered.
	Specs() []ToolSpec
	// Call runs one call. It returns when ctx is over, never panics, and reports every failure as a result with IsError, because the model
	// decides how to go on. The same key is the same call, also in a later attempt of the run.
	Call(ctx context.Context, key string, call chat.ToolCall) chat.ToolResult
}

// Journal keeps the rounds of one turn over the end of the process, so that a model is never asked again for what it has asked for. The methods are
// called on the goroutine of Run. A recorded round stays as it is: the same record again changes nothing.
type Journal interface {
	// Rounds are what earlier attempts of the run recorded, oldest first, without gaps in their numbers.
	Rounds() []Round
	// Record commits what the model asked for, before any of the calls runs. An error ends the turn.
	Record(ctx context.Context, round chat.Round) error
	// RecordResult commits the result of a call; call counts from 0. An error ends the turn.
	RecordResult(ctx context.Context, round, call int, result chat.ToolResult) error
}

// Round is a recorded round with the messages that joined the turn behind its results.
type Round struct {
	chat.Round

	Input []chat.Content
}

// ToolAccess is how the program of a turn reaches the tools of the turn: an MCP server (Streamable HTTP) and the bearer token for it, which ends with the
// turn. A program that is kept has the same token in each turn of its session; between turns it opens nothing. The zero value is no access.
type ToolAccess struct{ URL, Token string }

// ProgramTools opens the tools of the turn to the runner's program, until end is called. The access is zero where there is none.
func (r Request) ProgramTools(ctx context.Context) (access ToolAccess, end func()) {
	if r.OpenTools == nil {
		return ToolAccess{}, func() {}
	}
	return r.OpenTools(ctx)
}
