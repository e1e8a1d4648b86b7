package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"
	"sync"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/strictjson"
)

// Events controls which events the connection of a call receives.
type Events interface {
	// Follow sends the connection the events of a run once open was called. added reports that it did not follow the run before.
	Follow(run string) (open func(), added bool)
	// Forget undoes Follow.
	Forget(run string)
	// Subscribe sends the connection the events of every visible session. Without deltas, it receives all events of the runs of the session
	// of, and only the last events of other runs.
	Subscribe(deltas bool, of chat.SessionKey)
	// Unsubscribe undoes Subscribe, and Follow for every run so far.
	Unsubscribe()
}

// Budget limits the work of one credential; *inflight.Share implements it.
type Budget interface {
	// Parsing runs parse, which reads n bytes of JSON, when the limit of the credential permits it. The error is that of parse, or the
	// cause of ctx.
	Parsing(ctx context.Context, n int, parse func() error) error
	// Busy runs f, which reads and encodes rows, when the credential may use a processor for it. f must not wait for the budget. The error
	// is that of f, or the cause of ctx.
	Busy(ctx context.Context, f func() error) error
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
	// Extended is the view of the answer. It is set from the connection; the parameters can request it, too.
	Extended bool
	Events   Events
	Budget   Budget
	// Spend takes bytes from the allowance of the credential, or returns an error. It counts what the call adds to the store beyond its
	// parameters.
	Spend func(ctx context.Context, bytes int) error

	mu       sync.Mutex
	answered bool
	after    []func() // called when the first answer is queued
}

// WhenAnswered calls f when the first answer is queued, or at once if it already is, because the call has timed out.
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

// MarkAnswered calls the functions that wait for the first answer. The gateway calls it when the answer is queued.
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

// BadParam returns the error for a parameter. at is its place as a JSON pointer; "" = the parameters as a whole.
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

// CheckKey checks an idempotency key. A key that becomes the id of a run must not look like the id of a cron fire.
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
		return nil, nil //nolint:nilnil // a call without a name is no error
	}
	if err := c.CheckKey(key, false); err != nil {
		return nil, err
	}
	return &chat.IdempotencyKey{Owner: c.Principal(), Method: c.Method.Name, Key: key, Hash: c.ParamsHash()}, nil
}

// Dedupe returns the key under which a message of this call is accepted once.
func (c *Call) Dedupe(key string) string { return c.Principal() + "/" + c.Method.Name + "/" + key }

// ParamsHash returns a digest of the canonical JSON of all other parameters. It distinguishes calls with the same key.
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
