// Package testmodel is a model server for tests: it speaks the chat completions API of OpenAI and
// the Messages API of Anthropic, for foreign programs also the Responses API of OpenAI and that of
// Gemini, records its requests, and fails in every way in which real ones do.
//
// A [Server] calls one function, set with [Server.Answer], for the reply to each [Call]; a [Reply]
// is an answer in pieces, a fault, or both. Without a function it repeats the last message of the
// user. Everything is counted: calls, calls that are being answered, and the most that were
// answered at once per user (the field `user`, or metadata.user_id), so that a test can check that
// no session ever had two turns at a time.
//
// [Start] listens on loopback. [StartInMemory] does not listen: its connections are pipes, made by
// [Server.Transport], and may be used in a testing/synctest bubble, where a minute without data
// costs no time.
//
// A server ends with its test; handlers that hang are released then.
//
//	model := testmodel.Start(t)
//	model.Answer(func(call testmodel.Call) testmodel.Reply {
//		return testmodel.Reply{Pieces: []string{"Hel", "lo"}, Cut: true}
//	})
//	runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m"}, nil, nil)
package testmodel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Protocol is the API of a call.
type Protocol string

// The protocols.
const (
	OpenAI    Protocol = "openai"
	Anthropic Protocol = "anthropic"
	// Responses is OpenAI's other API, Gemini that of Google; of their calls only the model, the
	// tools and the body are parsed.
	Responses Protocol = "responses"
	Gemini    Protocol = "gemini"
)

// Message is one line of a conversation.
type Message struct {
	Role string
	// Content is the text of the message, or the joined text of its text blocks.
	Content string
	// Calls are the tool calls in it, Results the results of calls in it.
	Calls   []ToolCall
	Results []ToolResult
}

// ToolCall is a call by a model.
type ToolCall struct {
	// ID may be empty: some servers send none.
	ID, Name string
	// Args are sent unchanged, valid or not.
	Args string
}

// ToolResult is the result of a call in a request to the model.
type ToolResult struct {
	ID, Text string
	IsError  bool // Anthropic only
}

// Call is one request as it arrived.
type Call struct {
	// Number counts from 1 in the order of arrival.
	Number   int
	Protocol Protocol
	Model    string
	// User is the field `user`, or metadata.user_id; "" if none was sent.
	User string
	// Messages without the system prompt, which is in System, and without the note about the
	// person's clock, which is in Clock.
	Messages []Message
	System   string
	Clock    string
	// Tools are the names of the offered tools; ToolChoice is how they may be used, "" if the model
	// may choose.
	Tools      []string
	ToolChoice string
	Stream     bool
	Header     http.Header
	// Body is the whole request.
	Body []byte
}

// Last returns the text of the last message.
func (c Call) Last() string {
	if len(c.Messages) == 0 {
		return ""
	}
	return c.Messages[len(c.Messages)-1].Content
}

// Results returns all results of calls in the conversation, oldest first.
func (c Call) Results() []ToolResult {
	var all []ToolResult
	for _, message := range c.Messages {
		all = append(all, message.Results...)
	}
	return all
}

// Field returns a member of the body, nil if it does not exist.
func (c Call) Field(name string) any {
	var body map[string]any
	if json.Unmarshal(c.Body, &body) != nil {
		return nil
	}
	return body[name]
}

// Server is a model server. It is safe for concurrent use.
type Server struct {
	url       string
	transport http.RoundTripper
	ending    chan struct{}

	mu      sync.Mutex
	answer  func(Call) Reply
	calls   []Call
	active  map[string]int
	most    map[string]int
	total   int
	highest int
	conns   int
	changed chan struct{} // closed and replaced with each change
}

// Start listens on a free port of loopback and ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listening for the model server: %v", err)
	}
	s := newServer("http://" + listener.Addr().String())
	s.serve(tb, listener)
	return s
}

// StartInMemory serves connections that are pipes, made only by [Server.Transport]. It ends with
// the test, or earlier with the function that it returns, which a test in a synctest bubble has to
// call.
func StartInMemory(tb testing.TB) (*Server, func()) {
	tb.Helper()
	pipes := newPipes()
	s := newServer("http://model.test")
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return pipes.dial(ctx) },
		DisableCompression: true,
	}
	s.transport = transport
	end := s.serve(tb, pipes)
	return s, func() {
		transport.CloseIdleConnections()
		end()
	}
}

func newServer(url string) *Server {
	return &Server{
		url: url, ending: make(chan struct{}), changed: make(chan struct{}),
		active: map[string]int{}, most: map[string]int{},
	}
}

func (s *Server) serve(tb testing.TB, listener net.Listener) func() {
	tb.Helper()
	server := &http.Server{Handler: http.HandlerFunc(s.handle), ReadHeaderTimeout: time.Minute, ConnState: s.count}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	end := sync.OnceFunc(func() {
		close(s.ending)
		if err := server.Close(); err != nil {
			tb.Errorf("closing the model server: %v", err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			tb.Errorf("the model server ended: %v", err)
		}
	})
	tb.Cleanup(end)
	return end
}

// URL returns the address without a path: add /v1 for OpenAI clients.
func (s *Server) URL() string { return s.url }

// Transport returns a transport to the server; nil for a server on loopback, which any client
// reaches.
func (s *Server) Transport() http.RoundTripper { return s.transport }

// Answer sets the function for all later replies. The function may be called from many goroutines
// at once; it may block. A reply that depends on earlier calls asks [Server.Count], which has
// counted its own call.
func (s *Server) Answer(answer func(Call) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Calls returns all requests so far, oldest first.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many requests so far match.
func (s *Server) Count(matches func(Call) bool) int {
	n := 0
	for _, call := range s.Calls() {
		if matches(call) {
			n++
		}
	}
	return n
}

// Active returns how many requests are being answered.
func (s *Server) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Most returns the largest number of requests of this user that were answered at once.
func (s *Server) Most(user string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most[user]
}

// Connections returns how many connections were made so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *Server) count(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns++
	}
}

// WaitFor blocks until calls have arrived and active are being answered, or the context is done.
// active < 0 means any number.
func (s *Server) WaitFor(ctx context.Context, calls, active int) error {
	for {
		s.mu.Lock()
		reached := len(s.calls) >= calls && (active < 0 || s.total == active)
		changed := s.changed
		s.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
	if err != nil {
		return
	}
	call := Call{Header: r.Header.Clone(), Body: body}
	switch r.URL.Path {
	case "/v1/chat/completions", "/chat/completions":
		call.Protocol = OpenAI
	case "/v1/messages":
		call.Protocol = Anthropic
	case "/v1/responses":
		call.Protocol = Responses
	default:
		if !strings.HasSuffix(r.URL.Path, ":streamGenerateContent") && !strings.HasSuffix(r.URL.Path, ":generateContent") {
			http.NotFound(w, r)
			return
		}
		call.Protocol = Gemini
	}
	call, err = parse(call)
	if call.Protocol == Gemini {
		call.Stream = strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
	}
	if err != nil {
		http.Error(w, `{"error":{"message":"the body is not JSON","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	reply := s.begin(&call)
	defer s.end(call.User)
	play(w, r, script{call: call, reply: reply(call), ending: s.ending})
}

// begin counts a call and returns the function that chooses the reply.
func (s *Server) begin(call *Call) func(Call) Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	call.Number = len(s.calls) + 1
	s.calls = append(s.calls, *call)
	s.total++
	s.highest = max(s.highest, s.total)
	s.active[call.User]++
	s.most[call.User] = max(s.most[call.User], s.active[call.User])
	s.notifyWaiters()
	if s.answer == nil {
		return func(call Call) Reply { return Reply{Pieces: []string{call.Last()}} }
	}
	return s.answer
}

func (s *Server) end(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.active[user]--
	s.notifyWaiters()
}

// notifyWaiters wakes every goroutine that waits for a change. The caller holds the mutex.
func (s *Server) notifyWaiters() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// pipes is a listener whose connections are pipes.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newPipes() *pipes {
	return &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.waiting <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.waiting:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "model", Net: "pipe"} }

// parse fills in the members of the body.
func parse(c Call) (Call, error) {
	var body struct {
		Model    string        `json:"model"`
		User     string        `json:"user"`
		System   blockText     `json:"system"`
		Stream   bool          `json:"stream"`
		Messages []wireMessage `json:"messages"`
		Metadata struct {
			UserID string `json:"user_id"` // a foreign wire
		} `json:"metadata"`
		Tools []struct {
			Name      string     `json:"name"`
			Tools     []wireFunc `json:"tools"`
			Function  wireFunc   `json:"function"`
			Functions []wireFunc `json:"functionDeclarations"`
		} `json:"tools"`
		ToolChoice any `json:"tool_choice"` // a foreign wire
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return c, err
	}
	c.Model, c.User, c.System, c.Stream = body.Model, body.User+body.Metadata.UserID, string(body.System), body.Stream
	for _, tool := range body.Tools {
		if len(tool.Tools) > 0 { // a namespace of the Responses API
			for _, function := range tool.Tools {
				c.Tools = append(c.Tools, tool.Name+namespaceEnd+function.Name)
			}
			continue
		}
		if name := cmp.Or(tool.Name, tool.Function.Name); name != "" {
			c.Tools = append(c.Tools, name)
		}
	}
	switch choice := body.ToolChoice.(type) {
	case string:
		c.ToolChoice = choice
	case map[string]any:
		c.ToolChoice, _ = choice["type"].(string) // "" if absent
	}
	for _, tool := range body.Tools { // of Gemini
		for _, function := range tool.Functions {
			c.Tools = append(c.Tools, function.Name)
		}
	}
	for _, wire := range body.Messages {
		message, err := wire.message()
		if err != nil {
			return c, err
		}
		if message.Role == "system" {
			c.System = message.Content
			continue
		}
		if note := clockNote.FindStringSubmatch(message.Content); note != nil && message.Role == "user" {
			c.Clock, message.Content = note[1], strings.Replace(message.Content, note[0], "", 1)
		}
		c.Messages = append(c.Messages, message)
	}
	return c, nil
}

// clockNote is the note about the person's clock, see agent.Request.Clock.
var clockNote = regexp.MustCompile(`(?m)^\[note\] For the person it is (.*)\.\n`)

// namespaceEnd is between a namespace of the Responses API and the name of a tool in it.
const namespaceEnd = "."

type wireFunc struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// wireMessage is a message of either protocol.
type wireMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"` // a foreign wire
	ToolCalls  []struct {
		ID       string   `json:"id"`
		Function wireFunc `json:"function"`
	} `json:"tool_calls"` // a foreign wire
}

type wireBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	UseID   string          `json:"tool_use_id"` // a foreign wire
	Content blockText       `json:"content"`
	IsError bool            `json:"is_error"` // a foreign wire
}

// blockText is a string, or the joined text of text blocks.
type blockText string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *blockText) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return err
	}
	for _, b := range blocks {
		*t += blockText(b.Text)
	}
	return nil
}

func (w wireMessage) message() (Message, error) {
	m := Message{Role: w.Role}
	for _, call := range w.ToolCalls {
		m.Calls = append(m.Calls, ToolCall{ID: call.ID, Name: call.Function.Name, Args: call.Function.Arguments})
	}
	if len(w.Content) > 0 && w.Content[0] == '"' {
		if err := json.Unmarshal(w.Content, &m.Content); err != nil {
			return m, err
		}
		if w.Role == "tool" {
			m.Results = append(m.Results, ToolResult{ID: w.ToolCallID, Text: m.Content})
		}
		return m, nil
	}
	var blocks []wireBlock
	if err := json.Unmarshal(w.Content, &blocks); err != nil {
		return m, err
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			m.Content += b.Text
		case "tool_use":
			m.Calls = append(m.Calls, ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		case "tool_result":
			m.Results = append(m.Results, ToolResult{ID: b.UseID, Text: string(b.Content), IsError: b.IsError})
		}
	}
	return m, nil
}
