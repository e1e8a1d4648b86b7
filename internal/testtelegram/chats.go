package testtelegram

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// AddPrivate makes a private chat with a person; chat and person have the same number.
func (s *Server) AddPrivate(id int64, name string) {
	s.add(&chatState{id: id, kind: "private", title: name})
}

// AddGroup makes a supergroup; with topics it is a forum.
func (s *Server) AddGroup(id int64, title string, topics ...int) {
	r := &chatState{id: id, kind: "supergroup", title: title, admins: map[int64]bool{}}
	if len(topics) > 0 {
		r.topics = map[int]bool{}
	}
	for _, t := range topics {
		r.topics[t] = true
	}
	s.add(r)
}

func (s *Server) add(r *chatState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.next = 1
	s.chats[r.id] = r
}

// change applies f to a chat that must exist.
func (s *Server) change(id int64, f func(*chatState)) {
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
func (s *Server) Block(id int64) { s.change(id, func(r *chatState) { r.blocked = true }) }

// Leave makes the chat unknown to the bot.
func (s *Server) Leave(id int64) { s.change(id, func(r *chatState) { r.gone = true }) }

// MakeAdmin makes a member an administrator of a group.
func (s *Server) MakeAdmin(chat, user int64) {
	s.change(chat, func(r *chatState) { r.admins[user] = true })
}

// ForbidReactions makes setMessageReaction fail in a chat.
func (s *Server) ForbidReactions(id int64) { s.change(id, func(r *chatState) { r.noReact = true }) }

// CloseTopic removes a topic of a forum.
func (s *Server) CloseTopic(id int64, topic int) {
	s.change(id, func(r *chatState) { delete(r.topics, topic) })
}

// Migrate gives a group a new number: calls for the old number are refused with the new one.
func (s *Server) Migrate(from, to int64) {
	s.change(from, func(r *chatState) {
		r.moved = to
		s.chats[to] = &chatState{id: to, kind: "supergroup", title: r.title, admins: r.admins, next: 1}
	})
}

// Messages returns the bot's messages in a chat, oldest first.
func (s *Server) Messages(chat int64) []Message {
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
func (s *Server) Texts(chat int64) []string {
	var out []string
	for _, m := range s.Messages(chat) {
		out = append(out, m.Text)
	}
	return out
}

// Chats lists the numbers of the chats.
func (s *Server) Chats() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.chats), cmp.Compare)
}

// reach returns the chat of a call, or the answer that refuses the call. The mutex is held.
func (s *Server) reach(chatID string) (*chatState, *answer) {
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
