package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// method is one row of the table that decides what can be called: the name, the scope, what the params are, and what answers.
// What is not in the table does not exist.
type method struct {
	name, scope string
	// control methods look or stop; they have places of their own among the requests in flight.
	control bool
	// quick methods answer from memory when they have no params: the reader does it itself, which saves a goroutine and a timer.
	quick bool
	// audited methods leave one row in the log of changes, written with the change itself; a call that changes nothing leaves none.
	audited bool
	// owner: write suffices on a session that the caller owns; the backend, which knows the owner, decides.
	owner bool
	// lists methods read rows with texts and answer with up to listBytes: their calls have places of their own, see [inflight.List].
	lists bool
	// limit is the allowance that a call takes from; "" = none.
	limit  auth.LimitClass
	params *params.Decoder
	// result is a type of package wire.
	result reflect.Type
	invoke func(ctx context.Context, c *call, raw json.RawMessage) (any, error)
}

// call is one request under way.
type call struct {
	srv  *Server
	conn *client // nil for a call that did not come over a socket
	who  *identity
	// share is what the principal has in flight.
	share *inflight.Share
	m     *method
	raw   json.RawMessage
	// peer and requestID say where the call came from, for the log of changes.
	peer      netip.Addr
	requestID string
	// extended is the view of the answer.
	extended bool
	// hidden: the session that it looks at is not the caller's, see [call.lookAt].
	hidden bool
	// leave gives back the place of a method that lists; nil = it has none.
	leave func()

	mu       sync.Mutex
	answered bool
	after    []func() // to run when the first answer is queued
}

// whenAnswered runs f once the first answer is queued; at once when it is already, because the call's time was over.
func (c *call) whenAnswered(f func()) {
	c.mu.Lock()
	late := c.answered
	if !late {
		c.after = append(c.after, f)
	}
	c.mu.Unlock()
	if late {
		f()
	}
}

func (c *call) markAnswered() {
	c.mu.Lock()
	after := c.after
	c.answered, c.after = true, nil
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// encoded is a result of type T that is JSON already.
type encoded[T any] []byte

func (e encoded[T]) json() json.RawMessage  { return json.RawMessage(e) }
func (encoded[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// twice is a result of type T with two frames: first now, and what then returns when it returns. then gets a context that ends with the connection.
type twice[T any] struct {
	first T
	then  func(ctx context.Context) (T, error)
}

func (t twice[T]) frames() (first any, then func(ctx context.Context) (any, error)) {
	return t.first, func(ctx context.Context) (any, error) { return t.then(ctx) }
}

func (twice[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// resultOf is the type of package wire that a handler answers with.
func resultOf[R any]() reflect.Type {
	var r R
	if wrapped, ok := any(r).(interface{ resultType() reflect.Type }); ok {
		return wrapped.resultType()
	}
	return reflect.TypeFor[R]()
}

// option of a method.
type option func(*method)

func control(m *method)                     { m.control = true }
func quick(m *method)                       { m.quick = true }
func lists(m *method)                       { m.lists = true }
func audited(m *method)                     { m.audited = true }
func orOwner(m *method)                     { m.owner = true }
func limited(class auth.LimitClass) option  { return func(m *method) { m.limit = class } }
func (c *call) visible() string             { return c.who.visible() }
func (c *call) principal() string           { return c.who.principal() }
func (c *call) badParams(err error) error   { return params.Refuse(c.m.name, err) }
func (c *call) badParam(at, t string) error { return c.badParams(&params.Error{At: at, Text: t}) }

// define makes a row from a handler. P and R are types of package wire: its parameters and its result.
func define[P, R any](name, scope string, handle func(ctx context.Context, c *call, p P) (R, error), opts ...option) *method {
	decoder := params.Of[P]()
	m := &method{name: name, scope: scope, params: decoder, result: resultOf[R]()}
	m.invoke = func(ctx context.Context, c *call, raw json.RawMessage) (any, error) {
		var p P
		var bad error
		err := c.share.Parsing(ctx, len(raw), func() error {
			bad = decoder.Decode(raw, &p)
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case bad != nil:
			return nil, params.Refuse(name, bad)
		}
		c.extended = c.who.extended || asksExtended(&p)
		result, err := handle(ctx, c, p)
		if err != nil {
			return nil, err
		}
		return result, nil
	}
	for _, o := range opts {
		o(m)
	}
	return m
}

// view is embedded by the params of a method whose answer has two views.
type view interface{ WantsExtended() bool }

func asksExtended(p any) bool {
	v, ok := p.(view)
	return ok && v.WantsExtended()
}

// label is the name of the method in metrics; a call of no method has a label, too.
func (m *method) label() string {
	if m == nil {
		return "unknown"
	}
	return m.name
}

// work is what a call of the method has a place for.
func (m *method) work() inflight.Kind {
	switch {
	case m.lists:
		return inflight.List
	case m.control:
		return inflight.Control
	default:
		return inflight.Call
	}
}

func (m *method) need() chat.Need { return chat.Need{Scope: m.scope, Owner: m.owner} }

// Needs is what callers need for the methods, by name, for the chat commands that stand for them: one table decides about both.
func Needs() map[string]chat.Need {
	needs := map[string]chat.Need{}
	for _, m := range slices.Concat(opsMethods(), pairingMethods(), chatMethods(), sessionMethods(), jobMethods(), emptyMethods()) {
		needs[m.name] = m.need()
	}
	return needs
}

func tableOf(rows ...[]*method) (map[string]*method, []string) {
	table := map[string]*method{}
	for _, m := range slices.Concat(rows...) {
		if table[m.name] != nil || chat.ScopeLevel(m.scope) == 0 {
			panic(fmt.Sprintf("method table: %s is there twice or has no scope", m.name)) // a typing error, found by the first test
		}
		table[m.name] = m
	}
	names := append(slices.Collect(maps.Keys(table)), wire.MethodConnect)
	slices.Sort(names)
	return table, names
}

// encode turns the result of a method into JSON.
func encode(result any) (json.RawMessage, error) {
	if raw, ok := result.(interface{ json() json.RawMessage }); ok {
		return raw.json(), nil
	}
	payload := strictjson.Encode(result)
	if string(payload) == "null" && result != nil {
		return nil, fmt.Errorf("encoding a %s", reflect.TypeOf(result))
	}
	return payload, nil
}
