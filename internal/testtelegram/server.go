// Package testtelegram is a strict Bot API server for tests: it behaves like Telegram where
// Telegram is strict, fails where a test requests a fault, and records every call.
//
// # What it is for
//
// A channel that talks to it uses the real protocol: form bodies, one answer envelope, long polling
// with offsets, updates that are deleted only when a higher offset confirms them, one poller at a
// time, files, webhooks. It refuses what Telegram would refuse, with the same status and
// description: text over 4096 UTF-16 units after parsing, entities that do not parse, edits that
// change nothing, unknown threads, blocked chats, groups that became supergroups.
//
// # Being stricter than Telegram
//
// Telegram accepts some calls that no correct client makes: unknown methods and parameters, tags
// nested against the rules, a call within a retry_after window. The server records them as
// [Server.Violations]; a test fails on any.
//
// # Faults
//
// [Server.Break] queues faults for a method: refusals, 429 with a window, HTML from a proxy,
// garbage, cut and endless bodies, hanging, reset connections, and a failure after the call was
// executed. A fault is used once.
//
// # Time
//
// [Server.Transport] calls the server in the caller's goroutine without sockets, so that everything
// works in a synctest bubble. The same server is an [http.Handler] for tests with real sockets.
//
//	srv := testtelegram.New(testtelegram.Config{})
//	srv.AddPrivate(7, "Anna")
//	srv.Say(7, 7, "hello")
//	// make the channel with srv.Transport() and srv.Token(), run it, then
//	srv.Messages(7) // the answers of the bot
//
// It starts no goroutine and has no Close.
package testtelegram

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config of a [Server]. The zero value works.
type Config struct {
	// Token of the bot; "" means one in the right form.
	Token string
	// Username of the bot without @; "" means lane_bot.
	Username string
	// Drafts enables sendMessageDraft. Otherwise the method is not found, as on an older server.
	Drafts bool
	// Hurry bounds how long getUpdates waits, whatever timeout is requested; 0 means that the
	// timeout applies.
	Hurry time.Duration
	// Forgetful means that an offset confirms nothing, so the same updates are always returned.
	Forgetful bool
}

// defaultToken has the form of a real token.
const defaultToken = "123456789:TEST-Token-canary-0123456789abcdefghi"

// Server is one bot's view of Telegram. It is safe for concurrent use.
type Server struct {
	*state
	chatBook
	faultBook

	cfg Config
	bot int64

	files      map[string][]byte
	local      map[string]string // paths of files, by id
	updates    []update          // not yet confirmed, in order of arrival
	nextUpdate int
	confirmed  []int
	poll       *poll // the getUpdates that waits
	calls      []Call
	windows    map[int64]window // by chat; 0 means every chat
	violations []string
	commands   string // JSON as it was set
	webhook    webhook
}

type update struct {
	id  int
	raw json.RawMessage
}

type poll struct{ terminated chan struct{} }

// Call is one request as the server saw it.
type Call struct {
	Method string
	Params url.Values
	// File is what the call uploaded; nil if nothing.
	File *File
	At   time.Time
	// Code is the status of the answer, 0 without one (hanging, reset).
	Code int
}

// Chat returns the chat_id of the call, 0 without one.
func (c Call) Chat() int64 {
	id, err := strconv.ParseInt(c.Params.Get("chat_id"), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// New makes a server without chats.
func New(cfg Config) *Server {
	if cfg.Token == "" {
		cfg.Token = defaultToken
	}
	if cfg.Username == "" {
		cfg.Username = "lane_bot"
	}
	id, _, _ := strings.Cut(cfg.Token, ":")
	bot, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		panic("testtelegram: a token begins with the bot's id")
	}
	st := &state{changed: make(chan struct{})}
	return &Server{
		state: st, chatBook: chatBook{st, map[int64]*chatState{}}, faultBook: faultBook{st, map[string][]Fault{}}, cfg: cfg, bot: bot, files: map[string][]byte{}, local: map[string]string{}, nextUpdate: 1000,
		windows: map[int64]window{},
	}
}

// Token returns the bot's token.
func (s *Server) Token() string { return s.cfg.Token }

// BotID returns the number before the colon of the token.
func (s *Server) BotID() int64 { return s.bot }

// Username returns the bot's name without @.
func (s *Server) Username() string { return s.cfg.Username }

// state is the lock of a server, and the signal of its changes.
type state struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
}

// touch wakes the callers that wait in Await. The mutex is held.
func (s *state) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Await blocks until ok is true or ctx is done. ok is called again after every change; it may call
// the server.
func (s *state) Await(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("awaiting a change at the fake server: %w", context.Cause(ctx))
		}
	}
}

// Calls lists the calls of a method in order of arrival; "" means all.
func (s *Server) Calls(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if method == "" || c.Method == method {
			out = append(out, c)
		}
	}
	return out
}

// Violations returns the calls that Telegram accepts and a correct client does not make.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

// violate records a violation. The mutex is held.
func (s *Server) violate(format string, args ...any) {
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// answer is the result of a method.
type answer struct {
	code        int
	description string
	parameters  map[string]any
	result      any
}

func ok(result any) answer { return answer{code: http.StatusOK, result: result} }

func refuse(code int, description string) answer { return answer{code: code, description: description} }

func badRequest(description string) answer {
	return refuse(http.StatusBadRequest, "Bad Request: "+description)
}

// ServeHTTP serves the Bot API: /bot<token>/<method> and /file/bot<token>/<path>.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	file, isFile := strings.CutPrefix(path, "file/")
	if isFile {
		path = file
	}
	token, method, found := strings.Cut(strings.TrimPrefix(path, "bot"), "/")
	if !found || !strings.HasPrefix(path, "bot") {
		write(w, refuse(http.StatusNotFound, "Not Found"))
		return
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.cfg.Token)) != 1 {
		write(w, refuse(http.StatusUnauthorized, "Unauthorized"))
		return
	}
	if isFile {
		s.serveFile(w, r, method)
		return
	}
	s.serveMethod(w, r, method)
}

func (s *Server) serveMethod(w http.ResponseWriter, r *http.Request, method string) {
	form, file, err := readForm(r, method)
	if err != nil {
		write(w, badRequest("the form cannot be read"))
		return
	}
	index, fault, broken := s.arrive(method, form, file)
	if broken && !fault.After {
		s.fail(w, r, index, fault)
		return
	}
	a := s.perform(r.Context(), method, form, file)
	if broken {
		s.fail(w, r, index, fault)
		return
	}
	if r.Context().Err() != nil {
		return
	}
	s.end(index, a.code)
	write(w, a)
}

// arrive records a call and takes the fault that is queued for it.
func (s *Server) arrive(method string, form url.Values, file *File) (index int, f Fault, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := Call{Method: method, Params: form, File: file, At: time.Now()}
	s.calls = append(s.calls, call)
	s.checkWindow(call)
	f, broken = s.takeFault(method)
	s.touch()
	return len(s.calls) - 1, f, broken
}

// window is the time in which a refused chat accepts no calls.
type window struct {
	method      string    // of the call that was refused
	from, until time.Time // from is when calls of other methods are refused too
}

// inFlight is the largest age of a refusal for which a call of another method may have been sent
// before its caller received the refusal.
const inFlight = 100 * time.Millisecond

// checkWindow records a call inside the retry_after window of its chat as a violation. A call of
// another method just after the refusal was sent concurrently with the refused one. The mutex is
// held.
func (s *Server) checkWindow(c Call) {
	for _, chat := range []int64{0, c.Chat()} {
		w := s.windows[chat]
		if c.At.Before(w.until) && (c.At.After(w.from) || c.Method == w.method) {
			s.violate("%s for chat %d came %s before its retry_after had passed", c.Method, chat, w.until.Sub(c.At))
		}
	}
}

func (s *Server) end(index, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[index].Code = code
	s.touch()
}

func write(w http.ResponseWriter, a answer) {
	body := map[string]any{"ok": a.code == http.StatusOK}
	if a.code == http.StatusOK {
		body["result"] = a.result
	} else {
		body["error_code"], body["description"] = a.code, a.description
	}
	if a.parameters != nil {
		body["parameters"] = a.parameters
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// Transport calls the server in the goroutine of the caller. A connection that the server resets is
// an error, a body that it cuts ends unexpectedly, and a caller whose context is done receives its
// error.
func (s *Server) Transport() http.RoundTripper { return direct{s} }

type direct struct{ h http.Handler }

// RoundTrip implements [http.RoundTripper].
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer func() { _ = r.Body.Close() }()
	rec := &recorder{header: http.Header{}}
	aborted := serve(d.h, rec, r)
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	if aborted && rec.status == 0 {
		return nil, syscall.ECONNRESET
	}
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	var body io.Reader = &rec.body
	if aborted {
		body = io.MultiReader(&rec.body, cut{})
	}
	return &http.Response{
		Status: http.StatusText(rec.status), StatusCode: rec.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(body), ContentLength: -1, Request: r,
	}, nil
}

// serve reports whether the handler closed the connection in the middle.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if p := recover(); p != nil {
			err, isErr := p.(error)
			if !isErr || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			aborted = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// cut is the end of a body that was cut off.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
