package agent

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
)

// DefaultMaxAnswer is the longest answer of a runner in bytes of UTF-8 unless its configuration sets another limit.
const DefaultMaxAnswer = 1 << 20

// Answer collects the text of one turn and emits it. It implements the part of the contract that every runner shares: the
// joined deltas are the text, the text is valid UTF-8 without NUL, characters that arrive in pieces are joined, and
// nothing beyond the limit is kept or emitted. It belongs to the goroutine of Run.
type Answer struct {
	emit    func(Event)
	limit   int
	text    strings.Builder
	pending []byte // the start of a character whose rest has not arrived; at most three bytes
}

// NewAnswer makes an empty answer of at most limit bytes; limit <= 0 means [DefaultMaxAnswer].
func NewAnswer(limit int, emit func(Event)) *Answer {
	if limit <= 0 {
		limit = DefaultMaxAnswer
	}
	return &Answer{emit: emit, limit: limit}
}

// Append adds text. At the limit it keeps what fits and returns an *Error with [chat.FailOutputLimit].
func (a *Answer) Append(text string) error {
	text = chat.CleanText(text)
	rest := a.limit - a.text.Len()
	fits := chat.Cut(text, rest)
	if fits != "" {
		a.text.WriteString(fits)
		a.emit(Event{Kind: EventDelta, Text: fits})
	}
	if len(fits) < len(text) {
		return NewError(chat.FailOutputLimit, fmt.Sprintf("The answer was cut because it is longer than %d bytes; ask for less at once.", a.limit), nil)
	}
	return nil
}

// AppendBytes adds raw output. An incomplete character is held until the next call. It returns what [Answer.Append] returns.
func (a *Answer) AppendBytes(raw []byte) error {
	raw = append(a.pending, raw...)
	whole := len(raw) - incomplete(raw)
	a.pending = append([]byte(nil), raw[whole:]...)
	return a.Append(string(raw[:whole]))
}

// Flush ends raw output: an incomplete character is shown as U+FFFD.
func (a *Answer) Flush() error {
	rest := string(a.pending)
	a.pending = nil
	return a.Append(rest)
}

// Text returns everything that was emitted.
func (a *Answer) Text() string { return a.text.String() }

// Begun reports whether anything was emitted; after that the turn must not be retried.
func (a *Answer) Begun() bool { return a.text.Len() > 0 }

// incomplete returns how many bytes at the end of raw start a character that may still become valid.
func incomplete(raw []byte) int {
	for n := 1; n <= min(len(raw), utf8.UTFMax-1); n++ {
		tail := raw[len(raw)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if utf8.FullRune(tail) {
			return 0
		}
		return n
	}
	return 0
}
