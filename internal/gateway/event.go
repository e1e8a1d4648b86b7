package gateway

import (
	"encoding/json"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

func eventNames() []string {
	return []string{wire.EventAgent, wire.EventChat, wire.EventCron, wire.EventHealth, wire.EventLanes, wire.EventQuestions, wire.EventSessions, wire.EventShutdown, wire.EventTick}
}

func assistantMessage(text string, at time.Time) *wire.ChatMessage {
	return &wire.ChatMessage{Role: chat.RoleAssistant, Content: []wire.TextPart{{Type: "text", Text: text}}, Timestamp: at.UnixMilli()}
}

func usageOf(u chat.Usage) *wire.Usage {
	if u.InputTokens == 0 && u.OutputTokens == 0 {
		return nil
	}
	return &wire.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}
}

func chatBase(ev *chat.Event, state wire.ChatState) wire.ChatEvent {
	return wire.ChatEvent{
		RunID: chat.ShownRunID(ev.RunID), SessionKey: ev.Session.String(), AgentID: ev.Session.Agent, Seq: max(0, ev.Seq), State: state,
	}
}

// chatDelta returns the payload of an unsent delta, at the time of writing.
func chatDelta(d *socket.Delta) []byte {
	p := chatBase(&d.Event, wire.ChatDelta)
	text := d.Unsent()
	p.DeltaText, p.Replace = &text, d.Replace
	p.Message = assistantMessage(d.Event.Text, d.Event.At)
	return strictjson.Encode(p)
}

// chatEnd returns the payload of the event that ends a run; nil when ev does not end one.
func chatEnd(ev *chat.Event) []byte {
	switch ev.Kind {
	case chat.EventFinal:
		return strictjson.Encode(chatFinal(ev))
	case chat.EventAborted:
		p := chatBase(ev, wire.ChatAborted)
		p.StopReason = ev.Reason
		if ev.Text != "" {
			p.Message = assistantMessage(ev.Text, ev.At)
		}
		return strictjson.Encode(p)
	case chat.EventFailed:
		return strictjson.Encode(chatFailed(ev))
	case chat.EventQueued, chat.EventStarted, chat.EventDelta, chat.EventTool, chat.EventSession, chat.EventQuestions:
	}
	return nil
}

func chatFinal(ev *chat.Event) wire.ChatEvent {
	p := chatBase(ev, wire.ChatFinal)
	if ev.MergedInto != "" {
		p.StopReason, p.Yielded = "merged", true
		return p
	}
	p.Message = assistantMessage(ev.Text, ev.At)
	p.Message.Command, p.Message.Note = ev.Command, ev.Message
	p.Usage = usageOf(ev.Usage)
	p.StopReason = ev.Reason
	if p.StopReason == "" {
		p.StopReason = "stop"
	}
	return p
}

// failWords returns the prefix by which clients distinguish some failures.
func failWords(reason chat.FailReason) string {
	switch reason {
	case chat.FailQueueFull:
		return "queue full:"
	case chat.FailDead:
		return "interrupted:"
	default:
		return ""
	}
}

func chatFailed(ev *chat.Event) wire.ChatEvent {
	p := chatBase(ev, wire.ChatError)
	p.ErrorKind = errorKind(chat.FailReason(ev.Reason))
	p.ErrorMessage = withPrefix(failWords(chat.FailReason(ev.Reason)), ev.Message)
	p.Usage = usageOf(ev.Usage)
	if ev.Text != "" {
		p.Message = assistantMessage(ev.Text, ev.At)
	}
	return p
}

func withPrefix(prefix, text string) string {
	switch {
	case text == "":
		return strings.TrimSpace(prefix + " the turn failed")
	case prefix == "", strings.HasPrefix(text, prefix):
		return text
	default:
		return prefix + " " + text
	}
}

func errorKind(r chat.FailReason) string {
	switch r {
	case chat.FailTimeout, chat.FailFirstByte, chat.FailSilence:
		return "timeout"
	case chat.FailRateLimit, chat.FailOverloaded, chat.FailBudget:
		return "rate_limit"
	case chat.FailContextLength:
		return "context_length"
	case chat.FailRefusal:
		return "refusal"
	default:
		return "unknown"
	}
}

func agentBase(ev *chat.Event, stream wire.AgentStream, data any, extended bool) []byte {
	p := wire.AgentEvent[any]{RunID: chat.ShownRunID(ev.RunID), Seq: max(0, ev.Seq), Stream: stream, TS: max(0, ev.At.UnixMilli()), Data: data}
	if extended {
		p.SessionKey, p.AgentID, p.Lane = ev.Session.String(), ev.Session.Agent, ev.Lane
	}
	return strictjson.Encode(p)
}

func agentDelta(d *socket.Delta, extended bool) []byte {
	return agentBase(&d.Event, wire.StreamAssistant, wire.AssistantData{Text: d.Event.Text, Delta: d.Unsent(), Replace: d.Replace}, extended)
}

// lifecycleEvent returns the agent event for the start or end of a run; nil for other events. Messages that never became a run (merged
// ones, commands) have no life cycle.
func lifecycleEvent(ev *chat.Event, extended bool) []byte {
	data := wire.LifecycleData{}
	switch ev.Kind {
	case chat.EventQueued:
		data.Phase = "queued"
	case chat.EventStarted:
		data.Phase = "start"
	case chat.EventFinal, chat.EventAborted:
		data.Phase = "end"
	case chat.EventFailed:
		data.Phase, data.Error = "error", ev.Message
	case chat.EventDelta, chat.EventTool, chat.EventSession, chat.EventQuestions:
	}
	if data.Phase == "" || ev.MergedInto != "" || ev.Command || (data.Phase == "queued" && !extended) {
		return nil
	}
	return agentBase(ev, wire.StreamLifecycle, data, extended)
}

func toolStep(ev *chat.Event, extended bool) []byte {
	t := ev.Tool
	if t == nil {
		return nil
	}
	data := wire.ToolData{Phase: t.Phase, ToolCallID: t.CallID, Name: t.Name, Args: jsonOrText(t.Args), IsError: t.IsError}
	if t.Phase == "update" {
		data.PartialResult = jsonOrText(t.Result)
	} else {
		data.Result = jsonOrText(t.Result)
	}
	return agentBase(ev, wire.StreamTool, data, extended)
}

// jsonOrText passes JSON on as JSON. Text that was cut is no longer JSON and becomes a string.
func jsonOrText(s string) any {
	switch {
	case s == "":
		return nil
	case json.Valid([]byte(s)):
		return json.RawMessage(s)
	default:
		return s
	}
}

func sessionChange(ev *chat.Event) []byte {
	return strictjson.Encode(wire.SessionsChanged{
		SessionKey: ev.Session.String(), AgentID: ev.Session.Agent, Reason: ev.Reason, TS: ev.At.UnixMilli(),
	})
}
