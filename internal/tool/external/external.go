// Package external provides the tools of other MCP servers to the agents that name them.
//
// # Servers
//
// A server is a program that speaks over standard input and output, or an address (Streamable
// HTTP). [Set.Run] keeps a connection to each: it connects, reads the tools, reads them again when
// the server announces a change, and reconnects when the connection ends, with growing pauses.
// Programs are started by package process alone.
//
// Only the tools that the operator lists are offered, under the name of the server (`files_read`).
// A tool that the operator has not marked as read-only acts: the rules of package tool apply to it,
// and it is not repeated after a crash. Every result is external text.
//
// # Bounds
//
// The server is not trusted. A message has at most [maxMessage] bytes and a result [maxResult]; a
// longer message ends the connection, a longer result becomes one sentence. Nothing beyond the
// limit is read. A call has [Config.CallTime]. A server has at most [maxTools] tools in [maxPages]
// pages, each of them with a description and a schema within bounds, read at most every
// [relistAfter]. The output of a program is read at a bounded rate, its log messages are removed
// before they are decoded, and a program that does not read its input is ended. The gateway
// declares no client capability, so the SDK refuses requests of a server (roots, sampling,
// elicitation).
//
// Five failures of the connection in a row open the circuit breaker of the server: its calls are
// refused at once for [breakerPause]. A tool that reports an error does not count.
//
// # Failures and the end
//
// Every failure is a result with one sentence, and the turn continues. Run has one goroutine for
// each server and waits for all of them; programs have ended when it returns. The package stores
// nothing beyond the end of the process.
package external

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sony/gobreaker/v2"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/process"
	"laneway/internal/secret"
	"laneway/internal/tool"
)

// The bounds of a server.
const (
	// maxMessage is the longest message, maxResult the longest text of a result, in bytes.
	maxMessage = 4 << 20
	maxResult  = 64 << 10
	// maxTools and maxPages bound the list of tools; maxDescription and maxSchema bound each of
	// them, in bytes.
	maxTools       = 64
	maxPages       = 16
	maxDescription = 2 << 10
	maxSchema      = 16 << 10
	// startTime bounds the first exchange and the reading of the tools.
	startTime = 30 * time.Second
	// methodDiscover is the first request of the SDK; discoverTime is how long a server has to
	// answer it.
	methodDiscover = "server/discover"
	discoverTime   = 3 * time.Second
	// firstTime is how long turns wait for the first attempt to connect to a server.
	firstTime = 10 * time.Second
	// leastPing is the shortest time in which a server has to answer a ping when it has not
	// answered a call.
	leastPing = 5 * time.Second
	// DefaultCallTime is how long one call may take.
	DefaultCallTime = 30 * time.Second
	// breakerPause is how long a server that has failed [breakerFailures] times in a row receives
	// no calls.
	breakerPause    = 30 * time.Second
	breakerFailures = 5
	// relistAfter is the shortest time between two readings of the tools, relistEvery the longest
	// one for an address.
	relistAfter = 5 * time.Second
	relistEvery = time.Minute
	// MaxCallTime is the longest [Config.CallTime]: the loops that make calls allow each of them a
	// minute.
	MaxCallTime = 55 * time.Second
)

// Config of one server.
type Config struct {
	// Name is the prefix of the names of its tools.
	Name string
	// Command and its arguments, with further variables and the working directory; or URL with a
	// bearer token, which may be unset.
	Command []string
	Env     map[string]string
	Dir     string
	URL     string
	Token   secret.Secret
	// Tools are the offered tools, by the server's names.
	Tools []string
	// ReadOnly are the offered tools that neither create nor send.
	ReadOnly []string
	// CallTime bounds one call, at most [MaxCallTime]; 0 means [DefaultCallTime].
	CallTime time.Duration
	// Relist is how often the tools of an address are read; 0 means every minute.
	Relist time.Duration
	// Reaper ends processes that leave the group of the program; nil means that they outlive the
	// connection.
	Reaper *process.Reaper
}

// States of a server.
const (
	StateConnecting = "connecting"
	StateConnected  = "connected"
	// StateSuspended is connected, and receives no calls for a while because it has failed several
	// times.
	StateSuspended = "suspended"
	// StateFailed is not connected; the connection is retried.
	StateFailed = "failed"
)

// Set has the configured servers. It is safe for concurrent use.
type Set struct{ servers []*server }

var _ tool.External = (*Set)(nil)

// New makes a set that is not connected. lookup returns the variables of the gateway, of which
// programs receive PATH, HOME, LANG and TZ; transport is for addresses, nil means a default one. A
// nil log discards.
func New(configs []Config, lookup func(string) (string, bool), transport http.RoundTripper, log *slog.Logger) *Set {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if transport == nil {
		transport = http.DefaultTransport
	}
	s := &Set{}
	for _, cfg := range configs {
		cfg.CallTime = min(cmp.Or(cfg.CallTime, DefaultCallTime), MaxCallTime)
		s.servers = append(s.servers, newServer(cfg, opener{lookup: lookup, transport: transport}, log.With("server", cfg.Name)))
	}
	return s
}

// Run keeps the connections until ctx is done; programs have ended when it returns.
func (s *Set) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range s.servers {
		all.Go(func() { one.run(ctx) })
	}
	all.Wait()
}

// Tools implements [tool.External].
func (s *Set) Tools(names []string) []tool.Tool {
	var all []tool.Tool
	for _, one := range s.servers {
		if slices.Contains(names, one.cfg.Name) {
			all = append(all, one.offered()...)
		}
	}
	return all
}

// ServerOf implements [tool.External].
func (s *Set) ServerOf(name string) string {
	for _, one := range s.servers {
		if strings.HasPrefix(name, one.cfg.Name+"_") {
			return one.cfg.Name
		}
	}
	return ""
}

// Await implements [tool.External].
func (s *Set) Await(ctx context.Context, names []string) {
	for _, one := range s.servers {
		if !slices.Contains(names, one.cfg.Name) {
			continue
		}
		select {
		case <-one.tried:
		case <-ctx.Done():
			return
		}
	}
}

// Status lists the servers in the order of the configuration.
func (s *Set) Status() []chat.ToolServer {
	list := make([]chat.ToolServer, 0, len(s.servers))
	for _, one := range s.servers {
		list = append(list, one.status())
	}
	return list
}

// whyMissing is why a listed tool is left out that the server does not have.
const whyMissing = "the server has no tool of this name"

// modelNames returns the names under which models have the tools, by the server's names. They
// depend on the configuration alone, so that they stay over restarts: a name that another tool has
// gets a hash of the server's name.
func modelNames(cfg Config) map[string]string {
	count := map[string]int{}
	for _, own := range cfg.Tools {
		count[agent.ModelName(cfg.Name+"_"+own)]++
	}
	names := make(map[string]string, len(cfg.Tools))
	for _, own := range cfg.Tools {
		full := cfg.Name + "_" + own
		name := agent.ModelName(full)
		if name != full && count[name] > 1 {
			name = agent.HashedName(full)
		}
		names[own] = name
	}
	return names
}

// row returns a tool of the server as a row of the table, or why it is left out.
func (s *server) row(one *mcp.Tool) (row tool.Tool, why string) {
	schema, err := json.Marshal(completed(one.InputSchema))
	switch {
	case err != nil || len(schema) <= maxSchema && !usable(schema):
		return row, "models cannot use its schema"
	case len(schema) > maxSchema:
		return row, fmt.Sprintf("its schema has %d bytes; the limit is %d", len(schema), maxSchema)
	}
	readOnly := slices.Contains(s.cfg.ReadOnly, one.Name) // what the server itself states (readOnlyHint) does not count: it is not trusted
	row = tool.Tool{
		Name: s.names[one.Name], Description: chat.Cut(chat.CleanText(one.Description), maxDescription), Schema: string(schema),
		Scope: chat.ScopeWrite, Idempotent: readOnly, ReadOnly: readOnly, Askable: true, Foreign: func([]byte) bool { return true },
		Run: func(ctx context.Context, _ tool.Turn, _ string, args []byte) (string, error) {
			return s.call(ctx, one.Name, args, readOnly)
		},
	}
	if !readOnly {
		row.Acts = func([]byte) bool { return true }
	}
	return row, ""
}

// completed returns a schema with the members that models and their endpoints demand: a server
// whose tool has no arguments often leaves them out.
func completed(schema any) any {
	members, ok := schema.(map[string]any)
	if schema != nil && !ok || len(members) > 0 && (members["type"] != "object" || members["properties"] != nil) {
		return schema
	}
	full := map[string]any{"type": "object", "properties": map[string]any{}}
	for name, value := range members {
		if value != nil {
			full[name] = value
		}
	}
	return full
}

// usable reports whether models and the gateway's own MCP server accept a schema; the server panics
// on others.
func usable(raw []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	var schema jsonschema.Schema
	if json.Unmarshal(raw, &schema) != nil || schema.Type != "object" {
		return false
	}
	mcp.NewServer(&mcp.Implementation{Name: "laneway"}, nil).AddTool(&mcp.Tool{Name: "tool", InputSchema: json.RawMessage(raw)}, nil)
	return true
}

// call makes one call; mayRepeat: it may be made twice. Its result and its error are for the model.
func (s *server) call(ctx context.Context, name string, args []byte, mayRepeat bool) (string, error) {
	var members map[string]any
	if json.Unmarshal(args, &members) != nil {
		return "", chat.Errorf(chat.CodeInvalid, "the arguments are not a JSON object")
	}
	result, err := s.breaker.Execute(func() (*mcp.CallToolResult, error) { return s.ask(ctx, name, members, mayRepeat) })
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s has failed several times and receives no calls for a while; continue without it", s.cfg.Name)
	case errors.Is(err, errNotConnected):
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s is not connected; continue without it or try again later", s.cfg.Name)
	case errors.Is(err, context.Canceled):
		return "", chat.Errorf(chat.CodeRunFailed, "the call of the server %s was stopped; it may or may not have been made", s.cfg.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s did not answer within %s; the call may or may not have been made", s.cfg.Name, s.cfg.CallTime)
	case errors.Is(err, errForgotten):
		words := "no reason given"
		if reason := refusal(err); reason != nil {
			words = chat.Cut(chat.Printable(reason.Message), 500)
		}
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s has ended the session (%s); the call may or may not have been made; the next call is in a new session", s.cfg.Name, words)
	case err != nil:
		s.log.WarnContext(ctx, "a call of a server of tools failed", "tool", name, "err", sentence(err))
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s failed on this call; the call may or may not have been made", s.cfg.Name)
	}
	text := textOf(result)
	switch {
	case len(text) > maxResult:
		return "", chat.Errorf(chat.CodeLimit, "the result has %d bytes; the limit is %d; ask for less", len(text), maxResult)
	case result.IsError:
		return "", chat.Errorf(chat.CodeInvalid, "%s", text)
	}
	return text, nil
}

// ask sends one call. In a session that the server has forgotten it was not made, if the server
// answers as the protocol demands (404); then, and if it may be repeated, it is made once more in a
// new session.
func (s *server) ask(ctx context.Context, name string, args map[string]any, mayRepeat bool) (*mcp.CallToolResult, error) {
	session := s.current()
	if session == nil {
		return nil, errNotConnected
	}
	bound, cancel := context.WithTimeout(ctx, s.cfg.CallTime)
	defer cancel()
	result, made, err := s.send(bound, session, name, args)
	if errors.Is(err, errForgotten) && (!made || mayRepeat) {
		if session = s.after(bound, session); session == nil && bound.Err() == nil {
			return nil, errNotConnected
		} else if session != nil {
			result, made, err = s.send(bound, session, name, args)
		}
	}
	if err == nil && s.cfg.URL != "" && deniesIn(result) {
		return s.again(bound, session, name, args, result, mayRepeat), nil
	}
	switch reason := refusal(err); {
	case err == nil:
		return result, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, context.Canceled // the turn has ended: not a failure of the server
	case bound.Err() != nil:
		if session != nil {
			offer(s.silent, session)
		}
		return nil, context.DeadlineExceeded
	case errors.Is(err, errForgotten) && !made:
		return nil, errNotConnected
	case reason != nil && !errors.Is(err, errForgotten):
		text := "the server " + s.cfg.Name + " refuses the call: " + chat.Cut(chat.Printable(reason.Message), 500)
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	default:
		return nil, err
	}
}

// deniesIn reports whether the failure of a tool says that the session of the protocol does not
// exist. It may mean another session that the tool knows.
func deniesIn(result *mcp.CallToolResult) bool {
	text := textOf(result)
	return result.IsError && len(text) <= 300 && forgets.MatchString(text)
}

// again begins a new session after such a failure, and makes a call in it that may be repeated. The
// failure itself is the result when that does not help.
func (s *server) again(ctx context.Context, session *mcp.ClientSession, name string, args map[string]any, failed *mcp.CallToolResult, mayRepeat bool) *mcp.CallToolResult {
	s.useless(session, errForgotten)
	if !mayRepeat {
		return failed
	}
	if session = s.after(ctx, session); session != nil {
		if result, _, err := s.send(ctx, session, name, args); err == nil {
			return result
		}
	}
	return failed
}

// send sends one call in a session. errForgotten means that the server has forgotten the session,
// or that the connection ended before the call; then made reports whether the call may have been
// made.
func (s *server) send(ctx context.Context, session *mcp.ClientSession, name string, args map[string]any) (result *mcp.CallToolResult, made bool, err error) {
	var this attempt
	result, err = session.CallTool(context.WithValue(ctx, attemptKey{}, &this), &mcp.CallToolParams{Name: name, Arguments: args})
	switch reason := refusal(err); {
	case err == nil, ctx.Err() != nil:
		return result, true, err // ask explains it
	case s.cfg.URL != "" && (this.forgotten.Load() || this.doubted.Load() || !this.sent.Load() || reason != nil && forgets.MatchString(reason.Message)):
		s.useless(session, errForgotten)
		return nil, this.sent.Load() && !this.forgotten.Load(), fmt.Errorf("%w: %w", errForgotten, err)
	case reason == nil:
		s.useless(session, errEnded)
	}
	return nil, true, err // ask explains it
}

// forgets matches the sentences of servers that answer the request of a session that they do not
// know in another form than 404.
var forgets = regexp.MustCompile(`(?i)\b(session|server)\b.{0,40}\b(not (be )?found|not initiali[sz]ed|expired|unknown|invalid|terminated|closed|missing|(not|no longer) active|does(n't| not) exist|no longer (exists|valid))\b|` +
	`\b(no|unknown|invalid|expired|no valid|missing) session\b|before initiali[sz]ation was complete|only be created by an initiali[sz]e|must be initiali[sz]ed`)

// codeTransport is the code of the SDK for a request that did not reach the server; the SDK does
// not export it.
const codeTransport = -32005

// refusal returns the error with which the server itself has answered; nil if err is another error.
func refusal(err error) *jsonrpc.Error {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || answer.Code == codeTransport {
		return nil
	}
	return answer
}

// sentence returns an error for logs and states, of bounded length and without the address, which
// may contain a key.
func sentence(err error) string { return chat.Cut(chat.Printable(secret.WithoutURL(err).Error()), 200) }

// textOf returns a result as text; other content is named.
func textOf(result *mcp.CallToolResult) string {
	var parts []string
	for _, content := range result.Content {
		switch c := content.(type) {
		case *mcp.TextContent:
			parts = append(parts, c.Text)
		case *mcp.ImageContent:
			parts = append(parts, "[an image of the type "+chat.Printable(chat.Cut(c.MIMEType, 64))+"]")
		default:
			parts = append(parts, "[a part that is no text]")
		}
	}
	if len(parts) == 0 && result.StructuredContent != nil {
		if raw, err := json.Marshal(result.StructuredContent); err == nil {
			parts = append(parts, string(raw))
		}
	}
	return chat.CleanText(strings.Join(parts, "\n"))
}
