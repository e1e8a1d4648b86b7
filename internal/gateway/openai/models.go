package openai

import (
	"net/http"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/httpbody"
)

type modelList struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// Models answers GET /v1/models with the models of completions: the default agent by its short name, and every agent.
func (h *Handler) Models(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.server.Bearer(w, r, chat.ScopeRead); !ok {
		return
	}
	created := h.cfg.StartedAt.Unix()
	list := modelList{Object: "list", Data: []model{{"laneway", "model", created, "laneway"}}}
	for _, a := range h.agents.Agents() {
		list.Data = append(list.Data, model{"laneway/" + a.ID, "model", created, "laneway"})
	}
	httpbody.WriteJSON(w, http.StatusOK, list)
}

// Model answers GET /v1/models/ID with any name that requests may use. Clients send the slash of a name as it is, or escaped.
func (h *Handler) Model(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.server.Bearer(w, r, chat.ScopeRead); !ok {
		return
	}
	id := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	if agentOf(id, h.agents) == "" {
		h.refuse(r.Context(), w, "models", noModel(id))
		return
	}
	httpbody.WriteJSON(w, http.StatusOK, model{id, "model", h.cfg.StartedAt.Unix(), "laneway"})
}

func noModel(id string) error {
	return chat.Errorf(chat.CodeUnknownAgent, "the model %s does not exist; GET /v1/models lists what there is", quoted(id)).With("param", "model")
}

// agentOf returns the agent of a model: laneway (the default agent), laneway/AGENT, agent:AGENT, or the bare id of an agent; "" when no
// such agent exists.
func agentOf(model string, agents Agents) string {
	id := model
	if name, ok := strings.CutPrefix(model, "agent:"); ok {
		id = name
	}
	for _, prefix := range []string{"laneway", "openclaw"} {
		name, ok := strings.CutPrefix(model, prefix)
		switch {
		case !ok:
		case name == "", name == "/default":
			return agents.DefaultAgent()
		case name[0] == '/':
			id = name[1:]
		}
	}
	if !slices.ContainsFunc(agents.Agents(), func(a agent.Info) bool { return a.ID == id }) {
		return ""
	}
	return id
}
