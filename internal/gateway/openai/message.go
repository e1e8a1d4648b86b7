package openai

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

// call is one completion request under way.
type call struct {
	cred   auth.Credential
	header http.Header
	body   []byte
	req    request
}

// dedupe names the request in the store; "" = it has no idempotency key.
func (c *call) dedupe() string {
	key := c.header.Get(headerKey)
	if key == "" {
		return ""
	}
	return c.cred.Name + "/" + methodName + "/" + key
}

func (c *call) caller() chat.Caller {
	return chat.Caller{Principal: c.cred.Name, Scopes: c.cred.Scopes, Own: c.cred.Own()}
}

// session is the session of a completion. A request that names none gets a new one; with an idempotency key its name follows
// from the key, so that a repetition meets the same session.
func (h *Handler) session(ctx context.Context, c *call) (key chat.SessionKey, fresh bool, err error) {
	id := agentOf(c.req.Model, h.agents.DefaultAgent())
	if !chat.ValidAgentID(id) || !h.hasAgent(id) {
		return key, false, chat.Errorf(chat.CodeUnknownAgent, "the model %s does not exist; GET /v1/models lists what there is", quoted(c.req.Model))
	}
	if name := c.header.Get(headerSession); name != "" {
		key, err := chat.ParseSessionKey(name, id)
		switch {
		case err != nil:
			return key, false, fault.Invalid(headerSession + ": " + err.Error())
		case key.Agent != id:
			return key, false, fault.Invalid(headerSession + " names another agent than the model")
		}
		return key, false, h.server.MayUse(ctx, c.cred, key)
	}
	if c.req.User != nil {
		key = chat.SessionKey{Agent: id, Rest: channel + ":" + c.cred.Name + ":" + *c.req.User}
		return key, false, h.server.MayUse(ctx, c.cred, key)
	}
	name := uuid.NewString()
	if dedupe := c.dedupe(); dedupe != "" {
		name = uuid.NewSHA1(uuid.Nil, []byte(dedupe)).String()
	}
	return chat.SessionKey{Agent: id, Rest: channel + ":" + name}, true, nil
}

// message is the message that a request becomes.
func (h *Handler) message(ctx context.Context, c *call) (chat.Message, error) {
	if given := c.header.Get(headerKey); given != "" {
		if err := chat.CheckMessageID(headerKey, given); err != nil {
			return chat.Message{}, err
		}
	}
	key, fresh, err := h.session(ctx, c)
	if err != nil {
		return chat.Message{}, err
	}
	params, err := c.req.params()
	if err != nil {
		return chat.Message{}, fault.Invalid(err.Error())
	}
	system, earlier, input := c.req.split()
	m := chat.Message{
		Session: key, ID: uuid.Must(uuid.NewV7()).String(), Principal: c.cred.Name, Channel: channel,
		Content: chat.Content{
			Text: input, Sender: chat.Sender{ID: c.cred.Name},
			Options: chat.Options{NoMerge: true, SystemPrompt: system, Params: params},
		},
	}
	if fresh {
		m.Content.Context = earlier
	}
	if dedupe := c.dedupe(); dedupe != "" {
		m.Dedupe, m.ParamsHash = dedupe, paramsHash(c.body, key, fresh)
	}
	return m, nil
}

// paramsHash distinguishes requests with the same key. How the answer is delivered is no part of it.
func paramsHash(body []byte, key chat.SessionKey, fresh bool) string {
	var members map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil {
		members = nil // it was parsed before
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
