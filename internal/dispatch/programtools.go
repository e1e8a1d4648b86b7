package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/tool"
)

// The limits of the calls that a program makes in a turn.
const (
	// maxProgramCalls is the number of calls, maxProgramBytes the total size of their arguments and
	// results.
	maxProgramCalls = 256
	maxProgramBytes = 2 << 20
	// maxProgramArgs and maxProgramResult limit one call in bytes, programCallTime limits its time.
	// A call that waits for another turn may take as long as its own turn, and does not count
	// towards programParallel.
	maxProgramArgs   = 32 << 10
	maxProgramResult = 64 << 10
	programCallTime  = 60 * time.Second
	// programParallel is the number of concurrent calls.
	programParallel = 4
)

// ToolAccess opens the tools of a turn to its program; package access implements it.
type ToolAccess interface {
	// Open returns a token for the tools, which is valid until end is called. end waits for active
	// calls.
	Open(ctx context.Context, box agent.Toolbox) (access agent.ToolAccess, end func())
	// OpenKept is Open for a program that is kept for later turns of its session, which have the
	// same token. The program works for one turn at a time.
	OpenKept(ctx context.Context, session string, box agent.Toolbox) (access agent.ToolAccess, end func())
}

// openTools returns the function with which the runner of a turn opens the tools for its program;
// nil when the turn has no tools or no program.
func (ts *turns) openTools(t *turn, req *agent.Request) func(ctx context.Context) (access agent.ToolAccess, end func()) {
	if ts.cfg.Access == nil || !t.agent.Program || req.Tools == nil {
		return nil
	}
	box := newProgramTools(t, req)
	if t.agent.Kept {
		return func(ctx context.Context) (agent.ToolAccess, func()) {
			return ts.cfg.Access.OpenKept(ctx, t.run.Session.String(), box)
		}
	}
	return func(ctx context.Context) (agent.ToolAccess, func()) { return ts.cfg.Access.Open(ctx, box) }
}

// programTools serves the tools of a turn to its program, one call at a time. Each call is a round
// of the journal, recorded before it runs. A program that runs again repeats its calls, and the
// n-th call of a tool with the same arguments returns the result of the earlier n-th call. A call
// without a result is repeated with its key. So no effect happens twice while the calls are the
// same; a call with other arguments is a new call.
type programTools struct {
	turn    *turn
	box     agent.Toolbox
	journal *turnJournal
	key     string
	// recording lets one call at a time read the journal and record itself; places limits the
	// running calls.
	recording, places chan struct{}
	// Used only by the call that holds recording.
	used  []bool // of the rounds of earlier attempts
	order agent.CallOrder
}

func newProgramTools(t *turn, req *agent.Request) *programTools {
	return &programTools{
		turn: t, box: req.Tools, journal: &turnJournal{journal: t.journal}, key: req.IdempotencyKey,
		recording: make(chan struct{}, 1), places: make(chan struct{}, programParallel), used: make([]bool, t.journal.before),
	}
}

// Specs implements [agent.Toolbox].
func (p *programTools) Specs() []agent.ToolSpec { return p.box.Specs() }

// Call implements [agent.Toolbox]. The key of the call is derived from the recorded round.
func (p *programTools) Call(ctx context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	if !p.spec(call.Name).Waits { // otherwise it may take as long as the turn, and only waits here
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, programCallTime)
		defer cancel()
		select {
		case p.places <- struct{}{}:
			defer func() { <-p.places }()
		case <-ctx.Done():
			return refusedCall("The call was not made: too many calls of this turn run at once.")
		}
	}
	call.Args = canonical(call.Args)
	p.emit("start", call, nil)
	result := p.make(ctx, call)
	p.emit("result", call, &result)
	return result
}

func (p *programTools) make(ctx context.Context, call chat.ToolCall) chat.ToolResult {
	if len(call.Args) > maxProgramArgs {
		return refusedCall("The arguments have more than %d bytes; the call was not made.", maxProgramArgs)
	}
	if err := p.journal.awaitMark(ctx); err != nil {
		return refusedCall("The call was not made: it could not be stored that this turn has read text from outside; try again later.")
	}
	recorded, refused := p.record(ctx, call)
	defer recorded.place.Leave()
	switch {
	case refused != nil:
		return *refused
	case recorded.result != nil:
		return *recorded.result
	}
	var result chat.ToolResult
	switch {
	case !recorded.place.Await(ctx):
		result = refusedCall("The call was not made: the calls before it took too long.")
	case recorded.again && !p.spec(call.Name).Idempotent:
		result = refusedCall("The gateway stopped during this call; it may or may not have happened.")
	default:
		result = p.box.Call(ctx, fmt.Sprintf("%s/%d/1", p.key, recorded.number), call)
	}
	if len(result.Text) > maxProgramResult {
		result = refusedCall("The result has %d bytes; the limit is %d. Ask for less.", len(result.Text), maxProgramResult)
	}
	result.Text = chat.CleanText(result.Text)
	if err := p.journal.RecordResult(ctx, recorded.number, 0, result); err != nil {
		return refusedCall("The result of the call could not be stored; it may or may not have happened.")
	}
	return result
}

// recordedCall is a call in the journal.
type recordedCall struct {
	number int // the number of its round
	// again: an earlier attempt has recorded it. result is its result from then, nil when it did
	// not finish.
	again  bool
	result *chat.ToolResult
	place  agent.CallPlace
}

// record finds the round of a call of an earlier attempt, or records a new one.
func (p *programTools) record(ctx context.Context, call chat.ToolCall) (recorded recordedCall, refused *chat.ToolResult) {
	refuse := func(format string, args ...any) (recordedCall, *chat.ToolResult) {
		result := refusedCall(format, args...)
		return recordedCall{}, &result
	}
	select {
	case p.recording <- struct{}{}:
		defer func() { <-p.recording }()
	case <-ctx.Done():
		return refuse("The call was not made: the turn has ended.")
	}
	for i, round := range p.journal.Rounds() {
		if p.used[i] || len(round.Calls) != 1 { // several calls: recorded for a model, before the agent became a program
			continue
		}
		if asked := round.Calls[0]; asked.Name == call.Name && asked.Args == call.Args {
			p.used[i] = true
			recorded = recordedCall{number: round.Number, again: true, result: round.Results[0]}
			if recorded.result == nil {
				recorded.place = p.order.Join(p.spec(call.Name))
			}
			return recorded, nil
		}
	}
	number := p.journal.last() + 1
	switch {
	case number > maxProgramCalls:
		return refuse("A turn makes at most %d calls; the call was not made.", maxProgramCalls)
	case p.journal.size()+len(call.Args)+programParallel*maxProgramResult > maxProgramBytes:
		return refuse("The calls of this turn have nearly %d bytes together; the call was not made.", maxProgramBytes)
	}
	err := p.journal.Record(ctx, chat.Round{Number: number, Calls: []chat.ToolCall{call}})
	if err != nil {
		return refuse("The call could not be stored and was not made; try again later.")
	}
	return recordedCall{number: number, place: p.order.Join(p.spec(call.Name))}, nil
}

// spec describes a tool; zero for one that is not offered.
func (p *programTools) spec(name string) (none agent.ToolSpec) {
	for _, spec := range p.box.Specs() {
		if spec.Name == name {
			return spec
		}
	}
	return none
}

// shownOfEvent is how many bytes of arguments and results an event contains.
const shownOfEvent = 16 << 10

func (p *programTools) emit(phase string, call chat.ToolCall, result *chat.ToolResult) {
	step := &chat.ToolEvent{Phase: phase, CallID: call.ID, Name: call.Name}
	if result == nil {
		step.Args = chat.Cut(call.Args, shownOfEvent)
	} else {
		step.Result, step.IsError = chat.Cut(result.Text, shownOfEvent), result.IsError
	}
	p.turn.run.Tool(step)
}

func refusedCall(format string, args ...any) chat.ToolResult {
	return chat.ToolResult{Text: fmt.Sprintf(format, args...), IsError: true}
}

// canonical returns a JSON object with sorted members and without spaces, so that equal calls are
// recognised. Other input is returned unchanged; the tool refuses it.
func canonical(args string) string {
	if len(bytes.TrimSpace([]byte(args))) == 0 {
		return "{}"
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &members) != nil || members == nil {
		return args
	}
	var compact bytes.Buffer
	if raw, err := json.Marshal(members); err != nil || json.Compact(&compact, raw) != nil {
		return args
	}
	return compact.String()
}

// ToolsOf returns the tools of a principal outside of any turn, for a program that has its
// credential. Jobs that it makes answer in a session of the principal.
func (d *Dispatcher) ToolsOf(principal string) agent.Toolbox {
	return d.turns.tools.For(tool.Turn{
		Owner: principal, Session: chat.SessionKey{Agent: d.DefaultAgent(), Rest: chat.ToolsPrefix + principal}, Channel: channel.Web,
	}, nil)
}
