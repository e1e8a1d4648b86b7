package rpc

import (
	"context"
	"encoding/json"
	"reflect"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/params"
)

// Method is one row of the table of methods: the name, the scope, the params, and the handler. A method that is not in the table does not
// exist.
type Method struct {
	Name, Scope string
	// Control methods read or stop; they have separate places among the requests in flight.
	Control bool
	// Quick methods do not block when they have no params: the reader runs them itself, which saves a goroutine and a timer.
	Quick bool
	// Audited methods add one row to the audit log, in the transaction of the change; a call that changes nothing adds no row.
	Audited bool
	// Owner: the write scope suffices for a session that the caller owns; the backend, which knows the owner, decides.
	Owner bool
	// Lists methods read rows with messages and answer with up to [ListBytes]: a credential may run only a few such calls concurrently.
	Lists bool
	// InOrder methods change a session: calls of one connection for one session run in the order in which their frames arrived.
	InOrder bool
	// Limit is the allowance that a call is counted in, or "".
	Limit  auth.LimitClass
	Params *params.Decoder
	// Result is a type of package wire.
	Result reflect.Type

	invoke func(ctx context.Context, c *Call, raw json.RawMessage) (any, error)
}

// Option of a method.
type Option func(*Method)

// Control marks a method that reads or stops.
func Control(m *Method) { m.Control = true }

// Stops reports whether the method stops work: it is a control method that changes something.
func (m *Method) Stops() bool { return m.Control && m.Scope != chat.ScopeRead }

// Quick marks a method that does not block when it has no parameters.
func Quick(m *Method) { m.Quick = true }

// Lists marks a method that answers with rows of messages.
func Lists(m *Method) { m.Lists = true }

// InOrder marks a method whose calls run in the order of arrival, see [Method].
func InOrder(m *Method) { m.InOrder = true }

// Audited marks a method whose changes add a row to the audit log.
func Audited(m *Method) { m.Audited = true }

// OrOwner makes the write scope suffice for a session that the caller owns.
func OrOwner(m *Method) { m.Owner = true }

// Limited counts the calls of a method in an allowance.
func Limited(class auth.LimitClass) Option { return func(m *Method) { m.Limit = class } }

// Define returns a row for a handler. P and R are types of package wire: its parameters and its result.
func Define[P, R any](name, scope string, handle func(ctx context.Context, c *Call, p P) (R, error), opts ...Option) *Method {
	decoder := params.Of[P]()
	m := &Method{Name: name, Scope: scope, Params: decoder, Result: resultOf[R]()}
	m.invoke = func(ctx context.Context, c *Call, raw json.RawMessage) (any, error) {
		var p P
		var bad error
		err := c.Budget.Parsing(ctx, len(raw), func() error {
			bad = decoder.Decode(raw, &p)
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case bad != nil:
			return nil, params.Refuse(name, bad)
		}
		c.Extended = c.Extended || asksExtended(&p)
		var result R
		run := func() (err error) {
			result, err = handle(ctx, c, p)
			return err
		}
		if m.Lists {
			err = c.Budget.Busy(ctx, run)
		} else {
			err = run()
		}
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

// view is implemented by the params of a method whose answer has two views.
type view interface{ WantsExtended() bool }

func asksExtended(p any) bool {
	v, ok := p.(view)
	return ok && v.WantsExtended()
}

// Invoke decodes the parameters of a call and runs the handler. The errors of parameters are [*fault.Error] values.
func (m *Method) Invoke(ctx context.Context, c *Call) (any, error) { return m.invoke(ctx, c, c.Raw) }

// Label returns the name of the method in metrics, for a nil method, too.
func (m *Method) Label() string {
	if m == nil {
		return "unknown"
	}
	return m.Name
}

// Need returns what the method requires of a caller.
func (m *Method) Need() chat.Need { return chat.Need{Scope: m.Scope, Owner: m.Owner} }
