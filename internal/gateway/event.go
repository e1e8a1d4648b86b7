package gateway

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
)

// The events of the protocol.
const (
	eventChallenge = "connect.challenge"
	eventTick      = "tick"
	eventShutdown  = "shutdown"
	eventHealth    = "health"
	eventChat      = "chat"
	eventAgent     = "agent"
	eventSessions  = "sessions.changed"
	eventLanes     = "lanes"
	eventCron      = "cron"
)

func eventNames() []string {
	return []string{eventAgent, eventChat, eventCron, eventHealth, eventLanes, eventSessions, eventShutdown, eventTick}
}

type textPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   []textPart `json:"content"`
	Timestamp int64      `json:"timestamp"`
	Command   bool       `json:"command,omitempty"`
}

func assistantSays(text string, at time.Time) *chatMessage {
	return &chatMessage{Role: chat.RoleAssistant, Content: []textPart{{"text", text}}, Timestamp: at.UnixMilli()}
}

type chatPayload struct {
	RunID        string       `json:"runId"`
	SessionKey   string       `json:"sessionKey"`
	AgentID      string       `json:"agentId"`
	Seq          int64        `json:"seq"`
	State        string       `json:"state"`
	Message      *chatMessage `json:"message,omitempty"`
	DeltaText    *string      `json:"deltaText,omitempty"`
	Replace      bool         `json:"replace,omitempty"`
	Usage        *chatUsage   `json:"usage,omitempty"`
	StopReason   string       `json:"stopReason,omitempty"`
	Yielded      bool         `json:"yielded,omitempty"`
	ErrorMessage string       `json:"errorMessage,omitempty"`
	ErrorKind    string       `json:"errorKind,omitempty"`
}

type chatUsage struct {
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
	TotalTokens  int `json:"totalTokens"`
}

func usageOf(u chat.Usage) *chatUsage {
	if u.InputTokens == 0 && u.OutputTokens == 0 {
		return nil
	}
	return &chatUsage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
}

func chatBase(ev *chat.Event, state string) chatPayload {
	return chatPayload{
		RunID: chat.ShownRunID(ev.RunID), SessionKey: ev.Session.String(), AgentID: ev.Session.Agent, Seq: max(0, ev.Seq), State: state,
	}
}

// chatDelta is the payload of an unsent delta, at the moment of writing.
func chatDelta(d *socket.Delta) []byte {
	p := chatBase(&d.Event, "delta")
	text := d.Unsent()
	p.DeltaText, p.Replace = &text, d.Replace
	p.Message = assistantSays(d.Event.Text, d.Event.At)
	return strictjson.Encode(p)
}

// chatEnd is the payload of the one event that ends a run; nil when ev ends nothing.
func chatEnd(ev *chat.Event) []byte {
	switch ev.Kind {
	case chat.EventFinal:
		return strictjson.Encode(chatFinal(ev))
	case chat.EventAborted:
		p := chatBase(ev, "aborted")
		p.StopReason = ev.Reason
		if ev.Text != "" {
			p.Message = assistantSays(ev.Text, ev.At)
		}
		return strictjson.Encode(p)
	case chat.EventFailed:
		return strictjson.Encode(chatFailed(ev))
	case chat.EventQueued, chat.EventStarted, chat.EventDelta, chat.EventTool, chat.EventSession:
	}
	return nil
}

func chatFinal(ev *chat.Event) chatPayload {
	p := chatBase(ev, "final")
	if ev.MergedInto != "" {
		p.StopReason, p.Yielded = "merged", true
		return p
	}
	p.Message = assistantSays(ev.Text, ev.At)
	p.Message.Command = ev.Command
	p.Usage = usageOf(ev.Usage)
	p.StopReason = ev.Reason
	if p.StopReason == "" {
		p.StopReason = "stop"
	}
	return p
}

// failWords are the beginnings by which clients tell some failures apart.
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

func chatFailed(ev *chat.Event) chatPayload {
	p := chatBase(ev, "error")
	p.ErrorKind = errorKind(chat.FailReason(ev.Reason))
	p.ErrorMessage = withPrefix(failWords(chat.FailReason(ev.Reason)), ev.Message)
	p.Usage = usageOf(ev.Usage)
	if ev.Text != "" {
		p.Message = assistantSays(ev.Text, ev.At)
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
	case chat.FailRateLimit, chat.FailOverloaded:
		return "rate_limit"
	case chat.FailContextLength:
		return "context_length"
	case chat.FailRefusal:
		return "refusal"
	default:
		return "unknown"
	}
}

type agentPayload struct {
	RunID      string `json:"runId"`
	Seq        int64  `json:"seq"`
	Stream     string `json:"stream"`
	TS         int64  `json:"ts"`
	Data       any    `json:"data"`
	SessionKey string `json:"sessionKey,omitempty"`
	AgentID    string `json:"agentId,omitempty"`
	Lane       string `json:"lane,omitempty"`
}

func agentBase(ev *chat.Event, stream string, data any, extended bool) []byte {
	p := agentPayload{RunID: chat.ShownRunID(ev.RunID), Seq: max(0, ev.Seq), Stream: stream, TS: max(0, ev.At.UnixMilli()), Data: data}
	if extended {
		p.SessionKey, p.AgentID, p.Lane = ev.Session.String(), ev.Session.Agent, ev.Lane
	}
	return strictjson.Encode(p)
}

type assistantData struct {
	Text    string `json:"text"`
	Delta   string `json:"delta"`
	Replace bool   `json:"replace,omitempty"`
}

func agentDelta(d *socket.Delta, extended bool) []byte {
	return agentBase(&d.Event, "assistant", assistantData{d.Event.Text, d.Unsent(), d.Replace}, extended)
}

type lifecycleData struct {
	Phase string `json:"phase"`
	Error string `json:"error,omitempty"`
}

// lifecycleEvent is the agent event that frames a run; nil for events that are none. Messages that never became a run (merged ones,
// commands) have no life cycle.
func lifecycleEvent(ev *chat.Event, extended bool) []byte {
	data := lifecycleData{}
	switch ev.Kind {
	case chat.EventQueued:
		data.Phase = "queued"
	case chat.EventStarted:
		data.Phase = "start"
	case chat.EventFinal, chat.EventAborted:
		data.Phase = "end"
	case chat.EventFailed:
		data.Phase, data.Error = "error", ev.Message
	case chat.EventDelta, chat.EventTool, chat.EventSession:
	}
	if data.Phase == "" || ev.MergedInto != "" || ev.Command || (data.Phase == "queued" && !extended) {
		return nil
	}
	return agentBase(ev, "lifecycle", data, extended)
}

type toolData struct {
	Phase         string `json:"phase"`
	ToolCallID    string `json:"toolCallId"`
	Name          string `json:"name"`
	Args          any    `json:"args,omitempty"`
	PartialResult any    `json:"partialResult,omitempty"`
	Result        any    `json:"result,omitempty"`
	IsError       bool   `json:"isError,omitempty"`
}

func toolStep(ev *chat.Event, extended bool) []byte {
	t := ev.Tool
	if t == nil {
		return nil
	}
	data := toolData{Phase: t.Phase, ToolCallID: t.CallID, Name: t.Name, Args: jsonOrText(t.Args), IsError: t.IsError}
	if t.Phase == "update" {
		data.PartialResult = jsonOrText(t.Result)
	} else {
		data.Result = jsonOrText(t.Result)
	}
	return agentBase(ev, "tool", data, extended)
}

// jsonOrText passes JSON on as JSON. Texts that were cut are none any more and become strings.
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

type sessionsChanged struct {
	SessionKey string `json:"sessionKey"`
	AgentID    string `json:"agentId"`
	Reason     string `json:"reason"`
	TS         int64  `json:"ts"`
}

func sessionChange(ev *chat.Event) []byte {
	return strictjson.Encode(sessionsChanged{ev.Session.String(), ev.Session.Agent, ev.Reason, ev.At.UnixMilli()})
}

func formatSeq(prefix string, n int64) string { return prefix + strconv.FormatInt(n, 10) }
