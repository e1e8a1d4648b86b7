package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	sdk "github.com/coder/acp-go-sdk"
)

const (
	// maxLine bounds a message of an agent, in bytes.
	maxLine = 8 << 20
	// maxAsked is how many requests of an agent may wait for their response.
	maxAsked = 64
)

var (
	errLongLine = fmt.Errorf("a message is longer than %d bytes", maxLine)
	errFlood    = fmt.Errorf("more than %d requests wait for their response", maxAsked)
)

// link is between a process and the connection of the SDK: the SDK reads from it and writes to it. Responses and requests pass through. Session updates are passed to
// update instead, in order with the responses. Other notifications and lines that are not messages are dropped. The reading goroutine of the connection calls Read,
// which waits until the link is opened.
type link struct {
	from   *io.PipeReader
	in     *bufio.Reader
	ready  chan struct{}
	out    io.Writer
	update func(sdk.SessionNotification)
	log    *slog.Logger

	rest  []byte // of a partly read message
	line  []byte
	asked atomic.Int64
	// broken is why reading has stopped although the process runs; nil while it is read.
	broken atomic.Pointer[error]
}

func newLink(from *io.PipeReader, out io.Writer, update func(sdk.SessionNotification), log *slog.Logger) *link {
	return &link{from: from, in: bufio.NewReaderSize(from, 64<<10), ready: make(chan struct{}), out: out, update: update, log: log}
}

// open lets the connection read.
func (l *link) open() { close(l.ready) }

// close ends reading and fails the writes of the process's output.
func (l *link) close() { _ = l.from.CloseWithError(io.ErrClosedPipe) } // never fails

// message has the members that decide how a message is routed.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (m message) request() bool { return m.Method != "" && len(m.ID) > 0 }

// Read implements [io.Reader]; it returns the messages that pass. After an error it reads nothing more from the process.
func (l *link) Read(p []byte) (int, error) {
	<-l.ready
	for len(l.rest) == 0 {
		line, err := l.next()
		pass := false
		if err == nil {
			pass, err = l.route(line)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				l.broken.Store(&err)
			}
			_ = l.from.CloseWithError(err) // never fails
			return 0, err                  // io.EOF must not be wrapped
		}
		if pass {
			l.rest = line
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next returns the next line with its newline. The slice is valid until the next call.
func (l *link) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case len(l.line) > maxLine:
			return nil, errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		default:
			return l.line, nil
		}
	}
}

// route reports whether a line passes to the SDK, and handles session updates.
func (l *link) route(line []byte) (pass bool, err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return false, nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		l.log.Debug("an agent wrote a line that is no message", "bytes", len(line))
		return false, nil //nolint:nilerr // libraries of agents print such lines
	}
	switch {
	case m.request():
		if l.asked.Add(1) > maxAsked {
			return false, errFlood
		}
		return true, nil
	case m.Method == sdk.ClientMethodSessionUpdate:
		l.take(m.Params)
		return false, nil
	case m.Method != "":
		return m.Method == "$/cancel_request", nil
	default:
		return len(m.ID) > 0, nil
	}
}

func (l *link) take(params json.RawMessage) {
	var n sdk.SessionNotification
	if err := json.Unmarshal(params, &n); err != nil { // a kind that the SDK does not know yet
		l.log.Debug("an update of an agent is not understood", "bytes", len(params))
		return
	}
	l.update(n)
}

// Write implements [io.Writer]. The SDK writes one message at a time.
func (l *link) Write(p []byte) (int, error) {
	var m message
	if json.Unmarshal(p, &m) == nil && m.Method == "" {
		l.asked.Add(-1)
	}
	return l.out.Write(p)
}
