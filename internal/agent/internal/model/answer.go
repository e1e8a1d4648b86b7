package model

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// Answer is the state of one answer that is being received. It implements [modelhttp.Reader] and
// belongs to the goroutine of Run.
type Answer struct {
	// Calls are the tool calls so far.
	Calls toolloop.Calls
	// Message are the members of the message so far, as they came ([Merge]).
	Message Object
	// Pieces is true when a part of the answer came as a difference: what repeats the whole answer
	// beside it or after it is left out then.
	Pieces bool
	// Refused counts the bytes of a refusal.
	Refused int
	// Finish is the reason of the end, in lower case; "" before it.
	Finish string
	// Input, Output, Cached are the counts of tokens, of which the largest of an answer is true;
	// Cached is a part of Input.
	Input, Output, Cached int

	client  *modelhttp.Client
	dialect *Dialect
	text    *toolloop.Text
	model   string
	size    int // bytes of events; more than maxMembers of members are not kept
	full    bool
}

// reset drops the state of an attempt that failed before its first text.
func (a *Answer) reset(d *Draft) {
	*a = Answer{client: a.client, dialect: a.dialect, text: a.text}
	for _, tool := range d.Talk.Tools {
		a.Calls.Offer(tool.Name)
	}
}

// Text adds text that the person sees.
func (a *Answer) Text(text string) error { return a.text.Append(text) }

// Named takes the model that the endpoint states.
func (a *Answer) Named(model string) {
	if model != "" {
		a.model = model
	}
}

// Ended takes the reason of the end.
func (a *Answer) Ended(reason string) {
	if reason != "" {
		a.Finish = strings.ToLower(reason)
	}
}

// Keep merges members into the message, up to their bound.
func (a *Answer) Keep(members Object) {
	if a.full || len(members) == 0 {
		return
	}
	a.Message, _ = Merge("", a.Message, members).(Object) // two objects make an object
}

// Begun implements [modelhttp.Reader].
func (a *Answer) Begun() bool { return a.text.Begun() }

// Event implements [modelhttp.Reader].
func (a *Answer) Event(event sse.Event) (bool, error) {
	data := bytes.TrimSpace(event.Data)
	switch {
	case len(data) == 0:
		return false, nil
	case bytes.Equal(data, []byte("[DONE]")):
		return true, a.done()
	}
	a.size += len(data)
	a.full = a.full || a.size > 16*maxMembers
	value, err := decode(data)
	if event.Name == "error" && (err != nil || errorIn(value) == nil) {
		return false, a.client.Refusal(modelhttp.RefusalOf(data))
	}
	if err != nil {
		return false, modelhttp.Garbled(event, err)
	}
	if refused := errorIn(value); refused != nil {
		return false, a.client.Refusal(modelhttp.RefusalOf(refused))
	}
	for _, object := range objects(value) {
		if done, err := a.dialect.Event(a, object); err != nil || done {
			return done, cmpErr(err, a.judge)
		}
	}
	return false, nil
}

// cmpErr returns err, or else the result of judge.
func cmpErr(err error, judge func() error) error {
	if err != nil {
		return err
	}
	return judge()
}

// Whole implements [modelhttp.Reader].
func (a *Answer) Whole(body []byte) error {
	value, err := decode(body)
	if err != nil {
		return modelhttp.Garbled(sse.Event{Data: body}, err)
	}
	if refused := errorIn(value); refused != nil {
		return a.client.Refusal(modelhttp.RefusalOf(refused))
	}
	for _, object := range objects(value) {
		if known, err := a.dialect.Whole(a, object); err != nil || known {
			return cmpErr(err, a.judge)
		}
	}
	return modelhttp.Fail(chat.FailBadResponse, errors.New("the answer has neither a message nor an error"))
}

// done is the end of a stream by its mark alone. Without any reason or content the answer is
// missing.
func (a *Answer) done() error {
	if a.Finish == "" && !a.Begun() && a.Refused == 0 && a.Calls.Len() == 0 {
		return modelhttp.BrokeOff()
	}
	return a.judge()
}

// End implements [modelhttp.Reader]: some servers close the stream after the reason of the end,
// without a mark.
func (a *Answer) End() error {
	switch {
	case a.Finish != "":
		return a.judge()
	case a.Begun() || a.size > 0:
		return modelhttp.BrokeOff()
	default:
		return modelhttp.Fail(chat.FailBadResponse, errors.New("the stream has no events"))
	}
}

// judge checks a complete answer.
func (a *Answer) judge() error {
	empty := !a.Begun() && a.Calls.Len() == 0
	is := func(words []string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(a.Finish, word) })
	}
	ended := errors.New("the answer ended with " + chat.Cut(chat.Printable(a.Finish), 100))
	switch {
	case is(filtered()):
		return modelhttp.Fail(chat.FailRefusal, ended)
	case slices.Contains([]string{"error", "abort", "aborted", "network_error"}, a.Finish):
		return modelhttp.Fail(chat.FailServer, ended)
	case a.Finish == "insufficient_system_resource":
		return modelhttp.Fail(chat.FailOverloaded, ended)
	case !empty:
		return nil
	case a.Finish == "model_context_window_exceeded":
		return modelhttp.Fail(chat.FailContextLength, ended)
	case is([]string{"tool", "function_call"}):
		return modelhttp.Fail(chat.FailBadResponse, fmt.Errorf("%w: it announced a call and has none", ended))
	}
	if a.Refused > 0 {
		return modelhttp.Fail(chat.FailRefusal, fmt.Errorf("the model refused in %d bytes", a.Refused))
	}
	if a.Finish != "" && !a.cutOff() && !slices.Contains(wellEnded(), a.Finish) {
		return modelhttp.Fail(chat.FailBadResponse, fmt.Errorf("%w and is empty", ended))
	}
	return nil
}

// filtered are words of the reasons with which a filter ended an answer, with its cause in some:
// "content_filter: PROHIBITED_CONTENT".
func filtered() []string {
	return []string{"content_filter", "guardrail", "refusal", "safety", "recitation", "prohibited", "sensitive", "blocklist", "spii"}
}

// wellEnded are the reasons of an answer that may be empty.
func wellEnded() []string {
	return []string{"stop", "end_turn", "stop_sequence", "end", "eos", "eos_token", "complete", "completed", "finished", "pause_turn"}
}

func (a *Answer) cutOff() bool {
	return slices.Contains([]string{"length", "max_tokens", "model_length", "model_context_window_exceeded"}, a.Finish)
}

// reply returns the answer for the loop. Members are returned only with calls, because then the
// turn continues. The last call of an answer that was cut off is not made unless its arguments are
// complete.
func (a *Answer) reply(ctx context.Context, t *turn, d *Draft) toolloop.Reply {
	out := toolloop.Reply{StopReason: agent.StopNormal, Estimated: d.Estimated}
	if a.cutOff() {
		out.StopReason = agent.StopLength
		a.Calls.DropIncomplete()
	}
	out.Calls = a.Calls.List()
	model := cmp.Or(a.model, d.Model)
	out.Usage = chat.Usage{
		InputTokens: a.Input, OutputTokens: a.Output, CachedTokens: a.Cached,
		Model: chat.Cut(chat.CleanText(model), 200), Provider: t.dialect.Name,
	}
	if len(out.Calls) == 0 {
		return out
	}
	kept := Members{Endpoint: t.endpoint, Model: d.Model, Message: a.Message}
	for _, members := range a.Calls.Members() {
		kept.Calls = append(kept.Calls, members)
	}
	if raw := kept.encode(); len(raw) <= maxMembers && !a.full {
		out.Extra = raw
		if t.req.Client != nil {
			kept.give(out.Calls)
		}
	} else {
		t.log.WarnContext(ctx, "the model sent more members than are kept; its next request is made without them", "model", d.Model, "limit_bytes", maxMembers)
	}
	return out
}

// maxMembers bounds the members that are kept of a round, in bytes.
const maxMembers = 256 << 10

// Members are what an endpoint sent with a round and this program does not know. They are the Extra
// of a round.
type Members struct {
	Endpoint string `json:"endpoint"`
	Model    string `json:"model"`
	// Message are members of the message; Calls those of each call, in the order of the calls.
	Message Object   `json:"message,omitempty"`
	Calls   []Object `json:"calls,omitempty"`
}

// encode returns nil if there are no members.
func (m Members) encode() json.RawMessage {
	if len(m.Message) == 0 && !slices.ContainsFunc(m.Calls, func(o Object) bool { return len(o) > 0 }) {
		return nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil // decoded JSON marshals
	}
	return raw
}

// Carried is the member in which the program of a message keeps what an endpoint wants back with a
// call, as clients of Gemini do. Its member owner names the endpoint and model that sent it.
const (
	Carried = "extra_content"
	owner   = "laneway"
)

// origin is the endpoint and model for programs, which need not know them.
func (m Members) origin() string {
	sum := sha256.Sum256([]byte(m.Endpoint + "\n" + m.Model))
	return hex.EncodeToString(sum[:8])
}

// give passes what the calls of a program must bring back.
func (m Members) give(calls []chat.ToolCall) {
	for i := range calls {
		if content := m.Of(i).Object(Carried); len(content) > 0 {
			content = content.Without()
			content[owner] = m.origin()
			calls[i].Extra = string(encoded(content))
		}
	}
}

// brought returns what a program brings back with the calls of a round. Without an origin it has it
// from the provider itself.
func (d *Draft) brought(round agent.Round) Members {
	m := Members{Endpoint: d.endpoint, Model: d.Model}
	for _, call := range round.Calls {
		members := Object{}
		if value, err := decode([]byte(call.Extra)); err == nil {
			content := asObject(value)
			if from := content.String(owner); len(content) > 0 && (from == "" || from == m.origin()) {
				members[Carried] = content.Without(owner)
			}
		}
		m.Calls = append(m.Calls, members)
	}
	return m
}

// Members returns the members of a round, for the endpoint and model that sent them, without those
// that it refuses. legacy reads the form of releases before Members; it may be nil.
func (d *Draft) Members(round agent.Round, legacy func(raw json.RawMessage) Object) Members {
	var m Members
	switch value, err := decode(round.Extra); {
	case len(round.Extra) == 0 || err != nil:
		m = d.brought(round)
	case objects(value) == nil || asObject(value) == nil:
		return Members{Message: legacy(round.Extra)}
	default:
		decoder := json.NewDecoder(bytes.NewReader(round.Extra))
		decoder.UseNumber()
		if decoder.Decode(&m) != nil || m.Endpoint != d.endpoint || m.Model != d.Model {
			return Members{}
		}
	}
	known := []string{"type", "text", "thinking", "data", "signature"} // no endpoint refuses what makes a block
	var allowed func(from Object, depth int) Object
	allowed = func(from Object, depth int) Object {
		out := Object{}
		for name, value := range from {
			if inner := asObject(value); inner != nil && depth == 0 {
				value = allowed(inner, depth+1)
			}
			if slices.Contains(known, name) || d.Can(name) {
				out[name] = value
			}
		}
		return out
	}
	m.Message = allowed(m.Message, 0)
	for i := range m.Calls {
		m.Calls[i] = allowed(m.Calls[i], 0)
	}
	return m
}

// Of returns the members of a call.
func (m Members) Of(call int) Object {
	if call < len(m.Calls) {
		return m.Calls[call]
	}
	return nil
}

// Object is a decoded JSON object. Its methods return zero for a member that is absent or of
// another type, because endpoints differ in both.
type Object map[string]any

// String returns a string.
func (o Object) String(name string) string {
	s, _ := o[name].(string) // absent is ""
	return s
}

// Object returns an object.
func (o Object) Object(name string) Object { return asObject(o[name]) }

// List returns the objects of a list; a single object is a list of one.
func (o Object) List(name string) []Object { return objects(o[name]) }

// Int returns a count, which is not negative.
func (o Object) Int(names ...string) int {
	for _, name := range names {
		if n, ok := o[name].(json.Number); ok {
			if f, err := n.Float64(); err == nil && f > 0 {
				return int(min(f, chat.MaxTokens))
			}
		}
	}
	return 0
}

// Index returns an index, -1 if absent.
func (o Object) Index(name string) int {
	n, ok := o[name].(json.Number)
	if !ok {
		return -1
	}
	i, err := n.Int64()
	if err != nil || i < 0 || i > 1<<20 {
		return -1
	}
	return int(i)
}

// Without returns a copy without some members and without nulls.
func (o Object) Without(names ...string) Object {
	out := Object{}
	for name, value := range o {
		if value != nil && !slices.Contains(names, name) {
			out[name] = value
		}
	}
	return out
}

func decode(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err // the caller removes what it quotes
	}
	if decoder.More() {
		return nil, errors.New("more than one value")
	}
	return value, nil
}

func asObject(value any) Object {
	switch o := value.(type) {
	case map[string]any:
		return o
	case Object:
		return o
	default:
		return nil
	}
}

func objects(value any) []Object {
	list, ok := value.([]any)
	if !ok {
		if o := asObject(value); o != nil {
			return []Object{o}
		}
		return nil
	}
	var out []Object
	for _, item := range list {
		if o := asObject(item); o != nil {
			out = append(out, o)
		}
	}
	return out
}

// sentences are the members with which a document that is no answer says what is wrong.
func sentences() []string {
	return []string{"detail", "message", "msg", "error_msg", "errmsg", "error_message", "errorMessage"}
}

// nothing reports a member that is absent or says nothing: some endpoints send an empty error with
// each answer.
func nothing(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return strings.TrimSpace(v) == ""
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}

// errorIn returns the error of an event or a document, in any of its forms; nil if it has none.
func errorIn(value any) json.RawMessage {
	for _, o := range objects(value) {
		switch e := o["error"]; {
		case nothing(e):
		case e == true:
			return encoded(o)
		default:
			return encoded(e)
		}
		if o.String("type") == "error" || o.String("object") == "error" || len(o.List("errors")) > 0 || o.Object("base_resp").Int("status_code") > 0 ||
			len(o.List("choices")) == 0 && o["type"] == nil && slices.ContainsFunc(sentences(), func(name string) bool { return !nothing(o[name]) }) {
			return encoded(o)
		}
		for _, choice := range o.List("choices") {
			if e := choice["error"]; !nothing(e) {
				return encoded(e)
			}
		}
	}
	return nil
}

func encoded(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage(`{}`) // decoded JSON marshals
	}
	return raw
}

// added are the members whose pieces make one string.
var added = map[string]bool{ //nolint:gochecknoglobals // a constant
	"content": true, "text": true, "thinking": true, "reasoning": true, "reasoning_content": true, "summary": true, "arguments": true, "data": true,
}

// Merge returns a member of a message after one more piece of it: strings that come in pieces are
// added, objects merge by name, lists join by the index of their elements or else grow; of
// everything else the last one that is not null counts.
func Merge(name string, before, piece any) any {
	switch p := piece.(type) {
	case nil:
		return before
	case string:
		if b, ok := before.(string); ok && added[name] {
			return b + p
		}
	case map[string]any:
		return Merge(name, before, Object(p))
	case Object:
		b := asObject(before)
		if b == nil {
			b = Object{}
		}
		for member, value := range p {
			if merged := Merge(member, b[member], value); merged != nil {
				b[member] = merged
			}
		}
		return b
	case []any:
		b, _ := before.([]any) // absent is empty
		for _, element := range p {
			b = mergeElement(b, element)
		}
		if b == nil {
			b = []any{}
		}
		return b
	}
	return piece
}

func mergeElement(list []any, element any) []any {
	if at := asObject(element).Index("index"); at >= 0 {
		for i := range list {
			if asObject(list[i]).Index("index") == at {
				list[i] = Merge("", list[i], element)
				return list
			}
		}
	}
	return append(list, element)
}

// MergeMembers is [Merge] for the members of a call.
func MergeMembers(before, piece map[string]any) map[string]any {
	merged, _ := Merge("", Object(before), Object(piece)).(Object) // two objects make an object
	return merged
}
