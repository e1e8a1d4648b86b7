// Package sse reads server-sent events, the stream format of every model API.
//
// It handles bytes only: no HTTP, no deadline, no retry. A [Reader] reads one line at a time from
// any io.Reader, blocks only in that reader, starts no goroutine and holds at most one event, whose
// size is bounded. It accepts the three kinds of line ending, a byte order mark and comments as the
// standard requires. It is more tolerant in one case: an event at the end of the stream counts even
// if the blank line after it is missing, and is marked by [Event.Partial], because some servers
// close the connection right after their last line. A line that begins as a JSON document counts as
// data: some servers report an error in the middle of a stream without the name of the field.
//
//	events := sse.NewReader(body, 1<<20)
//	for {
//		event, err := events.Next()
//		if err != nil {
//			return err // io.EOF at the end
//		}
//		use(event.Name, event.Data)
//	}
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// DefaultMaxEvent is the largest event in bytes unless the caller sets a limit.
const DefaultMaxEvent = 1 << 20

// ErrTooLong is returned for a line or an event over the limit. The stream cannot be read further.
var ErrTooLong = errors.New("server-sent event is too long")

// Event is one event. Empty data is possible only with a name.
type Event struct {
	// Name is the field `event`; "" for an unnamed message.
	Name string
	// Data are the `data` lines joined by newlines. They belong to the caller.
	Data []byte
	// Partial is true when the stream ended before the blank line that completes an event.
	Partial bool
}

// Reader reads events from a stream. It is not safe for concurrent use.
type Reader struct {
	in    *bufio.Reader
	limit int
	begun bool
	// skipLF is true after a carriage return: a following line feed belongs to the same line
	// ending.
	skipLF bool
	ended  bool
}

// NewReader reads from r; limit <= 0 means [DefaultMaxEvent].
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultMaxEvent
	}
	return &Reader{in: bufio.NewReader(r), limit: limit}
}

// Next returns the next event. It returns io.EOF after the last one, [ErrTooLong] for an event over
// the limit, and what the underlying reader returned, which may be io.ErrUnexpectedEOF; an event
// that such an error interrupts is lost.
func (r *Reader) Next() (Event, error) {
	var event Event
	filled := false
	size := 0
	for !r.ended {
		line, err := r.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return Event{}, err
		}
		if r.ended && len(line) == 0 {
			break
		}
		if len(line) == 0 && filled {
			return event, nil
		}
		size += len(line)
		if size > r.limit {
			return Event{}, fmt.Errorf("%w: over %d bytes", ErrTooLong, r.limit)
		}
		filled = event.field(line, filled) || filled
	}
	if filled {
		event.Partial = true
		return event, nil
	}
	return Event{}, io.EOF
}

// field takes one line into the event and reports whether it was a known field; comments, ids,
// retry times and unknown fields do not.
func (e *Event) field(line []byte, filled bool) bool {
	if len(line) > 0 && (line[0] == '{' || line[0] == '[') {
		line = append([]byte("data:"), line...)
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if filled && e.Data != nil {
			e.Data = append(e.Data, '\n')
		}
		e.Data = append(e.Data, value...)
		if e.Data == nil {
			e.Data = []byte{}
		}
		return true
	case "event":
		e.Name = string(value)
		return len(value) > 0
	default:
		return false
	}
}

// line returns the next line without its ending. At the end of the stream it returns what is left
// with io.EOF and sets ended.
func (r *Reader) line() ([]byte, error) {
	var line []byte
	for {
		b, err := r.in.ReadByte()
		if err != nil {
			r.ended = true
			return line, err // io.EOF and io.ErrUnexpectedEOF are part of the contract
		}
		if r.skipLF && b == '\n' {
			r.skipLF = false
			continue
		}
		r.skipLF = b == '\r'
		if b == '\n' || b == '\r' {
			return r.withoutMark(line), nil
		}
		if len(line) >= r.limit {
			return nil, fmt.Errorf("%w: a line over %d bytes", ErrTooLong, r.limit)
		}
		line = append(line, b)
	}
}

// withoutMark removes a byte order mark from the first line of the stream.
func (r *Reader) withoutMark(line []byte) []byte {
	if !r.begun {
		r.begun = true
		return bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
	}
	return line
}
