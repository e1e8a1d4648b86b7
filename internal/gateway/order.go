package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode"

	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
)

// order serializes the calls of one connection for one session, in the order in which their frames arrived. Without it, two messages that a
// client sends without waiting for an answer are accepted in any order. The zero value is ready to use. It is safe for concurrent use.
type order struct {
	mu    sync.Mutex
	lines map[chat.SessionKey][]*turn // nil before the first call; the first call of each line runs
}

// turn is the position of one call in the line of its session. nil = the call has no position and does not wait.
type turn struct {
	order   *order
	session chat.SessionKey
	first   chan struct{} // closed when no earlier call is left in the line
}

// join adds a call to the end of the line of a session. [turn.leave] must follow.
func (o *order) join(session chat.SessionKey) *turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &turn{order: o, session: session, first: make(chan struct{})}
	if o.lines == nil {
		o.lines = map[chat.SessionKey][]*turn{}
	}
	if o.lines[session] = append(o.lines[session], t); len(o.lines[session]) == 1 {
		close(t.first)
	}
	return t
}

// wait returns when every earlier call has left the line, or with the cause of ctx.
func (t *turn) wait(ctx context.Context) error {
	if t == nil {
		return nil
	}
	select {
	case <-t.first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave lets the next call of the line run. If a call leaves before it is first, no other call runs early.
func (t *turn) leave() {
	if t == nil {
		return
	}
	o := t.order
	o.mu.Lock()
	defer o.mu.Unlock()
	line := o.lines[t.session]
	wasFirst := line[0] == t
	line = slices.DeleteFunc(line, func(other *turn) bool { return other == t })
	switch {
	case len(line) == 0:
		delete(o.lines, t.session)
		return
	case wasFirst:
		close(line[0].first)
	}
	o.lines[t.session] = line
}

// longestUrgent is the maximum size of a message that is compared with the urgent commands, in bytes of JSON.
const longestUrgent = 256

// turnOf returns the position of a request in the line of its session, taken in the order of arrival; nil when the method is not ordered or
// the parameters name no session. An urgent command has no position: a stop must not wait for a store that is slow to accept earlier
// messages.
func (c *client) turnOf(peer context.Context, m *rpc.Method, raw json.RawMessage) *turn {
	if !m.InOrder {
		return nil
	}
	var p struct {
		SessionKey, Key, AgentID string
		Message                  json.RawMessage
	}
	if c.share.Parsing(peer, len(raw), func() error { return json.Unmarshal(raw, &p) }) != nil { // the method refuses them, or the client has disconnected
		return nil
	}
	if len(p.Message) > 0 && len(p.Message) <= longestUrgent {
		if text, ok := strictjson.Unquote(p.Message); ok && c.srv.urgent(text) {
			return nil
		}
	}
	agent := c.srv.backend.DefaultAgent()
	main := chat.MainKey(cmp.Or(p.AgentID, agent)).String()
	key, err := chat.ParseSessionKey(cmp.Or(p.SessionKey, p.Key, main), agent)
	if err != nil {
		return nil
	}
	return c.order.join(key)
}

// urgent reports whether a message is an urgent command.
func (s *Server) urgent(text string) bool {
	name, slash := strings.CutPrefix(strings.TrimSpace(text), "/")
	if !slash {
		return false
	}
	if end := strings.IndexFunc(name, unicode.IsSpace); end >= 0 {
		name = name[:end]
	}
	return slices.ContainsFunc(s.backend.Commands(), func(cmd chat.CommandInfo) bool {
		named := func(word string) bool { return strings.EqualFold(word, name) }
		return cmd.Urgent && (named(cmd.Name) || slices.ContainsFunc(cmd.Aliases, named))
	})
}
