package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

const (
	completionsName = "chat.completions"
	apiChannel      = "api"
	maxAPIMessages  = 500
	maxAPIUser      = 128

	headerSession = "X-Laneway-Session-Key"
	headerDetach  = "X-Laneway-Detach"
	headerRun     = "X-Laneway-Run-Id"
	headerOnce    = "Idempotency-Key"
)

// completionRequest is the part of a completion request that counts. Unknown members are ignored, as clients send many.
type completionRequest struct {
	Model         string              `json:"model"`
	Messages      []completionMessage `json:"messages"`
	User          *string             `json:"user"`
	Stream        bool                `json:"stream"`
	StreamOptions streamOptions       `json:"stream_options"` //nolint:tagliatelle // OpenAI's name
	N             *int                `json:"n"`
	Tools         []json.RawMessage   `json:"tools"`
	Temperature   *float64            `json:"temperature"`
	TopP          *float64            `json:"top_p"`      //nolint:tagliatelle // OpenAI's name
	MaxTokens     *int                `json:"max_tokens"` //nolint:tagliatelle // OpenAI's name
	// MaxCompletionTokens is the newer name of MaxTokens.
	MaxCompletionTokens *int            `json:"max_completion_tokens"` //nolint:tagliatelle // OpenAI's name
	Stop                json.RawMessage `json:"stop"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"` //nolint:tagliatelle // OpenAI's name
}

type completionMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	text    string
}

type completionPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func readCompletion(body []byte) (completionRequest, error) {
	var req completionRequest
	if err := decodeOpen(body, &req); err != nil {
		return req, err
	}
	if err := req.check(); err != nil {
		return req, err
	}
	for i := range req.Messages {
		if err := req.Messages[i].read(); err != nil {
			return req, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if last := req.Messages[len(req.Messages)-1]; last.Role != chat.RoleUser {
		return req, errors.New("the last message must be from the user")
	}
	return req, nil
}

func (req *completionRequest) check() error {
	switch {
	case req.Model == "":
		return errors.New("model is required; GET /v1/models lists what there is")
	case len(req.Messages) == 0 || len(req.Messages) > maxAPIMessages:
		return fmt.Errorf("messages must have 1 to %d entries", maxAPIMessages)
	case len(req.Tools) > 0:
		return errors.New("tools are not supported: agents bring their own")
	case req.N != nil && *req.N != 1:
		return errors.New("n must be 1")
	case req.User != nil:
		return checkUser(*req.User)
	default:
		return nil
	}
}

func checkUser(user string) error {
	if n := utf8.RuneCountInString(user); n < 1 || n > maxAPIUser || strings.Contains(user, ":") || strings.ContainsFunc(user, chat.Unprintable) {
		return fmt.Errorf("user must have 1 to %d printable characters and no ':'", maxAPIUser)
	}
	return nil
}

func (m *completionMessage) read() error {
	switch m.Role {
	case "system", "developer", chat.RoleUser, chat.RoleAssistant:
	default:
		return errors.New("role must be system, developer, user or assistant")
	}
	content := bytes.TrimSpace(m.Content)
	if len(content) == 0 || string(content) == "null" {
		if m.Role == chat.RoleAssistant { // an answer that was a tool call only
			return nil
		}
		return errors.New("content is required")
	}
	if content[0] == '"' {
		return json.Unmarshal(content, &m.text)
	}
	var parts []completionPart
	if err := json.Unmarshal(content, &parts); err != nil {
		return errors.New("content must be a string or a list of parts")
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("a part of type %s is not supported, only text", quoted(p.Type))
		}
		texts = append(texts, p.Text)
	}
	m.text = strings.Join(texts, "\n")
	return nil
}

func quoted(s string) string { return fmt.Sprintf("%q", fault.CutName(s)) }

// split tells apart what the agent is told by the operator of the client, what was said before, and what is new. Everything after the last
// answer is new.
func (req *completionRequest) split() (system string, earlier []chat.TranscriptEntry, input string) {
	var rules, fresh []string
	last := -1
	for i, m := range req.Messages {
		if m.Role == chat.RoleAssistant {
			last = i
		}
	}
	for i, m := range req.Messages {
		switch {
		case m.Role == "system" || m.Role == "developer":
			rules = append(rules, m.text)
		case i > last:
			fresh = append(fresh, m.text)
		default:
			earlier = append(earlier, chat.TranscriptEntry{Role: m.Role, Text: m.text, Tokens: agent.EstimateTokens(m.text)})
		}
	}
	return strings.Join(rules, "\n\n"), earlier, strings.Join(fresh, "\n\n")
}

// params are the settings that are handed to the runner.
func (req *completionRequest) params() (map[string]any, error) {
	out := map[string]any{}
	if req.Temperature != nil {
		out["temperature"] = *req.Temperature
	}
	if req.TopP != nil {
		out["top_p"] = *req.TopP
	}
	for _, n := range []*int{req.MaxTokens, req.MaxCompletionTokens} {
		if n != nil {
			out["max_tokens"] = *n
		}
	}
	stop, err := stopTexts(req.Stop)
	if err != nil {
		return nil, err
	}
	if len(stop) > 0 {
		out["stop"] = stop
	}
	if len(out) == 0 {
		return nil, nil //nolint:nilnil // no settings are no error
	}
	return out, nil
}

func stopTexts(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var many []string
	if err := json.Unmarshal(raw, &many); err != nil {
		return nil, errors.New("stop must be a text or a list of texts")
	}
	return many, nil
}

// completionSession is where a completion is spoken. A request that names no place gets a new one; with an idempotency key its name follows
// from the key, so that a repetition meets the same session.
func (c *call) completionSession(r *http.Request, req *completionRequest, once string) (key chat.SessionKey, fresh bool, err error) {
	id := modelAgent(req.Model, c.srv.backend.DefaultAgent())
	if !chat.ValidAgentID(id) || !c.srv.hasAgent(id) {
		return key, false, chat.Errorf(chat.CodeUnknownAgent, "the model %s does not exist; GET /v1/models lists what there is", quoted(req.Model))
	}
	if name := r.Header.Get(headerSession); name != "" {
		key, err := chat.ParseSessionKey(name, id)
		switch {
		case err != nil:
			return key, false, fault.Invalid(headerSession + ": " + err.Error())
		case key.Agent != id:
			return key, false, fault.Invalid(headerSession + " names another agent than the model")
		}
		return key, false, c.mayUse(r.Context(), key)
	}
	if req.User != nil {
		key = chat.SessionKey{Agent: id, Rest: apiChannel + ":" + c.principal() + ":" + *req.User}
		return key, false, c.mayUse(r.Context(), key)
	}
	name := uuid.NewString()
	if once != "" {
		name = uuid.NewSHA1(uuid.Nil, []byte(c.dedupe(once))).String()
	}
	return chat.SessionKey{Agent: id, Rest: apiChannel + ":" + name}, true, nil
}

func (s *Server) hasAgent(id string) bool {
	for _, a := range s.backend.Agents() {
		if a.ID == id {
			return true
		}
	}
	return false
}

// completionMessageOf is the message that a completion request becomes.
func (c *call) completionMessageOf(r *http.Request, req *completionRequest, body []byte) (chat.Message, error) {
	once := r.Header.Get(headerOnce)
	if once != "" {
		if err := chat.CheckMessageID(headerOnce, once); err != nil {
			return chat.Message{}, err
		}
	}
	key, fresh, err := c.completionSession(r, req, once)
	if err != nil {
		return chat.Message{}, err
	}
	params, err := req.params()
	if err != nil {
		return chat.Message{}, fault.Invalid(err.Error())
	}
	system, earlier, input := req.split()
	m := c.message(key, input, "")
	m.ID, m.Channel = newMessageID(), apiChannel
	m.Content.Options = chat.Options{NoMerge: true, SystemPrompt: system, Params: params}
	if fresh {
		m.Content.Context = earlier
	}
	if once != "" {
		m.Dedupe, m.ParamsHash = c.dedupe(once), completionHash(body, key, fresh)
	}
	return m, nil
}

// completionHash tells one request from another with the same key. How the answer is delivered is no part of it.
func completionHash(body []byte, key chat.SessionKey, fresh bool) string {
	var members map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil {
		members = nil // it was read before
	}
	delete(members, "stream")
	delete(members, "stream_options")
	place := ""
	if !fresh {
		place = key.String()
	}
	sum := sha256.Sum256(append(strictjson.Encode(members), place...))
	return hex.EncodeToString(sum[:])
}
