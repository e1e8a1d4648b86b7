package testtelegram

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// getUpdates implements long polling: an offset confirms the updates before it, the oldest updates from there on are returned, and
// without any the call waits. A second call ends the first one with 409.
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

// confirm removes the updates before an offset. An offset beyond all waiting updates, as after a restart of the numbers, confirms
// nothing. The mutex is held.
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
	id, _ := u["update_id"].(int) //nolint:errcheck // 0 is a number too
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
