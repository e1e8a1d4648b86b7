package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/words"
)

// The channel of messages that a tool sends into a session, and of chats without a network.
const (
	fromTool   = "tool"
	webChannel = "web"
)

// The bounds of results.
const (
	sessionsShown = 30
	entriesShown  = 20
	charsShown    = 1000
)

func (t *Table) message() Tool {
	return Tool{
		Name: "message", Scope: chat.ScopeWrite, Idempotent: true, Additive: true, InOrder: true, Askable: true, Acts: always,
		Description: "Sends a text at once: to this chat, or to the chat of another session of the person.",
		Schema: `{"type":"object","additionalProperties":false,"required":["text"],"properties":{
			"text":{"type":"string"},
			"session":{"type":"string","description":"Key of a session of the person, as the tool sessions lists it. Default: this one."}}}`,
		Check: func(ctx context.Context, turn Turn, key string, args []byte) error {
			_, err := t.outgoing(ctx, turn, key, args)
			return err
		},
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			o, err := t.outgoing(ctx, turn, key, args)
			if err != nil {
				return "", err
			}
			return "The text is on its way.", t.deps.Sessions.Send(ctx, o)
		},
	}
}

// Sends reports whether a call that succeeded has sent the person something in the conversation of
// its turn.
func Sends(call chat.ToolCall) bool {
	switch call.Name {
	case "send_file":
		return true
	case "message":
		var a struct {
			Session string `json:"session"`
		}
		return json.Unmarshal([]byte(call.Args), &a) == nil && a.Session == ""
	default:
		return false
	}
}

// outgoing reads the arguments of message: what is sent, and to which target.
func (t *Table) outgoing(ctx context.Context, turn Turn, key string, args []byte) (o store.Outgoing, err error) {
	a, err := read[struct {
		Text    string `json:"text"`
		Session string `json:"session"`
	}](args)
	if err != nil {
		return o, err
	}
	if err := chat.CheckText("text", a.Text, chat.MaxText); err != nil {
		return o, err
	}
	session, target := turn.Session, turn.Target
	if a.Session != "" {
		status, err := t.own(ctx, turn, a.Session)
		if err != nil {
			return o, err
		}
		if status.Key != turn.Session {
			session, target = status.Key, status.Key.TargetFor(turn.Owner)
		}
	}
	if target.IsZero() {
		target = chat.Target{Channel: webChannel, ChatID: session.String()}
	}
	return store.Outgoing{
		RunID: idOf(key), N: 1, Session: session, Principal: turn.Owner, Target: target, Kind: store.KindReply, Text: a.Text, Count: 1,
		Origin: &chat.Origin{Kind: chat.OriginMessage, By: turn.Session.String(), Outside: turn.Outside != nil && turn.Outside()},
	}, t.deps.Sessions.Reaches(target.Channel)
}

// idOf derives an id from a key.
func idOf(key string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:tool:"+key)).String()
}

// own returns a session of the owner; other sessions do not exist for a tool.
func (t *Table) own(ctx context.Context, turn Turn, name string) (chat.SessionStatus, error) {
	key, err := chat.ParseSessionKey(name, turn.Session.Agent)
	if err != nil {
		return chat.SessionStatus{}, chat.Errorf(chat.CodeInvalid, "session: %s", err)
	}
	status, err := t.deps.Sessions.Session(ctx, key, turn.Owner)
	if errors.Is(err, chat.ErrSessionNotFound) {
		return status, chat.Errorf(chat.CodeSessionNotFound, "there is no session %s", chat.Cut(chat.Printable(name), 128))
	}
	return status, err
}

// readable returns the session that a call of a turn reads: with several readers their
// conversation, which is also the default, otherwise a session of the owner.
func (t *Table) readable(ctx context.Context, turn Turn, name string) (chat.SessionStatus, error) {
	if !turn.Audience.Shared() {
		return t.own(ctx, turn, name)
	}
	key, visible := turn.here()
	status, err := t.deps.Sessions.Session(ctx, key, visible)
	if errors.Is(err, chat.ErrSessionNotFound) {
		err = chat.Errorf(chat.CodeSessionNotFound, "this conversation has no session that can be read here")
	}
	return status, err
}

func (t *Table) sessions() Tool {
	return Tool{
		Name: "sessions", Scope: chat.ScopeWrite, Idempotent: true, Additive: true, InOrder: true, Askable: true, Acts: unless("list", "history"), Foreign: unless("list", "send"),
		Description: "Lists the sessions of the person, reads the end of one, or gives one a text that its agent then works on.",
		Schema: `{"type":"object","additionalProperties":false,"required":["action"],"properties":{
			"action":{"type":"string","enum":["list","history","send"]},
			"session":{"type":"string","description":"Key of the session, for history and send."},
			"text":{"type":"string","description":"For send."}}}`,
		Check: func(ctx context.Context, turn Turn, key string, args []byte) error {
			a, err := read[sessionArgs](args)
			if err != nil {
				return err
			}
			switch a.Action {
			case "list":
			case "history":
				_, err = t.own(ctx, turn, a.Session)
			case "send":
				_, err = t.given(ctx, turn, key, a)
			default:
				err = noSessionAction(a.Action)
			}
			return err
		},
		Beyond: func(turn Turn, args []byte) bool {
			a, err := read[sessionArgs](args)
			return err == nil && (a.Action == "list" && a.Everywhere || a.Action == "history" && turn.elsewhere(a.Session))
		},
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[sessionArgs](args)
			if err != nil {
				return "", err
			}
			switch a.Action {
			case "list":
				return t.listSessions(ctx, turn)
			case "history":
				return t.history(ctx, turn, a)
			case "send":
				return t.sendToSession(ctx, turn, key, a)
			default:
				return "", noSessionAction(a.Action)
			}
		},
	}
}

func noSessionAction(name string) error {
	return chat.Errorf(chat.CodeInvalid, "there is no action %q; use list, history or send", chat.Cut(chat.Printable(name), 32))
}

// sessionArgs are the arguments of the tool sessions.
type sessionArgs struct {
	Action  string `json:"action"`
	Session string `json:"session"`
	Text    string `json:"text"`

	Everywhere bool `json:"everywhere"`
}

func (t *Table) listSessions(ctx context.Context, turn Turn) (string, error) {
	if turn.Audience.Shared() {
		key, visible := turn.here()
		s, err := t.deps.Sessions.Session(ctx, key, visible)
		if errors.Is(err, chat.ErrSessionNotFound) {
			return "There are no sessions.", nil
		}
		return sessionLine(s), err
	}
	list, total, err := t.deps.Sessions.Sessions(ctx, store.SessionFilter{Visible: turn.Owner, ByLastMessage: true, NoRuns: true, Limit: sessionsShown})
	if err != nil || len(list) == 0 {
		return "There are no sessions.", err
	}
	var out strings.Builder
	for _, s := range list {
		out.WriteString(sessionLine(s))
	}
	if total > len(list) {
		fmt.Fprintf(&out, "and %d more\n", total-len(list))
	}
	return out.String(), nil
}

func sessionLine(s chat.SessionStatus) string {
	return fmt.Sprintf("%s: %s, last message %s\n", s.Key, s.Status, shown(s.LastMessageAt))
}

func (t *Table) history(ctx context.Context, turn Turn, a sessionArgs) (string, error) {
	status, err := t.readable(ctx, turn, a.Session)
	if err != nil {
		return "", err
	}
	tr, err := t.deps.Sessions.Transcript(ctx, store.TranscriptQuery{Session: status.Key, Limit: entriesShown, MaxChars: charsShown})
	if err != nil || len(tr.Entries) == 0 {
		return "The session is empty.", err
	}
	var out strings.Builder
	for _, e := range tr.Entries {
		fmt.Fprintf(&out, "%s: %s\n", e.Role, e.Text)
	}
	return out.String(), nil
}

// sendToSession sends a message to another session. It is marked as external: the turn that it
// causes cannot send further messages, so two sessions do not keep each other busy.
func (t *Table) sendToSession(ctx context.Context, turn Turn, key string, a sessionArgs) (string, error) {
	m, err := t.given(ctx, turn, key, a)
	if err != nil {
		return "", err
	}
	_, err = t.deps.Sessions.ReceiveFrom(ctx, m, turn.caller())
	return "The session has the text.", err
}

// given returns the message to another session. Its answer is sent to the chat of that session.
func (t *Table) given(ctx context.Context, turn Turn, key string, a sessionArgs) (m chat.Message, err error) {
	status, err := t.own(ctx, turn, a.Session)
	if err != nil {
		return m, err
	}
	if status.Key == turn.Session {
		return m, chat.Errorf(chat.CodeInvalid, "that is this session; answer here instead")
	}
	if err := chat.CheckText("text", a.Text, chat.MaxText); err != nil {
		return m, err
	}
	to := status.Key.TargetFor(turn.Owner)
	if !to.IsZero() {
		err = t.deps.Sessions.Reaches(to.Channel)
	}
	return chat.Message{
		ID: idOf(key), Session: status.Key, Channel: fromTool, Dedupe: "tool:" + idOf(key),
		Content: chat.Content{Text: a.Text, Sender: turn.Sender, External: true, Options: chat.Options{ReplyTo: to}},
	}, err
}

// hitsShown is how many messages the tool history_search returns at once.
const hitsShown = 10

// nodesShown is how many summaries the tool history_search returns at once.
const nodesShown = 10

func (t *Table) historySearch() Tool {
	return Tool{
		Name: "history_search", Scope: chat.ScopeWrite, ReadOnly: true, Idempotent: true, Askable: true, Foreign: always, // its results may contain external text
		Beyond: func(turn Turn, args []byte) bool {
			a, err := read[searchArgs](args)
			return err == nil && (a.Everywhere || turn.elsewhere(a.Session))
		},
		Check: func(ctx context.Context, turn Turn, _ string, args []byte) error {
			a, err := read[searchArgs](args)
			if err == nil && a.Contents == "" {
				_, err = t.searchQuery(ctx, turn.alone(), a)
			} else if err == nil {
				_, err = t.tocQuery(ctx, turn.alone(), a)
			}
			return err
		},
		Description: "Finds earlier messages that have all of the given words, the newest first: in all sessions of the person, in a group in this session only. " +
			"A word finds longer words that begin with it. There are no synonyms: try other words when nothing is found. With contents instead of query it shows " +
			"summaries of what was said, by day, week or month: go from a month to its weeks and days to find when something was said.",
		Schema: `{"type":"object","additionalProperties":false,"properties":{
			"query":{"type":"string","description":"The words, at most 16."},
			"contents":{"type":"string","enum":["day","week","month"],"description":"Summaries instead of messages; in a group only of its days."},
			"period":{"type":"string","description":"With contents: only up to this one, such as 2026-03-14, 2026-W11 or 2026-03, to go further back."},
			"session":{"type":"string","description":"Key of a session of the person, to search in that one only."},
			"before":{"type":"string","description":"Only messages up to this time (RFC 3339), to go further back."}}}`,
		Run: t.searchHistory,
	}
}

// searchArgs are the arguments of the tool history_search.
type searchArgs struct {
	Query   string `json:"query"`
	Session string `json:"session"`
	Before  string `json:"before"`

	Contents string `json:"contents"`
	Period   string `json:"period"`

	Everywhere bool `json:"everywhere"`
}

func (t *Table) searchHistory(ctx context.Context, turn Turn, _ string, args []byte) (string, error) {
	a, err := read[searchArgs](args)
	if err != nil {
		return "", err
	}
	if a.Contents != "" {
		return t.contents(ctx, turn, a)
	}
	q, err := t.searchQuery(ctx, turn, a)
	if err != nil {
		return "", err
	}
	found, err := t.deps.Sessions.Search(ctx, q)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, h := range found.Hits {
		fmt.Fprintf(&out, "%s %s, %s: %s\n", shown(h.Entry.At), h.Session, h.Entry.Role, h.Entry.Text)
	}
	switch {
	case found.More:
		fmt.Fprintf(&out, "There may be older ones; search again with before %s.\n", found.Back.UTC().Format(time.RFC3339Nano))
	case len(found.Hits) == 0:
		return "No message has these words.", nil
	}
	return out.String(), nil
}

// searchQuery returns the query, restricted to what the turn may search.
func (t *Table) searchQuery(ctx context.Context, turn Turn, a searchArgs) (store.SearchQuery, error) {
	q := store.SearchQuery{Visible: turn.Owner, Limit: hitsShown}
	var err error
	if q.Words, err = words.Parse(a.Query); err != nil {
		return q, chat.Errorf(chat.CodeInvalid, "%s", err)
	}
	if a.Before != "" {
		if q.Until, err = time.Parse(time.RFC3339Nano, a.Before); err != nil {
			return q, chat.Errorf(chat.CodeInvalid, "before is not a time like 2026-03-14T15:00:00Z")
		}
	}
	switch {
	case turn.Audience.Shared():
		q.Session, q.Visible = turn.here()
	case a.Session != "":
		status, err := t.own(ctx, turn, a.Session)
		if err != nil {
			return q, err
		}
		q.Session = status.Key
	}
	return q, nil
}

// contents returns summaries of conversations, the newest first.
func (t *Table) contents(ctx context.Context, turn Turn, a searchArgs) (string, error) {
	q, err := t.tocQuery(ctx, turn, a)
	if err != nil {
		return "", err
	}
	list, err := t.deps.Sessions.Toc(ctx, q)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "There are no summaries.", nil
	}
	var out strings.Builder
	for _, n := range list {
		where := ""
		if !n.Session.IsZero() {
			where = " " + n.Session.String()
		}
		fmt.Fprintf(&out, "%s%s: %s\n", n.Period, where, n.Text)
	}
	return out.String(), nil
}

// tocQuery returns the query, restricted to the summaries that the turn may read.
func (t *Table) tocQuery(ctx context.Context, turn Turn, a searchArgs) (store.TocQuery, error) {
	q := store.TocQuery{Level: store.TocLevel(a.Contents), Visible: turn.Owner, To: a.Period, Limit: nodesShown}
	switch {
	case a.Query != "" || a.Before != "":
		return q, chat.Errorf(chat.CodeInvalid, "contents goes with period and session only; leave out query and before")
	case turn.Audience.Shared() && q.Level != store.TocDay:
		return q, turn.notHere("a week or month")
	case turn.Audience.Shared():
		q.Session, q.Visible = turn.here()
	case a.Session != "" && q.Level != store.TocDay:
		return q, chat.Errorf(chat.CodeInvalid, "only days have a summary for each session; leave out session")
	case a.Session != "":
		status, err := t.own(ctx, turn, a.Session)
		if err != nil {
			return q, err
		}
		q.Session = status.Key
	}
	return q, nil
}
