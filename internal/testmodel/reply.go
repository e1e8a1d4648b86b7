package testmodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Reply describes what the server does with one call, in this order: wait, refuse or begin, stream
// the pieces, fail or end. The zero value is an empty answer.
type Reply struct {
	// Delay before the status line.
	Delay time.Duration
	// HangFirst never sends a status line; the call ends with its connection or the server.
	HangFirst bool
	// Status other than 0 and 200 refuses with Body, or with an error in the form of the protocol.
	Status int
	// Header is added to the response (for example Retry-After).
	Header map[string]string
	// Body, with the media type Type, replaces everything that follows; for example an HTML page.
	Body, Type string
	// Kind, Code and Message of a refusal.
	Kind, Code, Message string

	// Pieces of the answer, one event each.
	Pieces []string
	// Calls that the answer makes after the pieces; each arrives in several events.
	Calls []ToolCall
	// Thoughts come before the pieces, in the form of the protocol.
	Thoughts string
	// Whole answers with one JSON document instead of a stream.
	Whole bool
	// EachByte writes and flushes byte by byte, so that characters arrive in parts; Pause waits
	// before each byte.
	EachByte bool
	Pause    time.Duration

	// After the pieces, at most one: Hang sends nothing more, Cut resets the connection, Half
	// closes it properly without an end of the answer, Garbage sends this string and closes,
	// StreamError sends an error event of this kind.
	Hang, Cut, Half bool
	Garbage         string
	StreamError     string

	// Finish is the finish reason of the protocol; "" means the normal one.
	Finish string
	// NoDone leaves out [DONE] (OpenAI), TwiceDone sends it twice, KeepOpen does not close after
	// it.
	NoDone, TwiceDone, KeepOpen bool
	// CloseAfter is the time between the last event and the end of the stream.
	CloseAfter time.Duration
	// InputTokens and OutputTokens are reported; NoUsage leaves them out.
	InputTokens, OutputTokens int
	NoUsage                   bool
}

// script is a reply that is being sent to one client.
type script struct {
	call   Call
	reply  Reply
	ending chan struct{}
	w      http.ResponseWriter
	r      *http.Request
}

func play(w http.ResponseWriter, r *http.Request, s script) {
	s.w, s.r = w, r
	if !s.wait(s.reply.Delay) {
		return
	}
	if s.reply.HangFirst {
		s.hang()
		return
	}
	for name, value := range s.reply.Header {
		w.Header().Set(name, value)
	}
	switch {
	case s.reply.Body != "":
		s.document(cmp.Or(s.reply.Type, "text/html; charset=utf-8"), cmp.Or(s.reply.Status, http.StatusOK), s.reply.Body)
	case s.reply.Status != 0 && s.reply.Status != http.StatusOK:
		s.document("application/json", s.reply.Status, s.refusal())
	case s.reply.Whole || !s.call.Stream:
		s.document("application/json", http.StatusOK, s.voice().whole())
	default:
		s.stream()
	}
}

func (s script) document(kind string, status int, body string) {
	s.w.Header().Set("Content-Type", kind)
	s.w.WriteHeader(status)
	s.write(body)
}

func (s script) refusal() string {
	return jsonText(map[string]any{"type": "error", "error": map[string]any{
		"type": s.reply.Kind, "code": s.reply.Code, "message": cmp.Or(s.reply.Message, fmt.Sprintf("refused with %d", s.reply.Status)),
	}})
}

func (s script) stream() {
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	voice := s.voice()
	if !s.write(voice.begin()) {
		return
	}
	if s.reply.Thoughts != "" && !s.write(voice.thoughts(s.reply.Thoughts)) {
		return
	}
	for _, piece := range s.reply.Pieces {
		if !s.write(voice.piece(piece)) {
			return
		}
	}
	for i, call := range s.reply.Calls {
		if !s.write(voice.use(i, call)) {
			return
		}
	}
	s.finish(voice)
}

func (s script) finish(voice voice) {
	switch {
	case s.reply.Hang:
		s.hang()
	case s.reply.Cut:
		panic(http.ErrAbortHandler) // the server closes the connection in the middle of the body
	case s.reply.Half:
	case s.reply.Garbage != "":
		s.write(s.reply.Garbage)
	case s.reply.StreamError != "":
		s.write(voice.failure(s.reply.StreamError))
	default:
		s.write(voice.end())
		s.wait(s.reply.CloseAfter)
		if s.reply.KeepOpen {
			s.hang()
		}
	}
}

// write sends text at once or byte by byte, and reports whether the client is still connected.
func (s script) write(text string) bool {
	if !s.reply.EachByte && s.reply.Pause == 0 {
		return s.flush(text)
	}
	for i := range len(text) {
		if !s.wait(s.reply.Pause) || !s.flush(text[i:i+1]) {
			return false
		}
	}
	return true
}

func (s script) flush(text string) bool {
	if _, err := s.w.Write([]byte(text)); err != nil {
		return false
	}
	return http.NewResponseController(s.w).Flush() == nil
}

func (s script) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ending:
	case <-s.r.Context().Done():
	}
	return false
}

func (s script) hang() {
	_ = http.NewResponseController(s.w).Flush() // a disconnected client is not an error here
	select {
	case <-s.ending:
	case <-s.r.Context().Done():
	}
}

func (s script) voice() voice {
	switch s.call.Protocol {
	case Anthropic:
		return messages{s}
	case Responses:
		return responses{s}
	case Gemini:
		return gemini{s}
	default:
		return completions{s}
	}
}

func jsonText(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps of strings and numbers always marshal
	}
	return string(raw)
}

func (s script) text() string { return strings.Join(s.reply.Pieces, "") }

// finishReason returns the finish reason of the reply, or the normal one of an answer without or
// with calls.
func (s script) finishReason(text, calls string) string {
	if len(s.reply.Calls) > 0 {
		text = calls
	}
	return cmp.Or(s.reply.Finish, text)
}
