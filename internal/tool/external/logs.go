package external

import (
	"bytes"
	"encoding/json"
)

// logMethod is the method of a log message: a notification that a server may send at any time (MCP 2025-06-18, utilities/logging).
const logMethod = "notifications/message"

// logFilter removes the log messages from the output of a program. The gateway does not use them, and the SDK spends some 400 µs on each, mostly on
// temporary buffers of 32 KiB, so a program that logs a lot could occupy half a processor. It is used by one goroutine.
type logFilter struct {
	// inLine is true when the last piece ended within a line.
	inLine bool
}

// remove returns piece without log messages, in the memory of piece. It never holds bytes back, so a log message that arrives in two pieces is not
// removed: in a flood that is one in hundreds.
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

// isLog reports whether a line is a log message: messages are delimited by newlines and contain none (MCP 2025-06-18, stdio). Lines in doubt are left
// to the SDK.
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
