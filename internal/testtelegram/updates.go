package testtelegram

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// getUpdates implements long polling: an offset confirms the updates before it, the oldest updates
// from there on are returned, and without any the call waits. A second call ends the first one with
// 409.
func (s *Server) getUpdates(ctx context.Context, p url.Values) answer {
	number := func(name string, fallback int) int {
		n, err := strconv.Atoi(p.Get(name))
		if err != nil {
			return fallback
		}
		return n
	}
	s.mu.Lock()
	if s.webhook.url != "" {
		s.mu.Unlock()
		return refuse(http.StatusConflict, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first")
	}
	if s.poll != nil {
		close(s.poll.terminated)
	}
	mine := &poll{terminated: make(chan struct{})}
	s.poll = mine
	if !s.cfg.Forgetful {
		s.confirm(number("offset", 0))
	}
	s.touch()
	s.mu.Unlock()

	timeout := time.Duration(number("timeout", 0)) * time.Second
	if s.cfg.Hurry > 0 {
		timeout = min(timeout, s.cfg.Hurry)
	}
	a := s.waitUpdates(ctx, mine, number("limit", 100), timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll == mine {
		s.poll = nil
	}
	return a
}

// confirm removes the updates before an offset. An offset beyond all waiting updates, as after a
// restart of the numbers, confirms nothing. The mutex is held.
func (s *Server) confirm(offset int) {
	known := slices.ContainsFunc(s.updates, func(u update) bool { return u.id >= offset-1 }) || slices.Contains(s.confirmed, offset-1)
	if offset <= 0 || !known {
		return
	}
	s.updates = slices.DeleteFunc(s.updates, func(u update) bool {
		if u.id < offset {
			s.confirmed = append(s.confirmed, u.id)
		}
		return u.id < offset
	})
}

func (s *Server) waitUpdates(ctx context.Context, mine *poll, limit int, timeout time.Duration) answer {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		batch := []json.RawMessage{}
		for _, u := range s.updates[:min(limit, len(s.updates))] {
			batch = append(batch, u.raw)
		}
		changed := s.changed
		s.mu.Unlock()
		if len(batch) > 0 {
			return ok(batch)
		}
		select {
		case <-changed:
		case <-deadline.C:
			return ok(batch)
		case <-mine.terminated:
			return refuse(http.StatusConflict, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
		case <-ctx.Done():
			return ok(batch)
		}
	}
}

// Polling reports whether a getUpdates is waiting.
func (s *Server) Polling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poll != nil
}

// OtherPoller acts as a second program that polls with the same token: it ends a waiting call.
func (s *Server) OtherPoller() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll != nil {
		close(s.poll.terminated)
		s.poll = nil
	}
}

// Push queues an update and returns its number. The member update_id is added unless there is one.
func (s *Server) Push(u map[string]any) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, given := u["update_id"].(int)
	if !given {
		id = s.nextUpdate
		u["update_id"] = id
	}
	s.nextUpdate = id + 1
	raw, err := json.Marshal(u)
	if err != nil {
		panic("testtelegram: " + err.Error())
	}
	s.updates = append(s.updates, update{id: id, raw: raw})
	s.touch()
	return id
}

// PushRaw queues raw JSON as an update.
func (s *Server) PushRaw(id int, raw string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextUpdate = id + 1
	s.updates = append(s.updates, update{id: id, raw: json.RawMessage(raw)})
	s.touch()
}

// Replay queues an update again that may have been confirmed, as a server that lost its state does.
func (s *Server) Replay(u map[string]any) {
	raw, err := json.Marshal(u)
	if err != nil {
		panic("testtelegram: " + err.Error())
	}
	id, _ := u["update_id"].(int) // 0 is a number too
	s.PushRaw(id, string(raw))
}

// Pending returns the numbers of the updates that no offset has confirmed, in order.
func (s *Server) Pending() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]int, 0, len(s.updates))
	for _, u := range s.updates {
		out = append(out, u.id)
	}
	return out
}

// Confirmed returns the updates that the bot has confirmed, in order.
func (s *Server) Confirmed() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.confirmed)
}

// Message makes the update for a message of a person in a chat; more changes the message first.
func (s *Server) Message(chat, user int64, text string, more ...func(map[string]any)) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.chats[chat]
	if r == nil {
		panic("testtelegram: no chat " + strconv.FormatInt(chat, 10))
	}
	m := map[string]any{
		"message_id": r.next, "date": time.Now().Unix(), "chat": r.json(),
		"from": map[string]any{"id": user, "is_bot": false, "first_name": "User " + strconv.FormatInt(user, 10)},
	}
	r.next++
	if text != "" {
		m["text"] = text
	}
	for _, f := range more {
		f(m)
	}
	return map[string]any{"message": m}
}

// Say queues a text message.
func (s *Server) Say(chat, user int64, text string, more ...func(map[string]any)) int {
	return s.Push(s.Message(chat, user, text, more...))
}

// InTopic puts a message into a topic.
func InTopic(thread int) func(map[string]any) {
	return func(m map[string]any) { m["message_thread_id"], m["is_topic_message"] = thread, true }
}

// With sets a member of a message.
func With(name string, value any) func(map[string]any) {
	return func(m map[string]any) { m[name] = value }
}

// Mentioning marks a mention at the beginning of the text: an entity with a length in UTF-16 units.
func Mentioning(units int) func(map[string]any) {
	return With("entities", []any{map[string]any{"type": "mention", "offset": 0, "length": units}})
}

// Press queues the callback of a button.
func (s *Server) Press(chat, user int64, messageID int, data string) int {
	s.mu.Lock()
	r := s.chats[chat]
	message := map[string]any{"message_id": messageID, "date": time.Now().Unix(), "chat": r.json(), "from": s.me()}
	s.mu.Unlock()
	return s.Push(map[string]any{"callback_query": map[string]any{
		"id": strconv.Itoa(messageID) + "-" + data, "data": data, "chat_instance": "1", "message": message,
		"from": map[string]any{"id": user, "is_bot": false, "first_name": "User"},
	}})
}

// chatState is one chat of the server.
type chatState struct {
	id       int64
	kind     string // private, group, supergroup
	title    string
	topics   map[int]bool // nil means not a forum
	blocked  bool
	gone     bool
	moved    int64 // the supergroup that it became
	admins   map[int64]bool
	next     int // message id
	messages []*Message
	noReact  bool
}

// Message is one message of the bot, as displayed.
type Message struct {
	ID, Thread int
	// Text is the displayed text, HTML the source ("" if plain).
	Text, HTML string
	// File is what was uploaded instead of text; nil if none.
	File     *File
	Entities []Entity
	ReplyTo  int
	Buttons  [][]Button
	SentAt   time.Time
	// Edits are the earlier texts of the message.
	Edits []string
}

// Button is one button under a message.
type Button struct{ Text, Data string }

// chatBook has the chats of a bot.
type chatBook struct {
	*state
	chats map[int64]*chatState
}

// AddPrivate makes a private chat with a person; chat and person have the same number.
func (s *chatBook) AddPrivate(id int64, name string) {
	s.add(&chatState{id: id, kind: "private", title: name})
}

// AddGroup makes a supergroup; with topics it is a forum.
func (s *chatBook) AddGroup(id int64, title string, topics ...int) {
	r := &chatState{id: id, kind: "supergroup", title: title, admins: map[int64]bool{}}
	if len(topics) > 0 {
		r.topics = map[int]bool{}
	}
	for _, t := range topics {
		r.topics[t] = true
	}
	s.add(r)
}

func (s *chatBook) add(r *chatState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.next = 1
	s.chats[r.id] = r
}

// change applies f to a chat that must exist.
func (s *chatBook) change(id int64, f func(*chatState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.chats[id]
	if r == nil {
		panic("testtelegram: no chat " + strconv.FormatInt(id, 10))
	}
	f(r)
	s.touch()
}

// Block makes the chat refuse the bot with 403.
func (s *chatBook) Block(id int64) { s.change(id, func(r *chatState) { r.blocked = true }) }

// Leave makes the chat unknown to the bot.
func (s *chatBook) Leave(id int64) { s.change(id, func(r *chatState) { r.gone = true }) }

// MakeAdmin makes a member an administrator of a group.
func (s *chatBook) MakeAdmin(chat, user int64) {
	s.change(chat, func(r *chatState) { r.admins[user] = true })
}

// ForbidReactions makes setMessageReaction fail in a chat.
func (s *chatBook) ForbidReactions(id int64) { s.change(id, func(r *chatState) { r.noReact = true }) }

// CloseTopic removes a topic of a forum.
func (s *chatBook) CloseTopic(id int64, topic int) {
	s.change(id, func(r *chatState) { delete(r.topics, topic) })
}

// Migrate gives a group a new number: calls for the old number are refused with the new one.
func (s *chatBook) Migrate(from, to int64) {
	s.change(from, func(r *chatState) {
		r.moved = to
		s.chats[to] = &chatState{id: to, kind: "supergroup", title: r.title, admins: r.admins, next: 1}
	})
}

// Messages returns the bot's messages in a chat, oldest first.
func (s *chatBook) Messages(chat int64) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.chats[chat]
	if r == nil {
		return nil
	}
	out := make([]Message, 0, len(r.messages))
	for _, m := range r.messages {
		c := *m
		c.Edits = slices.Clone(m.Edits)
		out = append(out, c)
	}
	return out
}

// Texts returns the displayed text of the bot's messages in a chat.
func (s *chatBook) Texts(chat int64) []string {
	var out []string
	for _, m := range s.Messages(chat) {
		out = append(out, m.Text)
	}
	return out
}

// reach returns the chat of a call, or the answer that refuses the call. The mutex is held.
func (s *chatBook) reach(chatID string) (*chatState, *answer) {
	id, err := strconv.ParseInt(chatID, 10, 64)
	if err != nil {
		a := badRequest("chat_id is empty")
		return nil, &a
	}
	r := s.chats[id]
	switch {
	case r == nil || r.gone:
		a := badRequest("chat not found")
		return nil, &a
	case r.moved != 0:
		a := badRequest("group chat was upgraded to a supergroup chat")
		a.parameters = map[string]any{"migrate_to_chat_id": r.moved}
		return nil, &a
	case r.blocked:
		a := refuse(403, "Forbidden: bot was blocked by the user")
		return nil, &a
	}
	return r, nil
}

// thread checks the topic of a call. General cannot be named as a thread.
func (r *chatState) thread(raw string) (int, *answer) {
	if raw == "" {
		return 0, nil
	}
	id, err := strconv.Atoi(raw)
	if err != nil || !r.topics[id] {
		a := badRequest("message thread not found")
		return 0, &a
	}
	return id, nil
}

func (r *chatState) find(id string) *Message {
	for _, m := range r.messages {
		if strconv.Itoa(m.ID) == id {
			return m
		}
	}
	return nil
}

func (r *chatState) json() map[string]any {
	c := map[string]any{"id": r.id, "type": r.kind}
	if r.kind == "private" {
		c["first_name"] = r.title
	} else {
		c["title"] = r.title
	}
	if r.topics != nil {
		c["is_forum"] = true
	}
	return c
}

// read parses the text of a call as Telegram does.
func (s *Server) read(text, mode string) (Message, *answer) {
	m := Message{Text: text}
	switch mode {
	case "":
	case "HTML":
		plain, entities, nested, err := ParseHTML(text)
		if err != nil {
			a := badRequest(err.Error())
			return m, &a
		}
		if nested != "" {
			s.violate("nested against the rules: %s", nested)
		}
		if EntityBytes(entities) > MaxEntityBytes {
			a := badRequest("ENTITIES_TOO_LONG")
			return m, &a
		}
		m.Text, m.HTML, m.Entities = plain, text, entities[:min(len(entities), MaxEntities)] // Telegram drops the others in silence
	default:
		s.violate("parse mode %q is not used here", mode)
	}
	if strings.TrimSpace(m.Text) == "" {
		a := badRequest("message text is empty")
		return m, &a
	}
	if Units(m.Text) > MaxText {
		a := badRequest("message is too long")
		return m, &a
	}
	return m, nil
}

func buttonsOf(markup string) [][]Button {
	if markup == "" {
		return nil
	}
	var keyboard map[string][][]map[string]string
	if json.Unmarshal([]byte(markup), &keyboard) != nil {
		return nil
	}
	var rows [][]Button
	for _, row := range keyboard["inline_keyboard"] {
		var buttons []Button
		for _, b := range row {
			buttons = append(buttons, Button{Text: b["text"], Data: b["callback_data"]})
		}
		rows = append(rows, buttons)
	}
	return rows
}
