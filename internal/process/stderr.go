package process

import (
	"bufio"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"laneway/internal/chat"
)

const (
	maxKept   = 1000 // bytes of a line that are kept
	keptLines = 3    // last lines for Exit
	maxLast   = 500  // bytes of Exit.Stderr
	// maxLine bounds a line before secrets are removed, in bytes; it is longer than maxKept, so that no secret is cut in half and missed.
	maxLine = 16 << 10
)

// stderrLines reads the standard error of one program. It belongs to the goroutine that reads; its last lines may be read at any time.
type stderrLines struct {
	log     *slog.Logger
	hide    *strings.Replacer
	noise   *rate.Limiter
	leftOut int

	mu      sync.Mutex // guards what follows; only the reading goroutine changes it
	lines   []string   // the last ones
	count   int        // of all
	changed chan struct{}
}

func newStderrLines(spec Spec) *stderrLines {
	s := &stderrLines{log: spec.Log, hide: spec.Hide, noise: spec.Noise, changed: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.hide == nil {
		s.hide = strings.NewReplacer()
	}
	return s
}

// read blocks until the end of the stream. Long lines are cut, and lines above the rate are counted instead of logged.
func (s *stderrLines) read(stream io.Reader) {
	in := bufio.NewReaderSize(stream, readSize)
	var line []byte
	for {
		part, more, err := in.ReadLine()
		line = append(line, part[:min(len(part), max(0, maxLine-len(line)))]...)
		if err != nil {
			s.take(line)
			break
		}
		if !more {
			s.take(line)
			line = line[:0]
		}
	}
	if s.leftOut > 0 {
		s.log.Debug("program wrote more to standard error than is logged", "lines_left_out", s.leftOut)
	}
}

func (s *stderrLines) take(raw []byte) {
	line := strings.TrimSpace(strings.Map(visible, chat.CleanText(s.hide.Replace(string(raw)))))
	line = chat.Cut(line, maxKept)
	if line == "" {
		return
	}
	s.keep(line)
	if s.noise == nil || !s.noise.Allow() {
		s.leftOut++
		return
	}
	s.log.Debug("program wrote to standard error", "line", line)
}

// visible removes characters that disguise the content of a log line or a sentence; tabs become blanks.
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

func (s *stderrLines) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	close(s.changed)
	s.changed = make(chan struct{})
	s.lines = append(s.lines, line)
	s.lines = slices.Delete(s.lines, 0, max(0, len(s.lines)-keptLines))
}

// last returns the last lines in one line, for a sentence.
func (s *stderrLines) last() string {
	text, _ := s.lastAfter(0)
	return text
}

// lastAfter returns the last lines after the first count, and a channel that the next line closes.
func (s *stderrLines) lastAfter(count int) (text string, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.lines[max(0, len(s.lines)-(s.count-count)):]
	return chat.Cut(strings.Join(fresh, " / "), maxLast), s.changed
}
