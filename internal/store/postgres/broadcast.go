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
	// eventChannel is the NOTIFY channel of broadcasts. A payload is the id of the sending process, then one text a line.
	eventChannel = "laneway_news"
	// maxPayload is what one notification may carry, a little less than the server's 8000 bytes.
	maxPayload = 7_900
	// maxTexts bounds the texts that wait to be sent, and those that wait to be read.
	maxTexts = 4_096
)

// Broadcast sends a text to every other process, see store.Broadcaster. It starts the sender at the first call.
func (s *Store) Broadcast(text string) { s.wake.broadcast(text) }

// Listen begins to receive texts and waits until they come, see store.Broadcaster. It starts the listener at the first call.
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

// Broadcasts delivers the texts of other processes, see store.Broadcaster. It starts the listener at the first call.
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

// payloads packs texts into as few notifications as they fit into.
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

// receiveTexts queues the texts of a notification that another process has sent.
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

// noteMissed informs the reader that texts may have been lost: the connection that receives them was lost and is back.
func (w *waker) noteMissed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = true
	w.informMissed()
}

// informMissed leaves the reader an empty text when texts were lost, or does so later when there is no space; the caller holds w.mu.
func (w *waker) informMissed() {
	if !w.missed {
		return
	}
	select {
	case w.received <- "": // a nil channel takes nothing
		w.missed = false
	default:
	}
}
