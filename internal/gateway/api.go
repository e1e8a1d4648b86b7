package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/strictjson"
)

const apiPrefix = "/v1/"

// apiError is an error below /v1, as clients of OpenAI know it.
type apiError struct {
	Error apiFault `json:"error"`
}

type apiFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param"`
}

// Codes below /v1 that are not just the lower case of a code of the house.
const (
	apiModelNotFound = "model_not_found"
	apiRunTimeout    = "run_timeout"
	apiRunCancelled  = "run_cancelled"
)

func apiFaultOf(status int, e *fault.Error) apiFault {
	f := apiFault{Message: e.Message, Type: apiType(status)}
	if code, ok := e.Details["code"].(string); ok {
		code = apiCode(code)
		f.Code = &code
	}
	return f
}

func apiType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}

func apiCode(code string) string {
	switch chat.Code(code) {
	case chat.CodeUnknownAgent:
		return apiModelNotFound
	case chat.CodeQueueDropped:
		return "queue_full"
	default:
		return strings.ToLower(code)
	}
}

// writeAPIError answers below /v1. Client libraries send a request again on many states by themselves; where the turn has run, they are
// told not to, because a second turn is a second effect.
func writeAPIError(w http.ResponseWriter, status int, e *fault.Error) {
	if !e.Retryable {
		w.Header().Set("X-Should-Retry", "false")
	}
	httpbody.SetRetryAfter(w.Header(), status, e)
	httpbody.WriteJSON(w, status, apiError{apiFaultOf(status, e)})
}

// httpCall is a call that came by HTTP: the scopes are those of the credential.
func (s *Server) httpCall(name string, cred auth.Credential) *call {
	return &call{srv: s, m: &method{name: name}, who: &identity{cred: cred, scopes: cred.Scopes, level: auth.Level(cred.Scopes)}}
}

// doorFault refuses everybody while the gateway starts or stops; nil = open.
func (s *Server) doorFault() *fault.Error {
	if no := s.closedDoor(); no != nil {
		return no.err
	}
	return nil
}

type modelList struct {
	Object string     `json:"object"`
	Data   []apiModel `json:"data"`
}

type apiModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"` //nolint:tagliatelle // OpenAI's name
}

// models lists what the model of a completion may be: the default agent by its short name, and every agent.
func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.bearer(w, r, chat.ScopeRead); !ok {
		return
	}
	created := s.startedAt.Unix()
	list := modelList{Object: "list", Data: []apiModel{{"laneway", "model", created, "laneway"}}}
	for _, a := range s.backend.Agents() {
		list.Data = append(list.Data, apiModel{"laneway/" + a.ID, "model", created, "laneway"})
	}
	httpbody.WriteJSON(w, http.StatusOK, list)
}

// modelAgent is the agent that a model names; "" = no such name.
func modelAgent(model, defaultAgent string) string {
	if id, ok := strings.CutPrefix(model, "agent:"); ok {
		return id
	}
	for _, house := range []string{"laneway", "openclaw"} {
		id, ok := strings.CutPrefix(model, house)
		switch {
		case !ok:
		case id == "", id == "/default":
			return defaultAgent
		case id[0] == '/':
			return id[1:]
		}
	}
	return ""
}

// failAPI answers a request below /v1 with an error of the house.
func (s *Server) failAPI(ctx context.Context, w http.ResponseWriter, cl *call, err error) {
	e := s.explain(ctx, cl, err)
	writeAPIError(w, e.HTTPStatus(), e)
}

// decodeOpen reads a JSON object whose unknown members do not matter. The rules for strings and depth are those of the frames.
func decodeOpen(body []byte, into any) error {
	if !utf8.Valid(body) { // the decoder would put U+FFFD in its place
		return errors.New("the body is not UTF-8")
	}
	if err := strictjson.Inspect(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return errors.New(kind.Field + " must not be a " + kind.Value)
		}
		return errors.New("the body is not a JSON object")
	}
	return nil
}
