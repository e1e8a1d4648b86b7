package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/files"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/tool"
)

// Tools are the tools of the gateway that an agent has. The zero value is no tools.
type Tools struct {
	// Default: all of them, except in turns of the OpenAI interface and of hooks.
	Default bool
	// Names are the tools that the agent has in every turn; if not empty, they replace Default.
	Names []string
	// Servers are the MCP servers whose tools it has in every turn.
	Servers []string
}

// offered returns the names of the gateway's tools for a turn, nil = all; ok is false when it has
// no tools.
func (a Tools) offered(channel string) (names []string, ok bool) {
	switch {
	case len(a.Names) > 0:
		return a.Names, true
	case a.Default && channel != apiRoute && channel != hookRoute:
		return nil, true
	default:
		return []string{}, len(a.Servers) > 0
	}
}

// toolbox returns the tools that the model of a turn may call; nil = no tools.
func (ts *turns) toolbox(t *turn) agent.Toolbox {
	texts := t.journal.messages()
	lead, place := texts[len(texts)-1], t.place()
	names, ok := t.agent.Tools.offered(place.Channel)
	if !ok {
		return nil
	}
	root := t.atRoot(lead, place)
	person := ts.personOf(root, t.run.Principal)
	return ts.tools.For(tool.Turn{
		Owner: lead.Principal, Session: root.Session, Sender: lead.Content.Sender, Channel: root.Channel, Target: root.Content.Options.ReplyTo, Asked: person,
		Servers: t.agent.Tools.Servers,
		NoActs:  func() string { return t.noActs(t.asks(), person) },
		Asks:    t.asks,
		Barred:  func() string { return barred(t.journal.messages()) },
		Outside: t.readOutside,
		Files:   ts.filesOf(t, root.Content.Options.ReplyTo), Audience: t.audience,
		Tasks: turnTasks{ts.trees, t},
	}, names)
}

// clocks knows the time of the people of turns.
type clocks struct {
	tools *tool.Table
	log   *slog.Logger
}

// clock returns [agent.Request.Clock] for a turn with these tools. If the store is unavailable, it
// is empty, and the tools name the zone in their results.
func (c clocks) clock(ctx context.Context, t *turn, tools agent.Toolbox) string {
	if tools == nil || t.agent.Program || !tool.ReadTimes(tools.Specs()) { // a program can read the clock itself
		return ""
	}
	texts := t.journal.messages()
	clock, err := c.tools.Clock(ctx, texts[len(texts)-1].Principal)
	if err != nil {
		c.log.WarnContext(ctx, "the clock of a person cannot be read", "run_id", t.run.RunID, "err", err)
	}
	return clock
}

// zone returns the time zone of the person of a turn.
func (c clocks) zone(ctx context.Context, t *turn) *time.Location {
	texts := t.journal.messages()
	return c.zoneOf(ctx, texts[len(texts)-1].Principal)
}

// zoneOf returns the time zone of a person, or UTC when it cannot be read.
func (c clocks) zoneOf(ctx context.Context, person string) *time.Location {
	zone, err := c.tools.Zone(ctx, person)
	if err != nil {
		c.log.WarnContext(ctx, "the time zone of a person cannot be read; times are in UTC", "principal", person, "err", err)
		return time.UTC
	}
	return zone
}

// atRoot returns a message of a turn with the place of the message at the root of its tree, where
// tools act and people are asked.
func (t *turn) atRoot(lead store.Waiting, place chat.Task) store.Waiting {
	if session, err := chat.ParseSessionKey(place.Session, lead.Session.Agent); err == nil { // it was made from a key
		lead.Session = session
	}
	lead.Channel, lead.Content.Options.ReplyTo = place.Channel, place.ReplyTo
	return lead
}

// audienceOf returns who reads the answer of a turn. A sub-turn and the announcement of its result
// have the audience of the root of their tree; a run of a job has that of its delivery address. If
// the owner of that place cannot be read, only data of the place is shown.
func (ts *turns) audienceOf(ctx context.Context, t *turn) chat.Audience {
	texts, place := t.journal.messages(), t.place()
	if place.Audience.Shared() {
		return place.Audience
	}
	lead := texts[len(texts)-1]
	root := t.atRoot(lead, place)
	conversation := chat.ConversationOf(root.Session, root.Content.Options.ReplyTo, lead.Principal)
	if conversation == t.run.Session {
		return chat.AudienceOf(lead.Principal, conversation, t.run.Principal)
	}
	s, err := ts.store.Session(ctx, conversation, "")
	if err != nil && !errors.Is(err, chat.ErrSessionNotFound) {
		return chat.Audience{Conversation: conversation, Readers: "others"}
	}
	return chat.AudienceOf(lead.Principal, conversation, s.Principal)
}

// waitsOf returns the waits of a turn; ctx is the context of its agent.
func (ts *turns) waitsOf(ctx context.Context, t *turn, st *scheduler.Turn) *waits {
	return &waits{
		leave: st.LeaveToNext,
		yield: func(fn func()) error {
			return st.Yield(ctx, func(context.Context) error { fn(); return nil })
		},
		note: func(away bool) error {
			if ctx.Err() != nil { // the turn is about to end, and has only waited until now
				return context.Cause(ctx)
			}
			return ts.node.WhileAlive(ctx, func(ctx context.Context) error { return ts.store.Yield(ctx, t.claim, st.RunID(), away) })
		},
	}
}

// barred returns why no tool runs in a turn; "" = they may. A tool acts on data of one principal,
// so a turn of several principals has no tools.
func barred(texts []store.Waiting) string {
	if slices.ContainsFunc(texts, func(m store.Waiting) bool { return m.Principal != texts[0].Principal }) {
		return "this is not possible in a turn of several people; each of them has to ask separately"
	}
	return ""
}

// asks returns why a person has to allow what a turn creates or sends, as the end of a sentence; ""
// = their own words requested it. A sub-turn inherits it.
func (t *turn) asks() string {
	texts := t.journal.messages()
	switch place := t.place(); {
	case place.Asks != "":
		return place.Asks
	case t.atRoot(texts[0], place).Session.Kind() == chat.KindGroup:
		return "in a group"
	case slices.ContainsFunc(texts, func(m store.Waiting) bool { return fromOutside(m) }):
		return "in a turn that text from outside has caused"
	case t.journal.foreign():
		return "in a turn that has read text from outside"
	case t.outside:
		return "in a conversation with text from outside"
	default:
		return ""
	}
}

// noActs returns why the tools that create or send are refused in a turn; "" = they may run, or a
// person is asked. The person owns what is created, so their own words or their button must have
// requested it. A sub-turn inherits it.
func (t *turn) noActs(why string, person tool.Person) string {
	if inherited := t.place().NoActs; inherited != "" {
		return inherited
	}
	if t.attempt.Unattended() {
		return "this is not possible in the turn of a job"
	}
	if why != "" && person.Principal == "" {
		return "this is not possible " + why + " without a confirmation by a button, and there is none here; the person can use the commands, such as /remind"
	}
	return ""
}

// toolSessions implements what the tools read and write of conversations.
type toolSessions struct{ *Dispatcher }

var _ tool.Sessions = toolSessions{}

// Reaches returns an error for a channel that this process does not have.
func (s toolSessions) Reaches(channel string) error {
	if _, ok := s.channels[channel]; !ok {
		return chat.Errorf(chat.CodeInvalid, "the chat of that session cannot be reached from here: this gateway has no channel %s", chat.Printable(channel))
	}
	return nil
}

// Send puts a message into the outbox. A message for the web is added to the transcript at once,
// because the answer of the turn is, too, and must not overtake it.
func (s toolSessions) Send(ctx context.Context, o store.Outgoing) error {
	if o.Target.Channel == channel.Web {
		return s.append(ctx, o)
	}
	err := s.node.WhileAlive(ctx, func(ctx context.Context) error { return s.store.Enqueue(ctx, []store.Outgoing{o}) })
	if err != nil {
		return fmt.Errorf("sending the message of a tool: %w", err)
	}
	s.outbox.Wake()
	return nil
}

// append adds a message to the transcript that is its target.
func (s toolSessions) append(ctx context.Context, o store.Outgoing) error {
	key, err := chat.ParseSessionKey(o.Target.ChatID, o.Session.Agent)
	if err != nil {
		return fmt.Errorf("reading the session for the message of a tool: %w", err)
	}
	err = s.node.WhileAlive(ctx, func(ctx context.Context) error {
		_, err := s.AppendReply(ctx, key, chat.Reply{ID: o.RunID, RunID: o.RunID, Target: o.Target, Principal: o.Principal, Kind: o.Kind, Text: o.Text, Origin: o.Origin})
		return err
	})
	if err != nil {
		return fmt.Errorf("delivering the message of a tool: %w", err)
	}
	return nil
}

// turnFiles has the files of one turn for the tool that sends them before the turn has ended. All
// calls together have the limits of an answer.
type turnFiles struct {
	ts *turns
	t  *turn

	mu    sync.Mutex
	sent  int
	bytes int64
}

var _ tool.Files = (*turnFiles)(nil)

// filesOf returns the files of a turn whose conversation shows files; nil when it does not.
func (ts *turns) filesOf(t *turn, to chat.Target) tool.Files {
	if _, shows := ts.channels[to.Channel].(channel.Filer); !shows || ts.cfg.Files == nil {
		return nil
	}
	return &turnFiles{ts: ts, t: t}
}

// TakeFile implements [tool.Files].
func (f *turnFiles) TakeFile(path, name string) (chat.Attachment, error) {
	return f.take(func(dir *files.Turn) (chat.Attachment, error) {
		return chat.Attachment{Path: dir.Below(path), Name: name}, nil
	})
}

// MakeFile implements [tool.Files].
func (f *turnFiles) MakeFile(name, text string) (chat.Attachment, error) {
	return f.take(func(dir *files.Turn) (chat.Attachment, error) {
		path, err := dir.Write([]byte(text))
		return chat.Attachment{Path: path, Name: name}, err
	})
}

// take takes one file from the directory of the turn.
func (f *turnFiles) take(named func(dir *files.Turn) (chat.Attachment, error)) (chat.Attachment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent >= files.MaxFiles {
		return chat.Attachment{}, chat.Errorf(chat.CodeLimit, "a turn sends at most %d files", files.MaxFiles)
	}
	f.t.outputMu.Lock()
	defer f.t.outputMu.Unlock()
	if f.t.outputEnded {
		return chat.Attachment{}, chat.Errorf(chat.CodeInvalid, "the turn has ended")
	}
	if err := f.ts.outputs.open(f.t); err != nil {
		return chat.Attachment{}, err
	}
	file, err := named(f.t.output)
	if err != nil {
		return chat.Attachment{}, err
	}
	taken, left, err := f.t.output.Take([]chat.Attachment{file})
	if err != nil {
		return chat.Attachment{}, err
	}
	if len(taken) == 0 {
		return chat.Attachment{}, chat.Errorf(chat.CodeNotFound, "%s", strings.TrimSuffix(left, "."))
	}
	if f.bytes+taken[0].Size > files.MaxTotal {
		f.DropFile(taken[0])
		return chat.Attachment{}, chat.Errorf(chat.CodeLimit, "the files of a turn have at most %d MB together", files.MaxTotal>>20)
	}
	f.sent++
	f.bytes += taken[0].Size
	return taken[0], nil
}

// DropFile implements [tool.Files].
func (f *turnFiles) DropFile(file chat.Attachment) {
	if err := f.ts.outputs.dir.Drop([]chat.Attachment{file}); err != nil {
		f.ts.log.WarnContext(context.Background(), "a file that was not sent remains until retention removes it", "err", err) //nolint:forbidigo // for the log alone
	}
}
