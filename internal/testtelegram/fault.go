package testtelegram

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is one way in which a call fails. Exactly one of the fields that choose a way is set.
type Fault struct {
	// After means that the call is executed before it fails, as when an answer is lost.
	After bool
	// Code and Description are a refusal in Telegram's envelope.
	Code        int
	Description string
	// RetryAfter makes a 429 with a window in seconds; the window applies to the call's chat.
	RetryAfter int
	// HTML is the status of a page from a proxy.
	HTML int
	// Garbage sends a body that is not JSON, with status 200.
	Garbage bool
	// Cut ends the body in the middle; Huge is the length of a body of spaces in bytes.
	Cut  bool
	Huge int
	// Hang keeps the call until the caller gives up. Reset closes the connection without an answer.
	Hang, Reset bool
	// Delay delays the call, which then continues normally.
	Delay time.Duration
}

// Refuse returns a refusal with a code and a description.
func Refuse(code int, description string) Fault { return Fault{Code: code, Description: description} }

// Flood returns a 429 that asks to wait for some seconds.
func Flood(seconds int) Fault { return Fault{RetryAfter: seconds} }

// faultBook has the faults of the next calls.
type faultBook struct {
	*state
	faults map[string][]Fault // by method
}

// Break queues faults for a method, to be used one by one by its next calls; "*" matches every
// method without queued faults.
func (s *faultBook) Break(method string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], faults...)
}

// Mend removes the faults that were not used.
func (s *faultBook) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = map[string][]Fault{}
}

// Faults returns how many faults are left for a method.
func (s *faultBook) Faults(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults[method])
}

// BreakAlways makes every call fail in the same way until Mend.
func (s *faultBook) BreakAlways(f Fault) {
	const plenty = 100_000
	list := make([]Fault, plenty)
	for i := range list {
		list[i] = f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults["*"] = list
}

// takeFault returns the next fault for a call. The mutex is held.
func (s *faultBook) takeFault(method string) (Fault, bool) {
	for _, name := range []string{method, "*"} {
		if list := s.faults[name]; len(list) > 0 {
			s.faults[name] = list[1:]
			return list[0], true
		}
	}
	return Fault{}, false
}

// fail answers a call according to its fault.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, index int, f Fault) {
	switch {
	case f.Delay > 0:
		s.delayed(w, r, index, f)
	case f.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Reset:
		panic(http.ErrAbortHandler)
	case f.RetryAfter > 0:
		s.flood(w, index, f.RetryAfter)
	case f.HTML > 0:
		s.raw(w, index, f.HTML, "text/html", "<html><body><h1>Bad Gateway</h1></body></html>")
	case f.Garbage:
		s.raw(w, index, http.StatusOK, "application/json", "\x00{]not json")
	case f.Cut:
		s.raw(w, index, http.StatusOK, "application/json", `{"ok":true,"result":[{"upda`)
		panic(http.ErrAbortHandler)
	case f.Huge > 0:
		s.huge(w, index, f.Huge)
	default:
		s.end(index, f.Code)
		write(w, refuse(f.Code, f.Description))
	}
}

func (s *Server) delayed(w http.ResponseWriter, r *http.Request, index int, f Fault) {
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	method, form, file := s.calls[index].Method, s.calls[index].Params, s.calls[index].File
	s.mu.Unlock()
	a := s.perform(r.Context(), method, form, file)
	s.end(index, a.code)
	write(w, a)
}

func (s *Server) flood(w http.ResponseWriter, index, seconds int) {
	s.mu.Lock()
	now, call := time.Now(), s.calls[index]
	s.windows[call.Chat()] = window{method: call.Method, from: now.Add(inFlight), until: now.Add(time.Duration(seconds) * time.Second)}
	s.mu.Unlock()
	s.end(index, http.StatusTooManyRequests)
	a := refuse(http.StatusTooManyRequests, "Too Many Requests: retry after "+strconv.Itoa(seconds))
	a.parameters = map[string]any{"retry_after": seconds}
	write(w, a)
}

func (s *Server) raw(w http.ResponseWriter, index, status int, kind, body string) {
	s.end(index, status)
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if _, err := fmt.Fprint(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) huge(w http.ResponseWriter, index, size int) {
	s.end(index, http.StatusOK)
	w.WriteHeader(http.StatusOK)
	block := strings.Repeat(" ", 64<<10)
	for sent := 0; sent < size; sent += len(block) {
		if _, err := fmt.Fprint(w, block); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// Marker is in the secret half of the token of every bot of the tests, and nowhere else.
const Marker = "-Token-canary-"

// Leak searches for [Marker] in everything that the tests of a package write, log and print, until
// the last of them has ended. The zero value works; it is safe for concurrent use. It does not see
// the runtime's output about an unrecovered panic: the process has ended by then.
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

// Streams redirects the standard output and error of this process through the search; restore ends
// that and waits until everything was read.
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
