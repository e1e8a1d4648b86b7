package postgres

import (
	"context"
	"fmt"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

var _ store.Broadcaster = (*Store)(nil)

const (
	// eventChannel is the NOTIFY channel of broadcasts. A payload is the id of the sending process, then one message per line.
	eventChannel = "laneway_news"
	// maxPayload is the size of one notification, slightly below the server's limit of 8000 bytes.
	maxPayload = 7_900
	// maxTexts bounds the messages that wait to be sent, and those that wait to be read.
	maxTexts = 4_096
)

// Broadcast sends a message to every other process, see store.Broadcaster. The first call starts the sender.
func (s *Store) Broadcast(text string) { s.wake.broadcast(text) }

// Listen starts receiving messages and waits for the first attempt, see store.Broadcaster. The first call starts the listener.
func (s *Store) Listen(ctx context.Context) error {
	s.wake.broadcasts()
	select {
	case <-s.wake.tried:
		return translate(s.wake.failed)
	case <-s.wake.ctx.Done():
		return fmt.Errorf("listening: %w", chat.ErrStoreUnavailable)
	case <-ctx.Done():
		return fmt.Errorf("listening: %w", context.Cause(ctx))
	}
}

// Broadcasts delivers the messages of other processes, see store.Broadcaster. The first call starts the listener.
func (s *Store) Broadcasts() <-chan string { return s.wake.broadcasts() }

func (w *waker) broadcast(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || len(w.texts) >= maxTexts || len(text) > store.MaxBroadcast || strings.Contains(text, "\n") {
		return
	}
	w.texts = append(w.texts, chat.CleanText(text))
	w.startSender()
}

func (w *waker) broadcasts() <-chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.received == nil {
		w.received = make(chan string, maxTexts)
	}
	w.startListener()
	return w.received
}

// payloads packs messages into as few notifications as possible.
func (w *waker) payloads(texts []string) []string {
	var out []string
	var b strings.Builder
	for _, text := range texts {
		if b.Len() > 0 && b.Len()+1+len(text) > maxPayload {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(w.from)
		}
		b.WriteByte('\n')
		b.WriteString(text)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

// receiveTexts queues the messages of a notification from another process.
func (w *waker) receiveTexts(payload string) {
	from, texts, _ := strings.Cut(payload, "\n")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.received == nil || from == w.from {
		return
	}
	w.informMissed()
	for text := range strings.SplitSeq(texts, "\n") {
		select {
		case w.received <- text:
		default:
			w.missed = true
		}
	}
}

// noteMissed informs the reader that messages may have been lost: the listener has reconnected.
func (w *waker) noteMissed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = true
	w.informMissed()
}

// informMissed queues an empty message for the reader when messages were lost, or does so later when the queue is full; the caller holds w.mu.
func (w *waker) informMissed() {
	if !w.missed {
		return
	}
	select {
	case w.received <- "": // a send on a nil channel never proceeds
		w.missed = false
	default:
	}
}
