package telegram

import (
	"errors"
	"maps"
	"sync"
	"time"
)

// silences are the times that Telegram asked to wait (retry_after). No call of any kind is made before they are over; the limiter plans messages around
// them, this is the wall behind it. The zero value is ready.
type silences struct {
	mu    sync.Mutex
	chats map[string]time.Time // by chat_id as it was sent; "" = every call
}

// keep notes a wait that the answer to a call for a chat asked for; "" = a call for no chat.
func (s *silences) keep(chat string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.chats, func(_ string, until time.Time) bool { return !now.Before(until) })
	if s.chats == nil {
		s.chats = map[string]time.Time{}
	}
	s.chats[chat] = later(s.chats[chat], now.Add(d))
}

// left is how long a call for a chat has to wait; 0 = it may be made.
func (s *silences) left(chat string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(later(s.chats[""], s.chats[chat])))
}

// asked is the wait that a failed call asks for; 0 = none.
func asked(err error) time.Duration {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.retryAfter
	}
	return 0
}
