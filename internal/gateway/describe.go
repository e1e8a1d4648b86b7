package gateway

import (
	"maps"
	"reflect"
	"slices"

	"laneway/internal/gateway/auth"
	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

// MethodInfo describes one method to documentation and tests.
type MethodInfo struct {
	Name, Scope string
	// OwnerScope suffices on a session that the caller owns; "" = the owner needs Scope, too.
	OwnerScope string
	// Params and Result are the types of package wire.
	Params, Result *schema.Type
	// Control methods have places of their own among the requests in flight.
	Control bool
	// Audited methods leave one row in the log of changes.
	Audited bool
	// Limit is the allowance that a call takes from, "" = none.
	Limit auth.LimitClass
}

// EventInfo describes one event to documentation and tests.
type EventInfo struct {
	Name    string
	Payload *schema.Type
}

// Methods lists the table by name. `connect` is not in it; see [Server.Connect].
func (s *Server) Methods() []MethodInfo {
	out := make([]MethodInfo, 0, len(s.methods))
	for _, name := range slices.Sorted(maps.Keys(s.methods)) {
		m := s.methods[name]
		info := MethodInfo{
			Name: m.name, Scope: m.scope, Params: m.params.Type(), Result: schema.Result(m.result), Control: m.control, Audited: m.audited, Limit: m.limit,
		}
		if m.owner {
			info.OwnerScope = m.need().Least()
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

// Events lists the events that a client may get after `hello-ok`.
func (*Server) Events() []EventInfo {
	payloads := map[string]reflect.Type{
		wire.EventAgent: reflect.TypeFor[wire.AgentEvent](), wire.EventChat: reflect.TypeFor[wire.ChatEvent](), wire.EventCron: reflect.TypeFor[wire.CronEvent](),
		wire.EventHealth: reflect.TypeFor[wire.HealthResult](), wire.EventLanes: reflect.TypeFor[wire.LanesEvent](),
		wire.EventSessions: reflect.TypeFor[wire.SessionsChanged](), wire.EventShutdown: reflect.TypeFor[wire.Shutdown](), wire.EventTick: reflect.TypeFor[wire.Tick](),
	}
	out := make([]EventInfo, 0, len(payloads))
	for _, name := range eventNames() {
		out = append(out, EventInfo{name, schema.Result(payloads[name])})
	}
	return out
}
