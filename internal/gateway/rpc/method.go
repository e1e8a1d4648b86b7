// Package rpc is the method table: the definition of methods, and their calls.
//
// # Ideas
//
// One table. A [Method] is one row: name, scope, types of its parameters and its result, handler.
// [Define] creates it from a handler, so that the types of the handler, the check of the parameters
// and the description cannot disagree. A method that is not in a [Table] does not exist.
//
// A [Call] is one request in progress: its caller, parameters and view. Handlers receive it with
// their decoded parameters. A handler has no access to the connection; it changes the events of the
// connection through [Events].
//
// # What it does not do
//
// It opens no connection, checks no scope and counts no allowance: the gateway does that before it
// invokes a method. Rows are immutable and safe for concurrent use; a Call belongs to its request.
// The package starts no goroutine.
package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// Method is one row of the table of methods: the name, the scope, the params, and the handler. A
// method that is not in the table does not exist.
type Method struct {
	Name, Scope string
	// Control methods read or stop; they have separate places among the requests in flight.
	Control bool
	// Quick methods do not block when they have no params: the reader runs them itself, which saves
	// a goroutine and a timer.
	Quick bool
	// Audited methods add one row to the audit log, in the transaction of the change; a call that
	// changes nothing adds no row.
	Audited bool
	// Owner: the write scope suffices for a session that the caller owns; the backend, which knows
	// the owner, decides.
	Owner bool
	// Lists methods read rows with messages and answer with up to [ListBytes]: a credential may run
	// only a few such calls concurrently.
	Lists bool
	// InOrder methods change a session: calls of one connection for one session run in the order in
	// which their frames arrived.
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

// Define returns a row for a handler. P and R are types of package wire: its parameters and its
// result.
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

// Invoke decodes the parameters of a call and runs the handler. The errors of parameters are
// [*fault.Error] values.
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

// Table has rows by the names of their methods.
type Table map[string]*Method

// NewTable returns a table. It panics on a duplicate name or a row without a scope: a programming
// error that any test finds.
func NewTable(rows ...[]*Method) Table {
	table := Table{}
	for _, m := range slices.Concat(rows...) {
		if table[m.Name] != nil || chat.ScopeLevel(m.Scope) == 0 {
			panic(fmt.Sprintf("method table: %s is there twice or has no scope", m.Name))
		}
		table[m.Name] = m
	}
	return table
}

// Names lists all methods that a client can call, connect included.
func (t Table) Names() []string {
	names := append(slices.Collect(maps.Keys(t)), wire.MethodConnect)
	slices.Sort(names)
	return names
}

// Events controls which events the connection of a call receives.
type Events interface {
	// Follow sends the connection the events of a run once open was called. added reports that it
	// did not follow the run before.
	Follow(run string) (open func(), added bool)
	// Forget undoes Follow.
	Forget(run string)
	// Subscribe sends the connection the events of every visible session. Without deltas, it
	// receives all events of the runs of the session of, and only the last events of other runs.
	Subscribe(deltas bool, of chat.SessionKey)
	// Unsubscribe undoes Subscribe, and Follow for every run so far.
	Unsubscribe()
}

// Call is one request in progress.
type Call struct {
	Method *Method
	Raw    json.RawMessage
	// Cred is the credential of the caller, Scopes the scopes that its connection was granted.
	Cred   auth.Credential
	Scopes []string
	// Peer and RequestID are the origin of the call, for the audit log.
	Peer      netip.Addr
	RequestID string
	// Extended is the view of the answer. It is set from the connection; the parameters can request
	// it, too.
	Extended bool
	Events   Events
	Budget   *inflight.Share // limits the work of the credential
	// Spend takes bytes from the allowance of the credential, or returns an error. It counts what
	// the call adds to the store beyond its parameters.
	Spend func(ctx context.Context, bytes int) error

	mu       sync.Mutex
	answered bool
	after    []func() // called when the first answer is queued
}

// WhenAnswered calls f when the first answer is queued, or at once if it already is, because the
// call has timed out.
func (c *Call) WhenAnswered(f func()) {
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

// MarkAnswered calls the functions that wait for the first answer. The gateway calls it when the
// answer is queued.
func (c *Call) MarkAnswered() {
	c.mu.Lock()
	after := c.after
	c.answered, c.after = true, nil
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// Principal returns the name of the caller.
func (c *Call) Principal() string { return c.Cred.Name }

// Visible returns the owner to which a query of the caller is restricted, or "".
func (c *Call) Visible() string {
	if c.Cred.Own() {
		return c.Cred.Name
	}
	return ""
}

// BadParam returns the error for a parameter. at is its place as a JSON pointer; "" = the
// parameters as a whole.
func (c *Call) BadParam(at, text string) error {
	return params.Refuse(c.Method.Name, &params.Error{At: at, Text: text})
}

// Caller returns the caller for the core.
func (c *Call) Caller() chat.Caller {
	by := chat.Caller{Principal: c.Principal(), Scopes: c.Scopes, Own: c.Cred.Own(), RequestID: c.RequestID}
	if c.Peer.IsValid() {
		by.Peer = c.Peer.String()
	}
	return by
}

// CheckKey checks an idempotency key. A key that becomes the id of a run must not look like the id
// of a cron fire.
func (c *Call) CheckKey(key string, run bool) error {
	if key == "" {
		return nil
	}
	if err := chat.CheckMessageID("idempotencyKey", key); err != nil {
		return c.BadParam("/idempotencyKey", "must be 1 to 128 printable ASCII characters without blanks")
	}
	if run && strings.Contains(key, ":") {
		return c.BadParam("/idempotencyKey", "must not contain ':'")
	}
	return nil
}

// Once returns the idempotency key of a call for the store; nil when it has no key.
func (c *Call) Once(key string) (*chat.IdempotencyKey, error) {
	if key == "" {
		return nil, nil // a call without a name is no error
	}
	if err := c.CheckKey(key, false); err != nil {
		return nil, err
	}
	return &chat.IdempotencyKey{Owner: c.Principal(), Method: c.Method.Name, Key: key, Hash: c.ParamsHash()}, nil
}

// Dedupe returns the key under which a message of this call is accepted once.
func (c *Call) Dedupe(key string) string { return c.Principal() + "/" + c.Method.Name + "/" + key }

// ParamsHash returns a digest of the canonical JSON of all other parameters. It distinguishes calls
// with the same key.
func (c *Call) ParamsHash() string {
	var members map[string]any
	dec := json.NewDecoder(strings.NewReader(string(c.Raw)))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil {
		members = nil // no params; other values were refused before
	}
	delete(members, "idempotencyKey")
	sum := sha256.Sum256(strictjson.Encode(members)) // encoding/json sorts the names
	return hex.EncodeToString(sum[:])
}

// ListBytes is the limit of a list answer, in bytes of its rows.
const ListBytes = 4 << 20

// Encoded is a result of type T that is already JSON.
type Encoded[T any] []byte

func (e Encoded[T]) json() json.RawMessage  { return json.RawMessage(e) }
func (Encoded[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// Twice is a result of type T with two frames: First is sent at once, the result of Then when it
// returns. The context of Then ends with the connection.
type Twice[T any] struct {
	First T
	Then  func(ctx context.Context) (T, error)
}

func (t Twice[T]) frames() (first any, then func(ctx context.Context) (any, error)) {
	return t.First, func(ctx context.Context) (any, error) { return t.Then(ctx) }
}

func (Twice[T]) resultType() reflect.Type { return reflect.TypeFor[T]() }

// Frames splits a result into the first frame and the function for the second one; nil = there is
// only one frame.
func Frames(result any) (first any, then func(ctx context.Context) (any, error)) {
	if both, two := result.(interface {
		frames() (any, func(context.Context) (any, error))
	}); two {
		return both.frames()
	}
	return result, nil
}

// resultOf returns the type of package wire of a handler's answer.
func resultOf[R any]() reflect.Type {
	var r R
	if wrapped, ok := any(r).(interface{ resultType() reflect.Type }); ok {
		return wrapped.resultType()
	}
	return reflect.TypeFor[R]()
}

// Encode encodes the result of a method as JSON.
func Encode(result any) (json.RawMessage, error) {
	if raw, ok := result.(interface{ json() json.RawMessage }); ok {
		return raw.json(), nil
	}
	if of, ok := result.(interface{ Variant() any }); ok {
		result = of.Variant()
	}
	payload := strictjson.Encode(result)
	if string(payload) == "null" && result != nil {
		return nil, fmt.Errorf("encoding a %s", reflect.TypeOf(result))
	}
	return payload, nil
}

// Millis returns a time in Unix milliseconds; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Instant returns a time in Unix milliseconds; nil for the zero time.
func Instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}

// ISOTime formats a time in UTC for clients.
func ISOTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
