// Package mcp serves the tools of the gateway at `/mcp`, as an MCP server over Streamable HTTP.
//
// # Callers
//
// The token of a running turn ([Turns]) permits the tools of this turn with its permissions; it is
// in the environment of the turn's program. A credential of the gateway with the scope
// operator.write permits the tools for its own principal, outside of any turn. Any other request is
// answered with 401.
//
// # Transport
//
// Each request is independent: there is no session of the protocol, no stream that the server
// opens, and no state between two requests. So a client may reach another process through a load
// balancer, and a client that ends leaves nothing behind. The server has only tools: no resources,
// no prompts, no requests to the client.
//
// # Crash points
//
// A call of a turn is recorded by its tools before it runs and when it has a result. A client
// without an answer may repeat the call of a turn: its effect happens once for each time that the
// program requests it, see package dispatch. Calls of a credential have separate keys.
//
// # Limits and goroutines
//
// Bodies have at most [maxBody] bytes. The package itself starts no goroutine; those of the SDK end
// with their request, and [Handler] waits for them.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
)

const (
	// maxBody limits one request, in bytes.
	maxBody = 256 << 10
	// methodName is the name of requests in metrics.
	methodName = "mcp"
	// turnPrefix is the prefix of tokens of turns.
	turnPrefix = "lwturn_"
)

// Turns are the tokens of running turns; package access implements it.
type Turns interface {
	// Enter returns the tools of the turn with this token. The context ends with the turn; call
	// leave when the request has ended.
	Enter(ctx context.Context, token string) (box agent.Toolbox, in context.Context, leave func(), ok bool)
}

// Deps are the dependencies of a [Handler].
type Deps struct {
	Turns Turns
	// Tools returns the tools of a principal outside of turns.
	Tools      func(principal string) agent.Toolbox
	Allowances *auth.Authenticator
	Server     auth.Server
	// BodyTimeout is the time in which the body of a request must arrive.
	BodyTimeout time.Duration
	Version     string
	Log         *slog.Logger
}

// Handler answers /mcp. It is safe for concurrent use.
type Handler struct {
	deps   Deps
	serve  *sdk.StreamableHTTPHandler
	hidden *slog.Logger
}

// prefixForm matches the prefixes that a client may put before the names of tools.
var prefixForm = regexp.MustCompile(`^[a-z0-9_]{0,20}$`)

// serverOf is the context key of the server of one request.
type serverOf struct{}

// New returns a handler.
func New(deps Deps) *Handler {
	h := &Handler{deps: deps, hidden: slog.New(slog.DiscardHandler)}
	h.serve = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		server, _ := r.Context().Value(serverOf{}).(*sdk.Server) // ServeHTTP has put it there
		return server
	}, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, Logger: h.hidden, MaxRequestBodyBytes: maxBody,
		DisableLocalhostProtection: true, // the gateway has checked host and origin by its own rules
	})
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	if token := bearer(r); strings.HasPrefix(token, turnPrefix) {
		box, ctx, leave, ok := h.deps.Turns.Enter(r.Context(), token)
		h.deps.Server.Verified(r, ok)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			h.fail(w, r, began, fault.Invalid("this token is of no running turn").WithStatus(http.StatusUnauthorized))
			return
		}
		defer leave()
		body, err := h.readOne(w, r)
		if err != nil {
			h.fail(w, r, began, err)
			return
		}
		h.answer(w, r.WithContext(ctx), began, box, body)
		return
	}
	cred, ok := h.deps.Server.Bearer(w, r, chat.ScopeWrite)
	if !ok {
		return
	}
	if e := h.deps.Server.Refusal(); e != nil {
		h.fail(w, r, began, e)
		return
	}
	if e := h.deps.Allowances.Spend(r.Context(), cred.Name, methodName, auth.LimitChats); e != nil {
		h.fail(w, r, began, e)
		return
	}
	leave, err := h.deps.Server.Share(cred.Name, cred.Own()).Enter(r.Context(), inflight.Call)
	if err != nil {
		h.fail(w, r, began, err)
		return
	}
	defer leave()
	body, err := h.charge(w, r, cred.Name)
	if err != nil {
		h.fail(w, r, began, err)
		return
	}
	h.answer(w, r, began, h.deps.Tools(cred.Name), body)
}

// charge takes the bytes of the body from the allowance of the caller, because tools store their
// input.
func (h *Handler) charge(w http.ResponseWriter, r *http.Request, principal string) (body []byte, err error) {
	if body, err = h.readOne(w, r); err != nil {
		return nil, err
	}
	if e := h.deps.Allowances.SpendBytes(r.Context(), principal, methodName, len(body)); e != nil {
		return nil, e
	}
	return body, nil
}

// readOne reads the body, and refuses one that may hold more than one call: the limits of calls
// count requests.
func (h *Handler) readOne(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	if body, err = httpbody.Read(w, r, maxBody, h.deps.BodyTimeout); err != nil {
		return nil, err
	}
	if isBatch(body) {
		return nil, fault.Invalid("a JSON-RPC batch is not accepted: send each call in its own request, as MCP has since 2025-06-18")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// isBatch reports whether a body begins with a JSON array. A byte order mark and any kind of white
// space before it do not hide it, whatever the decoder skips.
func isBatch(body []byte) bool {
	text := bytes.TrimLeftFunc(body, func(r rune) bool { return r == '\uFEFF' || unicode.IsSpace(r) })
	return len(text) > 0 && text[0] == '['
}

// bearer returns the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, began time.Time, err error) {
	h.deps.Server.Count(methodName, err, time.Since(began))
	e := h.deps.Server.Explain(r.Context(), methodName, err)
	httpbody.WriteError(w, e.HTTPStatus(), e)
}

// NewServer returns a server without tools that declares tools alone, and answers no method of
// anything else: the SDK would answer with empty lists. A nil log discards.
func NewServer(info *sdk.Implementation, log *slog.Logger) *sdk.Server {
	server := sdk.NewServer(info, &sdk.ServerOptions{Logger: log, Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}})
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			switch family, _, _ := strings.Cut(method, "/"); family {
			case "resources", "prompts", "logging", "completion", "subscriptions":
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server has tools only; it has no method " + method}
			}
			return next(ctx, method, req)
		}
	})
	return server
}

// answered are the methods that the SDK answers, or takes in silence.
func answered() []string {
	return []string{
		"initialize", "ping", "tools/list", "tools/call", "server/discover",
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
	}
}

// turnDown answers a message that is no request of this server, in the form of the protocol, and
// reports whether it has: the SDK answers some of them with a sentence as plain text, which clients
// take for a fault of the transport.
func turnDown(w http.ResponseWriter, body []byte) bool {
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	refuse := func(status int, id json.RawMessage, code int64, sentence string) bool {
		if len(id) == 0 || id[0] != '"' && (id[0] < '0' || id[0] > '9') && id[0] != '-' {
			id = json.RawMessage("null")
		}
		httpbody.WriteJSON(w, status, map[string]any{"jsonrpc": "2.0", "id": id, "error": jsonrpc.Error{Code: code, Message: sentence}})
		return true
	}
	err := json.Unmarshal(body, &message)
	switch {
	case !json.Valid(body):
		return refuse(http.StatusBadRequest, nil, jsonrpc.CodeParseError, "the body is not JSON")
	case err != nil || message.Method == nil && message.Result == nil && message.Error == nil:
		return refuse(http.StatusBadRequest, message.ID, jsonrpc.CodeInvalidRequest, "the body is not a message of JSON-RPC: it needs a method, which is a string")
	case message.Method == nil || slices.Contains(answered(), *message.Method):
		return false
	case len(message.ID) == 0 || string(message.ID) == "null":
		w.WriteHeader(http.StatusAccepted) // a notification has no answer
		return true
	default:
		return refuse(http.StatusOK, message.ID, jsonrpc.CodeMethodNotFound, "this server has tools only; it has no method "+chat.Cut(chat.Printable(*message.Method), 64))
	}
}

// annotations returns what clients that ask a person before calls read. A call of a client is new
// each time, so no tool is idempotent to them.
func annotations(spec agent.ToolSpec) *sdk.ToolAnnotations {
	destructive := !spec.ReadOnly && !spec.Additive
	return &sdk.ToolAnnotations{ReadOnlyHint: spec.ReadOnly, DestructiveHint: &destructive}
}

// answer serves a request with the tools of its caller.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, began time.Time, box agent.Toolbox, body []byte) {
	if r.Method == http.MethodPost && turnDown(w, body) {
		h.deps.Server.Count(methodName, nil, time.Since(began))
		return
	}
	server := NewServer(&sdk.Implementation{Name: "laneway", Version: h.deps.Version}, h.hidden)
	ctx, prefix := r.Context(), r.URL.Query().Get("prefix")
	if !prefixForm.MatchString(prefix) {
		h.fail(w, r, began, fault.Invalid("prefix must be up to 20 of the characters a-z, 0-9 and _"))
		return
	}
	for _, spec := range box.Specs() {
		server.AddTool(&sdk.Tool{
			Name: agent.ModelName(prefix + spec.Name), Description: spec.Description, InputSchema: spec.Schema, Annotations: annotations(spec),
		}, h.call(ctx, box, spec.Name))
	}
	h.serve.ServeHTTP(w, r.WithContext(context.WithValue(ctx, serverOf{}, server)))
	h.deps.Server.Count(methodName, nil, time.Since(began))
}

// call runs one tool. A failure of the tool is a result for the model. outer ends with the turn,
// unlike the context of the SDK.
func (h *Handler) call(outer context.Context, box agent.Toolbox, name string) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(outer, func() { cancel(context.Cause(outer)) })()
		id, err := uuid.NewV7()
		if err != nil {
			return nil, errors.New("the call has no id")
		}
		result := box.Call(ctx, "mcp/"+id.String(), chat.ToolCall{ID: id.String(), Name: name, Args: string(req.Params.Arguments)})
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: result.Text}}, IsError: result.IsError}, nil
	}
}
