package rpc

import (
	"context"
	"encoding/json"
	"reflect"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/params"
)

// Method is one row of the table that decides what can be called: the name, the scope, what the params are, and what answers.
// What is not in the table does not exist.
type Method struct {
	Name, Scope string
	// Control methods look or stop; they have places of their own among the requests in flight.
	Control bool
	// Quick methods answer from memory when they have no params: the reader does it itself, which saves a goroutine and a timer.
	Quick bool
	// Audited methods leave one row in the log of changes, written with the change itself; a call that changes nothing leaves none.
	Audited bool
	// Owner: write suffices on a session that the caller owns; the backend, which knows the owner, decides.
	Owner bool
	// Lists methods read rows with texts and answer with up to [ListBytes]: a credential has few such calls at once.
	Lists bool
	// InOrder methods change a session: those of one connection that address one session run in the order in which their frames arrived.
	InOrder bool
	// Limit is the allowance that a call takes from; "" = none.
	Limit  auth.LimitClass
	Params *params.Decoder
	// Result is a type of package wire.
	Result reflect.Type

	invoke func(ctx context.Context, c *Call, raw json.RawMessage) (any, error)
}

// Option of a method.
type Option func(*Method)

// Control makes a method one that looks or stops.
func Control(m *Method) { m.Control = true }

// Quick makes a method one that answers from memory when it has no parameters.
func Quick(m *Method) { m.Quick = true }

// Lists makes a method one that answers with rows of texts.
func Lists(m *Method) { m.Lists = true }

// InOrder makes a method one whose calls run in order of arrival, see [Method].
func InOrder(m *Method) { m.InOrder = true }

// Audited makes a method one whose changes leave a row in the log of changes.
func Audited(m *Method) { m.Audited = true }

// OrOwner makes write scope suffice on a session that the caller owns.
func OrOwner(m *Method) { m.Owner = true }

// Limited makes the calls of a method take from an allowance.
func Limited(class auth.LimitClass) Option { return func(m *Method) { m.Limit = class } }

// Define makes a row from a handler. P and R are types of package wire: its parameters and its result.
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

// view is embedded by the params of a method whose answer has two views.
type view interface{ WantsExtended() bool }

func asksExtended(p any) bool {
	v, ok := p.(view)
	return ok && v.WantsExtended()
}

// Invoke decodes the parameters of a call and runs the handler. The errors of parameters are [*fault.Error] values.
func (m *Method) Invoke(ctx context.Context, c *Call) (any, error) { return m.invoke(ctx, c, c.Raw) }

// Label is the name of the method in metrics; a call of no method has a label, too.
func (m *Method) Label() string {
	if m == nil {
		return "unknown"
	}
	return m.Name
}

// Need is what a caller needs for the method.
func (m *Method) Need() chat.Need { return chat.Need{Scope: m.Scope, Owner: m.Owner} }
