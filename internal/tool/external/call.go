package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sony/gobreaker/v2"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/tool"
)

// whyMissing is why a listed tool is left out that the server does not have.
const whyMissing = "the server has no tool of this name"

// modelNames returns the names under which models have the tools, by the server's names. They depend on the configuration alone, so that they stay over
// restarts: a name that another tool has gets a hash of the server's name.
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
	schema, err := json.Marshal(one.InputSchema)
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

// usable reports whether models and the gateway's own MCP server accept a schema; the server panics on others.
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

// ask sends one call. In a session that the server has forgotten it was not made, if the server answers as the protocol demands (404); then, and if it may
// be repeated, it is made once more in a new session.
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

// send sends one call in a session. errForgotten means that the server has forgotten the session, or that the connection ended before the call; then made
// reports whether the call may have been made.
func (s *server) send(ctx context.Context, session *mcp.ClientSession, name string, args map[string]any) (result *mcp.CallToolResult, made bool, err error) {
	var this attempt
	result, err = session.CallTool(context.WithValue(ctx, attemptKey{}, &this), &mcp.CallToolParams{Name: name, Arguments: args})
	switch reason := refusal(err); {
	case err == nil, ctx.Err() != nil:
		return result, true, err //nolint:wrapcheck // ask explains it
	case s.cfg.URL != "" && (this.forgotten.Load() || !this.sent.Load() || reason != nil && forgets.MatchString(reason.Message)):
		s.useless(session, errForgotten)
		return nil, this.sent.Load() && !this.forgotten.Load(), fmt.Errorf("%w: %w", errForgotten, err)
	case reason == nil:
		s.useless(session, errEnded)
	}
	return nil, true, err //nolint:wrapcheck // ask explains it
}

// forgets matches the sentences of servers that answer the request of a session that they do not know in another form than 404.
var forgets = regexp.MustCompile(`(?i)\b(session|server)\b.{0,40}\b(not (be )?found|not initiali[sz]ed|expired|unknown|invalid|terminated|does(n't| not) exist|no longer (exists|valid))\b|` +
	`\b(no|unknown|invalid|expired|no valid|missing) session\b|before initiali[sz]ation was complete`)

// codeTransport is the code of the SDK for a request that did not reach the server; the SDK does not export it.
const codeTransport = -32005

// refusal returns the error with which the server itself has answered; nil if err is another error.
func refusal(err error) *jsonrpc.Error {
	answer, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || answer.Code == codeTransport {
		return nil
	}
	return answer
}

// sentence returns an error for logs and states, of bounded length and without the address, which may contain a key.
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
