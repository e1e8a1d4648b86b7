package toolloop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// maxShown bounds the arguments and results in an event, in bytes.
const maxShown = 16 << 10

// done is a call that has ended.
type done struct {
	call   int
	result chat.ToolResult
}

// work runs the calls of a round that have no result yet and records what they return. again is true when an earlier attempt of the run
// recorded the round and may have made the calls.
func (l *loop) work(ctx context.Context, index int, again bool) error {
	round := &l.rounds[index]
	var missing []int
	for i, result := range round.Results {
		if result == nil {
			missing = append(missing, i)
			l.emit("start", round.Calls[i], nil)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := l.begin(ctx, round, missing, again)
	for range missing {
		var d done
		select {
		case d = <-ended:
		case <-ctx.Done():
		}
		if err := agent.Ended(ctx); err != nil {
			return err // a call that returns because its turn ends has no result
		}
		if err := l.take(ctx, round, d); err != nil {
			return err
		}
	}
	return nil
}

// begin starts calls of a round. Calls that end before ctx are sent to the returned channel, which has room for all of them.
func (l *loop) begin(ctx context.Context, round *agent.Round, missing []int, again bool) <-chan done {
	ended := make(chan done, len(missing))
	slots := make(chan struct{}, parallel)
	var order agent.CallOrder
	for _, i := range missing {
		key := fmt.Sprintf("%s/%d/%d", l.req.IdempotencyKey, round.Number, i+1)
		call := round.Calls[i]
		spec := l.spec(call)
		place := order.Join(spec)
		l.calls.Go(func() {
			defer place.Leave()
			if i >= MaxCalls {
				ended <- done{i, failed("This call was not made: only the first %d calls of an answer are. Ask for it again if you need it.", MaxCalls)}
				return
			}
			if call.Name == resultTool && spec.Name == "" {
				ended <- done{i, l.read(call, round.Number-1)}
				return
			}
			if spec.Waits { // it only waits and does no work in this process
				ended <- done{i, l.bounded(ctx, key, call, again)}
				return
			}
			if !place.Await(ctx) {
				return
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				ended <- done{i, l.bounded(ctx, key, call, again)}
			case <-ctx.Done():
			}
		})
	}
	return ended
}

// take records one result.
func (l *loop) take(ctx context.Context, round *agent.Round, d done) error {
	result := l.fitting(d.result)
	l.kept += len(result.Text)
	if err := l.req.Journal.RecordResult(ctx, round.Number, d.call, result); err != nil {
		return unrecorded(ctx, err)
	}
	round.Results[d.call] = &result
	l.emit("result", round.Calls[d.call], &result)
	return nil
}

// fitting returns the result, cut to the bounds of one call and of the turn.
func (l *loop) fitting(result chat.ToolResult) chat.ToolResult {
	result.Text = chat.CleanText(result.Text)
	switch {
	case len(result.Text) > MaxResult:
		return failed("The result has %d bytes; the limit is %d. Ask for less.", len(result.Text), MaxResult)
	case l.kept+len(result.Text) > MaxJournal:
		return failed("The results of this turn have more than %d bytes together; continue without this one.", MaxJournal)
	default:
		return result
	}
}

func failed(format string, args ...any) chat.ToolResult {
	return chat.ToolResult{Text: fmt.Sprintf(format, args...), IsError: true}
}

// spec returns the tool of a call; zero for a tool that is not offered.
func (l *loop) spec(call chat.ToolCall) (none agent.ToolSpec) {
	if i := slices.IndexFunc(l.tools, func(spec agent.ToolSpec) bool { return spec.Name == call.Name }); i >= 0 {
		return l.tools[i]
	}
	return none
}

// bounded runs one call within the time for a call; a call of a tool that waits has the time of the turn.
func (l *loop) bounded(ctx context.Context, key string, call chat.ToolCall, again bool) chat.ToolResult {
	spec, refusal := l.check(call, again)
	if refusal != nil {
		return *refusal
	}
	if !spec.Waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.options.CallTime)
		defer cancel()
	}
	returned := make(chan chat.ToolResult, 1)
	l.calls.Go(func() { returned <- l.req.Tools.Call(ctx, key, call) })
	select {
	case result := <-returned:
		return result
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandon)
	defer timer.Stop()
	select {
	case result := <-returned:
		return result
	case <-timer.C:
		return failed("The tool %s did not answer within %s; it may or may not have done its work.", spec.Name, l.options.CallTime)
	}
}

// check validates a call before it runs.
func (l *loop) check(call chat.ToolCall, again bool) (agent.ToolSpec, *chat.ToolResult) {
	refuse := func(format string, args ...any) *chat.ToolResult {
		result := failed(format, args...)
		return &result
	}
	var names []string
	for _, spec := range l.tools {
		if spec.Name != call.Name {
			names = append(names, spec.Name)
			continue
		}
		var members map[string]json.RawMessage
		switch {
		case len(call.Args) > MaxArgs:
			return spec, refuse("The arguments have more than %d bytes; the call was not made.", MaxArgs)
		case strings.TrimSpace(call.Args) != "" && json.Unmarshal([]byte(call.Args), &members) != nil:
			return spec, refuse("The arguments are not a JSON object; the call was not made.")
		case again && !spec.Idempotent:
			return spec, refuse("The gateway stopped during this call; it may or may not have happened.")
		}
		return spec, nil
	}
	if again { // it was offered when the round was recorded
		return agent.ToolSpec{}, refuse("The tool %q is not available: the server is not connected; the result of the call is unknown.", chat.Cut(chat.Printable(call.Name), 64))
	}
	if len(names) == 0 {
		return agent.ToolSpec{}, refuse("There are no tools any more; the call was not made.")
	}
	return agent.ToolSpec{}, refuse("There is no tool %q; there are %s.", chat.Cut(chat.Printable(call.Name), 64), strings.Join(names, ", "))
}

// emit publishes a step of a call; a nil result means that it begins.
func (l *loop) emit(phase string, call chat.ToolCall, result *chat.ToolResult) {
	step := &chat.ToolEvent{Phase: phase, CallID: call.ID, Name: call.Name}
	if result == nil {
		step.Args = chat.Cut(call.Args, maxShown)
	} else {
		step.Result, step.IsError = chat.Cut(result.Text, maxShown), result.IsError
	}
	l.text.emit(agent.Event{Kind: agent.EventTool, Tool: step})
}

// Object returns the arguments of a call as a JSON object, for providers that accept nothing else. Arguments that are not an object become an empty
// one.
func Object(args string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &members) != nil || members == nil {
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(args)
}
