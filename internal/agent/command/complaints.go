package command

import (
	"bufio"
	"io"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"laneway/internal/chat"
)

const (
	maxComplaint = 1000 // bytes of a line that are kept
	keptLines    = 3    // last lines for the sentence
)

// complaints is what one program writes to standard error. It belongs to the goroutine that reads, and to wait after that.
type complaints struct {
	log     *slog.Logger
	hide    *strings.Replacer
	noise   *rate.Limiter
	lines   []string
	leftOut int
}

// read blocks until the end of the stream. Long lines are cut, and what is over the rate is counted instead of logged.
func (c *complaints) read(stream io.Reader) {
	in := bufio.NewReaderSize(stream, readSize)
	var line []byte
	for {
		part, more, err := in.ReadLine()
		line = append(line, part[:min(len(part), max(0, maxLineBytes-len(line)))]...)
		if err != nil {
			c.take(line)
			break
		}
		if !more {
			c.take(line)
			line = line[:0]
		}
	}
	if c.leftOut > 0 {
		c.log.Info("program wrote more to standard error than is logged", "lines_left_out", c.leftOut)
	}
}

// maxLineBytes is what is looked at before secrets are taken out; longer than what is kept, so that no secret is cut in
// half and missed.
const maxLineBytes = 16 << 10

func (c *complaints) take(raw []byte) {
	line := strings.TrimSpace(strings.Map(visible, chat.CleanText(c.hide.Replace(string(raw)))))
	line = chat.Cut(line, maxComplaint)
	if line == "" {
		return
	}
	c.lines = append(c.lines, line)
	c.lines = slices.Delete(c.lines, 0, max(0, len(c.lines)-keptLines))
	if !c.noise.Allow() {
		c.leftOut++
		return
	}
	c.log.Info("program wrote to standard error", "line", line)
}

// visible removes characters that make a log line or a sentence look like something else than it contains; tabs become blanks.
func visible(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case chat.Unprintable(r):
		return -1
	default:
		return r
	}
}

// last is the end of it in one line, for a sentence.
func (c *complaints) last() string {
	return chat.Cut(strings.Join(c.lines, " / "), maxSentence)
}
