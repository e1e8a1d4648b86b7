package testtelegram

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// Marker is in the secret half of the token of every bot of the tests, and nowhere else.
const Marker = "-Token-canary-"

// Leak searches for [Marker] in everything that the tests of a package write, log and print, until the last of them has ended. The zero value works;
// it is safe for concurrent use. It does not see the runtime's output about an unrecovered panic: the process has ended by then.
type Leak struct {
	mu    sync.Mutex
	seen  int64
	found []string
}

// Through returns a writer to w that records the place if the marker is written.
func (l *Leak) Through(place string, w io.Writer) io.Writer {
	return &leakWriter{leak: l, place: place, w: w}
}

// leakWriter keeps the end of what was written: a marker may come in two pieces.
type leakWriter struct {
	leak  *Leak
	place string
	w     io.Writer
	mu    sync.Mutex
	end   []byte
}

// Write implements io.Writer.
func (w *leakWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	text := append(w.end, p...)
	w.leak.look(w.place, text, len(p))
	w.end = bytes.Clone(text[max(0, len(text)-len(Marker)+1):])
	w.mu.Unlock()
	return w.w.Write(p)
}

func (l *Leak) look(place string, text []byte, fresh int) {
	found := bytes.Contains(text, []byte(Marker))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen += int64(fresh)
	if found && !slices.Contains(l.found, place) {
		l.found = append(l.found, place)
	}
}

// Streams redirects the standard output and error of this process through the search; restore ends that and waits until everything was read.
func (l *Leak) Streams() (restore func(), err error) {
	var undo []func()
	restore = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, s := range []struct {
		name string
		file **os.File
	}{{"standard output", &os.Stdout}, {"standard error", &os.Stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			restore()
			return nil, fmt.Errorf("searching the %s: %w", s.name, err)
		}
		before := *s.file
		*s.file = w
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := io.Copy(l.Through(s.name, before), r); err != nil {
				panic("testtelegram: the " + s.name + " cannot be passed on: " + err.Error())
			}
		}()
		undo = append(undo, func() {
			*s.file = before
			_ = w.Close()
			<-done
			_ = r.Close()
		})
	}
	return restore, nil
}

// Verdict returns an error if the marker was seen, or if nothing was searched.
func (l *Leak) Verdict() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.found) > 0:
		return fmt.Errorf("the token of a bot was found in: %q", l.found)
	case l.seen == 0:
		return errors.New("the search for tokens saw nothing")
	}
	return nil
}
