package external

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sony/gobreaker/v2"

	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/tool"
)

// nameRule is the form of a tool name: with the name of its server in front it has to be valid for the endpoint of every model.
const nameRule = `^[A-Za-z0-9_-]{1,40}$`

// row returns a tool of the server as a row of the table; ok is false for a tool that is not offered.
func (s *server) row(ctx context.Context, one *mcp.Tool) (row tool.Tool, ok bool) {
	if !slices.Contains(s.cfg.Tools, one.Name) {
		return row, false
	}
	schema, err := json.Marshal(one.InputSchema)
	fits, _ := regexp.MatchString(nameRule, one.Name) //nolint:errcheck // the rule is a constant
	if err != nil || !fits || len(schema) > maxSchema || !usable(schema) {
		s.log.WarnContext(ctx, "a tool is not offered: its name or its schema cannot be used", "tool", chat.Cut(chat.Printable(one.Name), 64))
		return row, false
	}
	readOnly := slices.Contains(s.cfg.ReadOnly, one.Name) // what the server itself states (readOnlyHint) does not count: it is not trusted
	row = tool.Tool{
		Name: s.cfg.Name + "_" + one.Name, Description: chat.Cut(chat.CleanText(one.Description), maxDescription), Schema: string(schema),
		Scope: chat.ScopeWrite, Idempotent: readOnly, Askable: true, Foreign: func([]byte) bool { return true },
		Run: func(ctx context.Context, _ tool.Turn, _ string, args []byte) (string, error) {
			return s.call(ctx, one.Name, args)
		},
	}
	if !readOnly {
		row.Acts = func([]byte) bool { return true }
	}
	return row, true
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

// call makes one call. Its result and its error are for the model.
func (s *server) call(ctx context.Context, name string, args []byte) (string, error) {
	var members map[string]any
	if json.Unmarshal(args, &members) != nil {
		return "", chat.Errorf(chat.CodeInvalid, "the arguments are not a JSON object")
	}
	result, err := s.breaker.Execute(func() (*mcp.CallToolResult, error) { return s.ask(ctx, name, members) })
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s has failed several times and receives no calls for a while; continue without it", s.cfg.Name)
	case errors.Is(err, errNotConnected):
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s is not connected; continue without it or try again later", s.cfg.Name)
	case errors.Is(err, context.Canceled):
		return "", chat.Errorf(chat.CodeRunFailed, "the call of the server %s was stopped; it may or may not have been made", s.cfg.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return "", chat.Errorf(chat.CodeRunFailed, "the server %s did not answer within %s; the call may or may not have been made", s.cfg.Name, s.cfg.CallTime)
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

// ask sends one call. A refusal by the server is a result: the connection works.
func (s *server) ask(ctx context.Context, name string, args map[string]any) (*mcp.CallToolResult, error) {
	session := s.current()
	if session == nil {
		return nil, errNotConnected
	}
	bound, cancel := context.WithTimeout(ctx, s.cfg.CallTime)
	defer cancel()
	result, err := session.CallTool(bound, &mcp.CallToolParams{Name: name, Arguments: args})
	switch reason := refusal(err); {
	case err == nil:
		return result, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, context.Canceled // the turn has ended: not a failure of the server
	case bound.Err() != nil:
		offer(s.silent, session)
		return nil, context.DeadlineExceeded
	case reason != nil:
		text := "the server " + s.cfg.Name + " refuses the call: " + chat.Cut(chat.Printable(reason.Message), 500)
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	default:
		s.useless(session)
		return nil, err //nolint:wrapcheck // the log names the server and the tool
	}
}

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
