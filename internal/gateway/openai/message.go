package openai

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

// call is one request in progress.
type call struct {
	cred   auth.Credential
	header http.Header
	body   []byte
	form   form
	prompt prompt
	place  place
	// attachments are the files of the message; saved are those that this request has stored.
	attachments, saved []chat.Attachment
}

// dedupe returns the key of the request in the store; "" when it has no idempotency key.
func (c *call) dedupe() string {
	key := c.header.Get(headerKey)
	if key == "" {
		return ""
	}
	return c.cred.Name + "/" + c.form.name() + "/" + key
}

func (c *call) caller() chat.Caller {
	return chat.Caller{Principal: c.cred.Name, Scopes: c.cred.Scopes, Own: c.cred.Own()}
}

// place is the session and position of a request's message.
type place struct {
	key   chat.SessionKey
	fresh bool // the session is new
	// id of the message; "" = a new one. claims: only one message can have it, the first that continues a response.
	id     string
	claims bool
	// branch is where a new session begins; nil = it begins empty.
	branch *chat.Branch
}

// placeOf returns the place of a request.
func (h *Handler) placeOf(ctx context.Context, c *call) (place, error) {
	id := agentOf(c.prompt.model, h.agents)
	if id == "" {
		return place{}, noModel(c.prompt.model)
	}
	if err := errors.Join(h.checkFormat(c, id), h.checkRange(c, id)); err != nil {
		return place{}, err
	}
	if name := c.header.Get(headerSession); name != "" {
		if c.prompt.previous != "" || c.prompt.conversation != nil {
			return place{}, fault.Invalid(headerSession + " cannot be used together with previous_response_id or conversation")
		}
		key, err := chat.ParseSessionKey(name, id)
		switch {
		case err != nil:
			return place{}, fault.Invalid(headerSession + ": " + err.Error())
		case key.Agent != id:
			return place{}, fault.Invalid(headerSession + " names another agent than the model")
		}
		return place{key: key}, h.server.MayUse(ctx, c.cred, key)
	}
	if name := c.prompt.conversation; name != nil {
		key := chat.SessionKey{Agent: id, Rest: channel + ":" + c.cred.Name + ":" + *name}
		return place{key: key}, h.server.MayUse(ctx, c.cred, key)
	}
	if c.prompt.previous != "" {
		return h.following(ctx, c, id)
	}
	return c.newPlace(id), nil
}

// newPlace returns a new session. With an idempotency key its name is derived from the key, so that a repetition finds the same session.
func (c *call) newPlace(agentID string) place {
	name := uuid.NewString()
	if dedupe := c.dedupe(); dedupe != "" {
		name = uuid.NewSHA1(uuid.Nil, []byte(dedupe)).String()
	}
	return place{key: chat.SessionKey{Agent: agentID, Rest: channel + ":" + name}, fresh: true}
}

// message returns the message of a request.
func (h *Handler) message(ctx context.Context, c *call) (chat.Message, error) {
	if given := c.header.Get(headerKey); given != "" {
		if err := chat.CheckMessageID(headerKey, given); err != nil {
			return chat.Message{}, err
		}
	}
	var err error
	if c.place, err = h.placeOf(ctx, c); err != nil {
		return chat.Message{}, err
	}
	if err := h.attach(ctx, c); err != nil {
		return chat.Message{}, err
	}
	return c.message(), nil
}

// message returns the message of a request whose place is known.
func (c *call) message() chat.Message {
	p := &c.prompt
	if p.format != nil {
		p.params[paramFormat] = p.format
	}
	m := chat.Message{
		Session: c.place.key, ID: cmp.Or(c.place.id, uuid.Must(uuid.NewV7()).String()), Principal: c.cred.Name, Channel: channel, Branch: c.place.branch,
		Content: chat.Content{
			Text: p.input, Sender: chat.Sender{ID: c.cred.Name}, Attachments: c.attachments,
			Options: chat.Options{NoMerge: true, SystemPrompt: p.system, Thinking: p.thinking, Params: p.params, KeepContext: p.keep},
		},
	}
	if c.place.fresh || p.keep {
		m.Content.Context = p.earlier
	}
	switch dedupe := c.dedupe(); {
	case dedupe != "":
		m.Dedupe, m.ParamsHash = dedupe, c.paramsHash()
	case c.place.claims:
		m.ParamsHash = uuid.NewString() // equal to no other message
	}
	return m
}

// paramsHash distinguishes requests with the same key. It does not include how the answer is delivered, nor the session if the gateway
// chooses it.
func (c *call) paramsHash() string {
	named := ""
	if c.header.Get(headerSession) != "" || c.prompt.conversation != nil {
		named = c.place.key.String()
	}
	return paramsHash(c.body, named)
}

func paramsHash(body []byte, session string) string {
	var members map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil {
		members = nil // it was parsed before
	}
	delete(members, "stream")
	delete(members, "stream_options")
	sum := sha256.Sum256(append(strictjson.Encode(members), session...))
	return hex.EncodeToString(sum[:])
}
