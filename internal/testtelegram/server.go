package testtelegram

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	// Hurry bounds how long getUpdates waits, whatever timeout is requested; 0 means that the timeout applies.
	Hurry time.Duration
	// Forgetful means that an offset confirms nothing, so the same updates are always returned.
	Forgetful bool
}

// defaultToken has the form of a real token.
const defaultToken = "123456789:TEST-Token-canary-0123456789abcdefghi"

// Server is one bot's view of Telegram. It is safe for concurrent use.
type Server struct {
	cfg Config
	bot int64

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at every change
	chats      map[int64]*chatState
	files      map[string][]byte
	local      map[string]string // paths of files, by id
	updates    []update          // not yet confirmed, in order of arrival
	nextUpdate int
	confirmed  []int
	poll       *poll // the getUpdates that waits
	calls      []Call
	faults     map[string][]Fault
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
	return &Server{
		cfg: cfg, bot: bot, changed: make(chan struct{}), chats: map[int64]*chatState{}, files: map[string][]byte{}, local: map[string]string{}, nextUpdate: 1000,
		faults: map[string][]Fault{}, windows: map[int64]window{},
	}
}

// Token returns the bot's token.
func (s *Server) Token() string { return s.cfg.Token }

// BotID returns the number before the colon of the token.
func (s *Server) BotID() int64 { return s.bot }

// Username returns the bot's name without @.
func (s *Server) Username() string { return s.cfg.Username }

// touch wakes the callers that wait in Await. The mutex is held.
func (s *Server) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Await blocks until ok is true or ctx is done. ok is called again after every change; it may call the server.
func (s *Server) Await(ctx context.Context, ok func() bool) error {
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

// inFlight is the largest age of a refusal for which a call of another method may have been sent before its caller received the refusal.
const inFlight = 100 * time.Millisecond

// checkWindow records a call inside the retry_after window of its chat as a violation. A call of another method just after the refusal was sent
// concurrently with the refused one. The mutex is held.
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
