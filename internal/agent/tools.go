package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"

	"laneway/internal/chat"
)

// ToolSpec is a tool as it is offered to a model.
type ToolSpec struct {
	Name, Description string
	// Schema is the JSON Schema of the arguments, an object.
	Schema json.RawMessage
	// Idempotent is true when a call that is repeated under its key has no second effect.
	Idempotent bool
	// ReadOnly is true when no call changes anything, Additive when a call creates or sends and changes nothing that exists. Clients that ask a person before
	// calls read them.
	ReadOnly, Additive bool
	// Waits is true when a call may take as long as the turn, because it waits for the end of another turn.
	Waits bool
	// InOrder is true when calls of such tools run one after the other, in the order of the model's answer, because a person reads their effects in
	// that order. Other calls run concurrently.
	InOrder bool
}

// maxToolName is the longest name of a tool that the endpoints of all models take.
const maxToolName = 64

// foreignInName matches what such a name cannot have.
var foreignInName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// ModelName returns a name for models: foreign characters become underscores, and a long name ends with a hash of the whole.
func ModelName(name string) string {
	if short := foreignInName.ReplaceAllLiteralString(name, "_"); len(short) <= maxToolName {
		return short
	}
	return HashedName(name)
}

// HashedName returns a name for models that differs from that of any other name: it ends with six characters of a hash.
func HashedName(name string) string {
	const size = 6
	sum := sha256.Sum256([]byte(name))
	short := foreignInName.ReplaceAllLiteralString(name, "_")
	return short[:min(len(short), maxToolName-1-size)] + "_" + hex.EncodeToString(sum[:])[:size]
}

// CallOrder makes the calls of tools that run in order wait for each other, in the order in which they join. The zero value is ready for use. It is
// not safe for concurrent use; its places are.
type CallOrder struct{ last <-chan struct{} }

// CallPlace is the place of one call. The zero value waits for no other call.
type CallPlace struct {
	before <-chan struct{}
	left   chan<- struct{}
}

// Join adds a call and returns its place, the zero place for a tool that does not run in order. The caller leaves the place when the call has ended,
// even if it was not made.
func (o *CallOrder) Join(spec ToolSpec) CallPlace {
	if !spec.InOrder {
		return CallPlace{}
	}
	left := make(chan struct{})
	place := CallPlace{before: o.last, left: left}
	o.last = left
	return place
}

// Await blocks until the previous call has ended. It returns false if ctx is done first.
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

// Toolbox provides the tools of one turn. It is safe for concurrent use.
type Toolbox interface {
	// Specs returns the tools that the turn may use, in the order in which they are offered.
	Specs() []ToolSpec
	// Call runs one call. It returns when ctx is done, never panics, and reports every failure as a result with IsError, because the model
	// decides how to continue. The same key means the same call, also in a later attempt of the run.
	Call(ctx context.Context, key string, call chat.ToolCall) chat.ToolResult
}

// Journal keeps the rounds of one turn beyond the end of the process, so that no round is requested from a model twice. Its methods are called on
// the goroutine of Run. A recorded round does not change: recording it again has no effect.
type Journal interface {
	// Rounds returns what earlier attempts of the run recorded, oldest first, without gaps in their numbers.
	Rounds() []Round
	// Record commits the calls of the model before any of them runs. An error ends the turn.
	Record(ctx context.Context, round chat.Round) error
	// RecordResult commits the result of a call; call counts from 0. An error ends the turn.
	RecordResult(ctx context.Context, round, call int, result chat.ToolResult) error
}

// Round is a recorded round with the messages that joined the turn after its results.
type Round struct {
	chat.Round

	Input []chat.Content
}

// ToolAccess is how the program of a turn reaches the tools of the turn: the URL of an MCP server (Streamable HTTP) and the bearer token for it,
// which is valid until the turn ends. A program that outlives its turn has the same token in each turn of its session; between turns the token gives
// no access. The zero value means no access.
type ToolAccess struct{ URL, Token string }

// ProgramTools opens the tools of the turn to the runner's program, until end is called. The access is zero if the turn has no tools for programs.
func (r Request) ProgramTools(ctx context.Context) (access ToolAccess, end func()) {
	if r.OpenTools == nil {
		return ToolAccess{}, func() {}
	}
	return r.OpenTools(ctx)
}
