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

// order lets the calls of one connection that address one session run one after the other, in the order in which their frames arrived. Without it two
// messages that a client sends without waiting for an answer are accepted in any order. The zero value is ready. It is safe for concurrent use.
type order struct {
	mu    sync.Mutex
	lines map[chat.SessionKey][]*turn // nil before the first call; the first of each line runs
}

// turn is the place of one call in the line of its session. nil = the call has no place and waits for none.
type turn struct {
	order   *order
	session chat.SessionKey
	first   chan struct{} // closed when no earlier call of the line is left
}

// join adds a call at the end of the line of a session. [turn.leave] follows.
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

// wait returns when every earlier call of the line has left, or with the cause of ctx.
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

// leave lets the next call of the line run. A call that leaves before its turn lets none run early.
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

// longestUrgent bounds the text that is compared with the urgent commands, in bytes of JSON.
const longestUrgent = 256

// turnOf is the place of a request in the line of its session, taken in the order of arrival; nil when the method has no order or the parameters name no
// session. An urgent command has none: a stop does not wait for a store that is slow to accept the messages before it.
func (c *client) turnOf(peer context.Context, m *rpc.Method, raw json.RawMessage) *turn {
	if !m.InOrder {
		return nil
	}
	var p struct {
		SessionKey, Key, AgentID string
		Message                  json.RawMessage
	}
	if c.share.Parsing(peer, len(raw), func() error { return json.Unmarshal(raw, &p) }) != nil { // the method refuses them, or the peer is gone
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
