// Package tool defines what agents may do through the gateway: one table of tools ([Table]), each a
// row with its name, description, JSON Schema, scope and function.
//
// The functions are thin: they read arguments strictly, call the services that chat commands call
// ([Deps]), and answer in one or two lines of text. A tool has no rights of its own. It acts for
// the owner of the turn, whose principal is in [Turn], and reaches only what belongs to the owner:
// other jobs and sessions do not exist for it.
//
// # Who may act
//
// A tool that creates or sends ([Tool.Acts]) runs without a question only in a turn that its
// owner's own message caused. In a turn of a group, of external text, or after the output of an
// external tool, a person is asked first ([Turn.Asks]): the call becomes a [Pending] one, its
// result for the model is a sentence, and the turn continues. A call that would fail causes no
// question ([Tool.Check]). When the person allows it, [Table.Make] makes the call for them, under
// its key. If no person can be asked, and in turns of jobs, it is refused ([Turn.NoActs]), because
// a job must not make jobs. In turns of several principals no tool runs ([Turn.Barred]): each tool
// reaches what belongs to one principal, and nothing belongs to two. The reason is the result, so
// that the model can pass it on.
//
// Starting a sub-turn neither creates nor sends in this sense: it is allowed in every turn, and the
// sub-turn has the rights of its parent ([Tasks]).
//
// # Who reads
//
// A turn has an audience ([Turn.Audience]). If others than the owner read its answer, tools return
// what belongs to the conversation of these readers. A call that goes beyond it ([Tool.Beyond])
// needs the owner's answer to a question that names the readers, or is refused. [Table.Make] makes
// it as if the owner alone read the result.
//
// # Keys
//
// Every call has a key that stays the same when the turn runs again. A tool creates and sends under
// this key, so that a call whose result was not recorded can be repeated: all tools here are
// idempotent. The key of a call that starts a sub-turn is the id of the sub-turn.
//
// # Failures
//
// A failure is a result with one sentence, never an error of the turn: wrong arguments, a refusal
// of a service, a panic of a function (with its stack in the log). The package starts no goroutine
// and keeps no state.
package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// JobEditor has the operations of the tool cron on jobs besides [command.JobActions]. The caller
// sees its own jobs only.
type JobEditor interface {
	Job(ctx context.Context, id string, by chat.Caller) (cron.Job, error)
	Update(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (cron.Job, error)
	Ledger(ctx context.Context, f cron.RunFilter, by chat.Caller) (cron.RunPage, error)
}

// Sessions has the operations of the tools on conversations.
type Sessions interface {
	// Session reads a session that visible may see; otherwise chat.ErrSessionNotFound.
	Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error)
	Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error)
	Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error)
	Search(ctx context.Context, q store.SearchQuery) (store.SearchResult, error)
	Toc(ctx context.Context, q store.TocQuery) ([]store.TocNode, error)
	// ReceiveFrom accepts a message; a message with the Dedupe of an accepted one is a duplicate.
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	// Reaches returns an error for a channel through which nothing can be sent.
	Reaches(channel string) error
	// Send sends a message; it does nothing if RunID and N were sent before. Messages to one chat
	// arrive in the order of the calls.
	Send(ctx context.Context, o store.Outgoing) error
}

// External provides the tools of other servers, which may change at any time.
type External interface {
	// Tools returns the currently known tools of the named servers, with unique names.
	Tools(servers []string) []Tool
	// Await returns when the first attempt to connect to each of the named servers has ended in
	// this process, after ten seconds at most, or when ctx ends.
	Await(ctx context.Context, servers []string)
	// ServerOf returns the server whose tool has this name, even while it is not connected; "" if
	// none.
	ServerOf(name string) string
}

// Deps are the services that the tools use.
type Deps struct {
	Jobs     command.JobActions
	Editor   JobEditor
	Sessions Sessions
	// Questions sends questions to people before tools act; required if turns have [Turn.Asks].
	Questions Questions
	// External are the tools of other servers; nil if none.
	External External
	// Log receives panics of tools; nil discards.
	Log *slog.Logger
}

// Turn describes for whom and where a tool acts.
type Turn struct {
	// Owner is the principal for whom the turn runs.
	Owner   string
	Session chat.SessionKey
	Sender  chat.Sender
	Channel string
	// Target is where the answer of the turn is sent in addition to the transcript; zero means
	// nowhere.
	Target chat.Target
	// Audience describes who reads the answer of the turn. If it is shared, tools return what
	// belongs to its conversation, see [Tool.Beyond].
	Audience chat.Audience
	// Files are the files of the turn; nil if its conversation cannot show files.
	Files Files
	// NoActs returns why tools that create or send are refused in this turn, as one sentence; ""
	// means that they may run. It is called for each call, because messages can join a turn while
	// it runs. nil means that they may always run.
	NoActs func() string
	// Asks returns why a person has to allow tools that create or send, as the end of a sentence
	// ("in a group"); "" means that they run without a question. It is called for each call, after
	// NoActs; nil means never.
	Asks func() string
	// Asked is the person to ask.
	Asked Person
	// Servers are the servers whose tools the turn has, besides those of the gateway.
	Servers []string
	// Barred returns why no tool may run at all, as one sentence; "" means that tools may run. It
	// is called for each call; nil means that they always may.
	Barred func() string
	// Outside reports whether the turn received text from outside, which what it sends may repeat;
	// nil means never.
	Outside func() bool
	// Tasks starts sub-turns of the turn; if nil, the tools for sub-turns are not offered.
	Tasks Tasks

	foreign *bool // of the running call, see markForeign
}

// markForeign records that the result of the call may contain text that is not the person's own.
func (t Turn) markForeign() { *t.foreign = true }

// caller returns the owner as the caller of services. It sets Own, because a tool reaches only what
// belongs to the owner, whatever rights the owner has.
func (t Turn) caller() chat.Caller {
	return chat.Caller{Principal: t.Owner, Scopes: []string{chat.ScopeWrite}, Own: true, Peer: "tool"}
}

// call returns a tool call in the form of a chat command.
func (t Turn) call(name, key, args string) command.Call {
	return command.Call{
		ID: key, Session: t.Session, Principal: t.Owner, Peer: "tool", Scope: chat.ScopeWrite, Sender: t.Sender, Own: true, OwnOnly: true,
		Channel: t.Channel, Target: t.Target, Audience: t.Audience, Name: name, Args: args,
	}
}

// here returns the conversation of a turn with several readers for queries of the store, and whose
// sessions they see. The turn's own conversation and a group belong to all their readers, with any
// owner of the session; another session belongs to them only if the owner of the turn owns it.
func (t Turn) here() (session chat.SessionKey, visible string) {
	session = t.Audience.Conversation
	if session != t.Session && session.Kind() != chat.KindGroup {
		visible = t.Owner
	}
	return session, visible
}

// elsewhere reports whether a call names a session other than the conversation of the turn.
func (t Turn) elsewhere(session string) bool {
	key, err := chat.ParseSessionKey(session, t.Session.Agent)
	return err == nil && key != t.Audience.Conversation
}

// alone returns the turn as if only its owner read the answer.
func (t Turn) alone() Turn {
	t.Audience = chat.Audience{}
	return t
}

// Tool is one row of the table.
type Tool struct {
	Name, Description string
	// Schema is the JSON Schema of the arguments, an object.
	Schema string
	// Scope is the scope that a caller needs.
	Scope string
	// Idempotent is true when a call that is repeated under its key has no second effect.
	Idempotent bool
	// ReadOnly and Additive are those of [agent.ToolSpec].
	ReadOnly, Additive bool
	// Waits is true when a call waits for the end of another turn, and may take as long as its own
	// turn.
	Waits bool
	// InOrder is true when the calls of a turn must take effect in the order of the model's answer,
	// see [agent.ToolSpec].
	InOrder bool
	// Offer reports whether the tool is offered in a turn, and can adapt it to the turn; nil means
	// always.
	Offer func(turn Turn, one *Tool) bool
	// Acts reports whether a call with these arguments creates or sends something; nil means never.
	Acts func(args []byte) bool
	// Askable is true when a call that acts can be made after its turn, once a person allows it. If
	// a person has to be asked, calls of other tools are refused.
	Askable bool
	// Beyond reports whether a call with these arguments shows what does not belong to the
	// conversation of the turn; nil means never. If others read the answer, the owner of the turn
	// has to allow the call, or it is refused.
	Beyond func(t Turn, args []byte) bool
	// Check refuses arguments with which Run would fail, before a person is asked about the call;
	// nil means that only Schema is checked. Its error is for the model.
	Check func(ctx context.Context, t Turn, key string, args []byte) error
	// Foreign reports whether the result of a call with these arguments may contain text that is
	// not the person's own, see [chat.ToolResult]; nil means only if Run records it. After such a
	// result a person has to allow tools that act.
	Foreign func(args []byte) bool
	// Run makes the call. Its result and its error are for the model.
	Run func(ctx context.Context, t Turn, key string, args []byte) (string, error)
}

// Table has the tools of the gateway. It is safe for concurrent use.
type Table struct {
	deps  Deps
	tools []Tool
}

// New makes the table.
func New(deps Deps) *Table {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	t := &Table{deps: deps}
	t.tools = []Tool{t.remind(), t.cron(), t.message(), t.sessions(), t.historySearch(), t.sendFile(), t.spawn(), t.delegate()}
	return t
}

// Names returns the names of all tools, in the order in which they are offered.
func Names() []string {
	return []string{"remind", "cron", "message", "sessions", "history_search", "send_file", "spawn", "delegate"}
}

// For returns the named tools for one turn; nil names means all. Unknown names are ignored.
func (t *Table) For(turn Turn, names []string) agent.Toolbox {
	b := &box{turn: turn, questions: t.deps.Questions, log: t.deps.Log}
	for _, one := range t.tools {
		if (names == nil || slices.Contains(names, one.Name)) && (one.Offer == nil || one.Offer(turn, &one)) {
			if one.Beyond != nil && turn.Audience.Shared() {
				one.Schema = withEverywhere(one.Schema)
			}
			b.tools = append(b.tools, one)
		}
	}
	if t.deps.External != nil && len(turn.Servers) > 0 {
		for _, one := range t.deps.External.Tools(turn.Servers) {
			if !t.inside(one.Name) {
				b.tools = append(b.tools, one)
			}
		}
		b.away = func(name string) bool { return slices.Contains(turn.Servers, t.deps.External.ServerOf(name)) }
	}
	return b
}

// Await waits for the tools of the named servers, see [External.Await].
func (t *Table) Await(ctx context.Context, servers []string) {
	if t.deps.External != nil {
		t.deps.External.Await(ctx, servers)
	}
}

// inside reports whether a tool belongs to the gateway.
func (t *Table) inside(name string) bool {
	return slices.ContainsFunc(t.tools, func(one Tool) bool { return one.Name == name })
}

// Outside reports whether a tool belongs to another server: its calls may take long, and must not
// be repeated if they may have been made.
func (t *Table) Outside(name string) bool {
	return t.deps.External != nil && !t.inside(name) && t.deps.External.ServerOf(name) != ""
}

// box has the tools of one turn.
type box struct {
	turn      Turn
	tools     []Tool
	questions Questions
	log       *slog.Logger
	// away reports whether a name belongs to a tool whose server may be disconnected; nil means
	// never.
	away func(name string) bool
}

// Specs implements [agent.Toolbox].
func (b *box) Specs() []agent.ToolSpec {
	specs := make([]agent.ToolSpec, 0, len(b.tools))
	for _, one := range b.tools {
		specs = append(specs, agent.ToolSpec{
			Name: one.Name, Description: one.Description, Schema: json.RawMessage(one.Schema), Idempotent: one.Idempotent, ReadOnly: one.ReadOnly, Additive: one.Additive,
			Waits: one.Waits, InOrder: one.InOrder,
		})
	}
	return specs
}

// Call implements [agent.Toolbox].
func (b *box) Call(ctx context.Context, key string, call chat.ToolCall) (result chat.ToolResult) {
	defer func() {
		if p := recover(); p != nil {
			b.log.ErrorContext(ctx, "a tool panicked", "tool", call.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = chat.ToolResult{Text: "The tool " + call.Name + " failed on this call.", IsError: true}
		}
	}()
	foreign := false
	turn := b.turn
	turn.foreign = &foreign
	text, err := b.run(store.OnBehalfOf(ctx, turn.Owner), turn, key, call)
	if err == nil {
		return chat.ToolResult{Text: text, Foreign: foreign}
	}
	if known, ok := errors.AsType[*chat.Error](err); ok {
		return chat.ToolResult{Text: known.Message, IsError: true, Foreign: foreign}
	}
	if ctx.Err() == nil { // otherwise the turn is ending, and the result is not used
		b.log.WarnContext(ctx, "a tool failed", "tool", call.Name, "key", key, "err", err)
	}
	return chat.ToolResult{Text: "The tool " + call.Name + " failed; try again later.", IsError: true}
}

func (b *box) run(ctx context.Context, turn Turn, key string, call chat.ToolCall) (string, error) {
	for _, one := range b.tools {
		if one.Name != call.Name {
			continue
		}
		args := []byte(call.Args)
		if len(bytes.TrimSpace(args)) == 0 {
			args = []byte("{}")
		}
		if why := reason(turn.Barred); why != "" {
			return "", chat.Errorf(chat.CodeForbidden, "%s", why)
		}
		if turn.Audience.Shared() && one.Beyond != nil && one.Beyond(turn, args) {
			return b.show(ctx, turn, one, Pending{Key: key, Tool: one.Name, Args: string(args), Readers: turn.Audience.Readers})
		}
		if one.Acts != nil && one.Acts(args) {
			if why := reason(turn.NoActs); why != "" {
				return "", chat.Errorf(chat.CodeForbidden, "%s", why)
			}
			if why := reason(turn.Asks); why != "" {
				return b.ask(ctx, turn, one, Pending{Key: key, Tool: one.Name, Args: string(args)}, why)
			}
		}
		if one.Foreign != nil && one.Foreign(args) {
			turn.markForeign()
		}
		return one.Run(ctx, turn, key, args)
	}
	if b.away != nil && b.away(call.Name) {
		return "", chat.Errorf(chat.CodeRunFailed, "the tool %s is not available now; continue without it or try again later", call.Name)
	}
	return "", chat.Errorf(chat.CodeNotFound, "there is no tool %s", call.Name)
}

// reason returns the reason of a rule of a turn against a call; "" if it has none.
func reason(rule func() string) string {
	if rule == nil {
		return ""
	}
	return rule()
}

func always([]byte) bool { return true }

// unless reports actions other than the named ones. Arguments that cannot be read count as an
// action: they are refused in any case.
func unless(harmless ...string) func([]byte) bool {
	return func(args []byte) bool {
		var a struct {
			Action string `json:"action"`
		}
		return json.Unmarshal(args, &a) != nil || !slices.Contains(harmless, a.Action)
	}
}

// read reads arguments strictly, and refuses wrong ones with one sentence.
func read[T any](args []byte) (T, error) {
	var out T
	decoder := json.NewDecoder(bytes.NewReader(args))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&out)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return out, nil
		}
		return out, chat.Errorf(chat.CodeInvalid, "there is something behind the arguments")
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return out, chat.Errorf(chat.CodeInvalid, "the argument %s must not be a %s", wrong.Field, wrong.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return out, chat.Errorf(chat.CodeInvalid, "there is no argument %s", chat.Cut(chat.Printable(name), 64))
	}
	return out, notAnObject()
}

func notAnObject() error {
	return chat.Errorf(chat.CodeInvalid, "the arguments are not a JSON object")
}

// shown formats a moment for results.
func shown(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
