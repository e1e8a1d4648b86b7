package gateway

import (
	"maps"
	"reflect"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/conversation"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/pairing"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

// MethodInfo describes one method for documentation and tests.
type MethodInfo struct {
	Name, Scope string
	// OwnerScope suffices for a session that the caller owns; "" = the owner needs Scope, too.
	OwnerScope string
	// Params and Result are the types of package wire.
	Params, Result *schema.Type
	// Control methods have separate places among the requests in flight.
	Control bool
	// Audited methods add one row to the audit log.
	Audited bool
	// Limit is the allowance that a call is counted in, or "".
	Limit auth.LimitClass
}

// EventInfo describes one event for documentation and tests.
type EventInfo struct {
	Name    string
	Payload *schema.Type
}

// Methods returns the table, sorted by name. `connect` is not in it; see [Server.Connect].
func (s *Server) Methods() []MethodInfo {
	out := make([]MethodInfo, 0, len(s.methods))
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		m := s.methods[name]
		info := MethodInfo{
			Name: m.Name, Scope: m.Scope, Params: m.Params.Type(), Result: schema.Result(m.Result), Control: m.Control, Audited: m.Audited, Limit: m.Limit,
		}
		if m.Owner {
			info.OwnerScope = m.Need().Least()
		}
		out = append(out, info)
	}
	return out
}

// Connect describes the first request of every connection. It needs no scope.
func (*Server) Connect() MethodInfo {
	return MethodInfo{
		Name: wire.MethodConnect, Params: schema.Params(reflect.TypeFor[wire.ConnectParams]()), Result: schema.Result(reflect.TypeFor[wire.HelloOK]()),
	}
}

// Events lists the events that a client may receive after `hello-ok`.
func (*Server) Events() []EventInfo {
	payloads := map[string]reflect.Type{
		wire.EventAgent: reflect.TypeFor[wire.AgentEvent[wire.AgentData]](), wire.EventChat: reflect.TypeFor[wire.ChatEvent](), wire.EventCron: reflect.TypeFor[wire.CronEvent](),
		wire.EventHealth: reflect.TypeFor[wire.HealthResult](), wire.EventLanes: reflect.TypeFor[wire.LanesEvent](),
		wire.EventQuestions: reflect.TypeFor[wire.QuestionsChanged](),
		wire.EventSessions:  reflect.TypeFor[wire.SessionsChanged](), wire.EventShutdown: reflect.TypeFor[wire.Shutdown](), wire.EventTick: reflect.TypeFor[wire.Tick](),
	}
	out := make([]EventInfo, 0, len(payloads))
	for _, name := range eventNames() {
		out = append(out, EventInfo{name, schema.Result(payloads[name])})
	}
	return out
}

// Needs returns what methods require of callers, by name. The corresponding chat commands require the same, so one table decides about
// both.
func Needs() map[string]chat.Need {
	needs := map[string]chat.Need{}
	for _, m := range allMethods(nil, nil) {
		needs[m.Name] = m.Need()
	}
	return needs
}

// allMethods returns the rows of the table. Without a server they can be listed but not called. The methods of jobs exist when their
// backend does.
func allMethods(s *Server, cron CronBackend) []*rpc.Method {
	var backend Backend
	var paired PairingBackend
	if s != nil {
		backend = s.backend
		paired, _ = s.backend.(PairingBackend) //nolint:errcheck // nil for a gateway without channels
	}
	o := overview{s}
	rows := slices.Concat(o.methods(), o.lists(), o.usages(), conversation.Methods(backend), pairing.Methods(pairing.Config{
		Backend: paired, Channels: func() []chat.ChannelStatus { return s.backend.Channels() },
	}))
	if s == nil || cron != nil {
		rows = append(rows, jobs.Methods(cron, node{s})...)
	}
	return rows
}

// node has the properties of the process that the methods of jobs show.
type node struct{ s *Server }

// BootID implements [jobs.Node].
func (n node) BootID() string { return n.s.bootID }

// NodeID implements [jobs.Node].
func (n node) NodeID() string { return n.s.health.current.Load().status.NodeID }

// StoreKind implements [jobs.Node].
func (n node) StoreKind() string { return n.s.health.current.Load().status.Store }
