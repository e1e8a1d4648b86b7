package external

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"laneway/internal/chat"
)

const (
	// logMethod is the method of a log message: a notification that a server may send at any time
	// (MCP 2025-06-18, utilities/logging).
	logMethod = "notifications/message"
	// maxNoise is how many lines that are no messages a program may write in noiseTime,
	// maxNoiseBytes how many bytes of them.
	maxNoise      = 100
	maxNoiseBytes = 64 << 10
	noiseTime     = 10 * time.Second
	// quoted is how much of such a line logs and errors show, in bytes.
	quoted = 100
)

// lines passes on the messages among the lines of a program: messages are delimited by newlines and
// contain none (MCP 2025-06-18, stdio). The SDK ends the connection at any other line, but programs
// print banners and log lines. Log messages are dropped as well: the gateway does not use them, and
// the SDK spends some 400 µs on each, mostly on temporary buffers of 32 KiB, so a program that logs
// a lot could occupy half a processor. It is used by one goroutine.
type lines struct {
	// noise is called with the first line of the connection that is no message.
	noise func(line string)
	// rest is the beginning of a line that has not ended.
	rest []byte
	// noises and size count the lines that are no messages and their bytes since the time since;
	// first is the first of the connection.
	noises, size int
	since        time.Time
	first        string
}

// take returns the messages that have ended with piece, each with its newline, in memory of its
// own. An error means that the program is to be ended.
func (l *lines) take(piece []byte) (messages []byte, err error) {
	for line := range bytes.Lines(piece) {
		ended := line[len(line)-1] == '\n'
		if len(l.rest) > 0 || !ended {
			l.rest = append(l.rest, line...)
			line = l.rest
		}
		switch {
		case len(line) > maxMessage:
			return messages, errTooLong
		case ended:
			l.rest = l.rest[:0]
			if messages, err = l.pass(messages, line); err != nil {
				return messages, err
			}
		case len(line) > maxNoiseBytes && !mayBeMessage(line):
			return messages, l.skip(line)
		}
	}
	return messages, nil
}

// end returns the message that has no newline because the output has ended.
func (l *lines) end() (messages []byte) {
	messages, _ = l.pass(nil, l.rest) // the program has ended
	return messages
}

// pass appends a line if it is a message, or the messages of a batch.
func (l *lines) pass(messages, line []byte) ([]byte, error) {
	line = bare(line)
	switch {
	case len(line) == 0, isLog(line):
		return messages, nil
	case isMessage(line):
		return append(append(messages, line...), '\n'), nil
	case bytes.IndexByte(line, '\r') >= 0: // a line of a terminal, such as one that shows progress, and what follows it
		for part := range bytes.SplitSeq(line, []byte("\r")) {
			var err error
			if messages, err = l.pass(messages, part); err != nil {
				return messages, err
			}
		}
		return messages, nil
	case line[0] == '[': // the SDK takes batches of old protocol versions only
		var batch []json.RawMessage
		if json.Unmarshal(line, &batch) != nil || len(batch) == 0 {
			break
		}
		for _, one := range batch {
			if one = bytes.TrimSpace(one); len(one) > 0 && one[0] == '[' {
				return messages, l.skip(line)
			}
			var err error
			if messages, err = l.pass(messages, one); err != nil {
				return messages, err
			}
		}
		return messages, nil
	}
	return messages, l.skip(line)
}

// skip counts a line that is no message. It returns an error when the program writes too many of
// them.
func (l *lines) skip(line []byte) error {
	beginning := chat.Cut(chat.Printable(string(line[:min(len(line), 4*quoted)])), quoted)
	if l.first == "" {
		l.first = beginning
		l.noise(beginning)
	}
	if now := time.Now(); now.Sub(l.since) > noiseTime {
		l.noises, l.size, l.since = 0, 0, now
	}
	l.noises++
	l.size += len(line)
	if l.noises >= maxNoise || l.size >= maxNoiseBytes {
		return fmt.Errorf("it writes too much on its standard output that is no message (%d lines, %d bytes within %s), first %q: let it log to standard error",
			l.noises, l.size, noiseTime, l.first)
	}
	return nil
}

// around matches what terminals and editors put around a line: a byte order mark, and sequences
// that set a color or the title.
var around = regexp.MustCompile(`^(?:\x{feff}|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x20])+|(?:\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x20])+$`)

// bare returns a line without what is around it.
func bare(line []byte) []byte {
	if len(line) > 0 && (line[0] == '{' || line[0] == '[') && bytes.IndexByte(line, 0x1b) < 0 {
		return bytes.TrimSpace(line) // long lines are messages
	}
	return around.ReplaceAllLiteral(line, nil)
}

// mayBeMessage reports whether a line that has not ended may become a message.
func mayBeMessage(line []byte) bool {
	line = bare(line)
	return len(line) > 0 && (line[0] == '{' || line[0] == '[')
}

// isMessage reports whether a line is one message.
func isMessage(line []byte) bool {
	if line[0] != '{' || !json.Valid(line) { // the SDK's decoder ignores what follows the message
		return false
	}
	_, err := jsonrpc.DecodeMessage(line)
	return err == nil
}

// isLog reports whether a line is a log message.
func isLog(line []byte) bool {
	if !bytes.Contains(line, []byte(logMethod)) {
		return false
	}
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	return json.Unmarshal(line, &message) == nil && message.Method == logMethod && message.ID == nil
}
