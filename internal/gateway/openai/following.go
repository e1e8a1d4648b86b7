package openai

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

const responsePrefix = "resp_"

// following returns the place after an earlier response. If the response's message is the newest of its session, the session continues
// there. Otherwise the conversation branches: a new session begins with its entries up to the response.
//
// Two concurrent requests may continue the same response. The id of a message that continues one is derived from the response, so the store
// accepts only the first; the other one branches.
func (h *Handler) following(ctx context.Context, c *call, agentID string) (place, error) {
	at, err := h.previous(ctx, c)
	if err != nil {
		return place{}, err
	}
	if !at.Newest || at.Session.Agent != agentID {
		return h.branchAt(ctx, c, at, agentID)
	}
	return place{key: at.Session, id: uuid.NewSHA1(uuid.Nil, []byte("behind "+at.RunID)).String(), claims: true}, nil
}

// branch returns the message of a request in a new session, after another request has continued its response.
func (h *Handler) branch(ctx context.Context, c *call) (chat.Message, error) {
	at, err := h.previous(ctx, c)
	if err == nil {
		c.place, err = h.branchAt(ctx, c, at, agentOf(c.prompt.model, h.agents))
	}
	if err != nil {
		return chat.Message{}, err
	}
	return c.message(), nil
}

func (h *Handler) branchAt(ctx context.Context, c *call, at chat.Place, agentID string) (place, error) {
	if !at.Ended {
		return place{}, chat.Errorf(chat.CodeConflict, "the response %s is not complete yet; wait for its end", c.prompt.previous)
	}
	point, err := h.runs.BranchAt(ctx, at.Session, at.RunID)
	if errors.Is(err, chat.ErrNotFound) {
		err = c.unknownResponse()
	}
	out := c.newPlace(agentID)
	out.branch = &point
	return out, err
}

// previous returns the response that a request continues. One that the caller may not use counts as one that does not exist.
func (h *Handler) previous(ctx context.Context, c *call) (chat.Place, error) {
	id, ok := strings.CutPrefix(c.prompt.previous, responsePrefix)
	if !ok {
		return chat.Place{}, c.unknownResponse()
	}
	at, err := h.runs.Place(ctx, id)
	if err == nil {
		err = h.server.MayUse(ctx, c.cred, at.Session)
	}
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrSessionNotFound) {
		err = c.unknownResponse()
	}
	return at, err
}

func (c *call) unknownResponse() error {
	return chat.Errorf(chat.CodeNotFound, "the response %s does not exist, or its conversation was removed", quoted(c.prompt.previous)).With("param", "previous_response_id")
}
