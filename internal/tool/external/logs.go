package external

import (
	"bytes"
	"encoding/json"
)

// logMethod is the method of a log message: a notification that a server may send at any time (MCP 2025-06-18, utilities/logging).
const logMethod = "notifications/message"

// logFilter removes the log messages from what a program writes. The gateway does not use them, and the SDK spends some 400 µs on each, most of it on
// buffers of 32 KiB that it throws away, so a talkative program would take half a processor from the turns of others. It is used by one goroutine.
type logFilter struct {
	// inLine: the last piece ended within a line.
	inLine bool
}

// remove returns what is left of piece, in the memory of piece. It never holds bytes back, so a line that comes in two pieces stays: in a flood that is one in
// hundreds.
func (f *logFilter) remove(piece []byte) []byte {
	kept := piece[:0]
	for line := range bytes.Lines(piece) {
		if f.inLine || !isLog(line) {
			kept = append(kept, line...)
		}
		f.inLine = line[len(line)-1] != '\n'
	}
	return kept
}

// isLog reports whether a line is a log message: messages are delimited by newlines and have none within (MCP 2025-06-18, stdio). What is not quite one is
// left to the SDK.
func isLog(line []byte) bool {
	if !bytes.HasSuffix(line, []byte{'\n'}) || !bytes.Contains(line, []byte(logMethod)) {
		return false
	}
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	return json.Unmarshal(line, &message) == nil && message.Method == logMethod && message.ID == nil
}
