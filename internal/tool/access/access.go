// Package access manages the tokens with which the programs of turns reach the tools of their turn.
//
// A turn whose agent is a program opens an access ([Turns.Open]): a random token, and the address
// where the tools are served. The program receives both in its environment. A request with the
// token ([Turns.Enter]) has the tools and the rights of this turn, and nothing else. The token ends
// with the turn: running calls are cancelled and awaited, and later ones are refused.
//
// A program that is kept for further turns of its session ([Turns.OpenKept]) cannot receive a new
// token for each of them. Its token belongs to the session: during a turn it gives access to the
// tools of that turn, and between turns to none.
//
// Only the SHA-256 of a token is kept, in the memory of this process: its programs run on the same
// host, and after the end of the process the turn runs again with another token. The package starts
// no goroutine.
package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"sync"

	"laneway/internal/agent"
)

// Prefix is the beginning of tokens of turns, which distinguishes them from credentials of the
// gateway.
const Prefix = "lwturn_"

// ErrEnded is the cause with which running calls end with their turn.
var ErrEnded = errors.New("the turn of this token has ended")

// Turns has the tokens of the running turns. It is safe for concurrent use.
type Turns struct {
	url    string
	secret [sha256.Size]byte // of the tokens of sessions

	mu    sync.Mutex
	turns map[[sha256.Size]byte]*turn // by the hash of the token
}

type turn struct {
	box   agent.Toolbox
	ctx   context.Context //nolint:containedctx // of the turn: it bounds the calls that come from outside
	calls sync.WaitGroup
}

// New makes an empty Turns. url is where the tools are served.
func New(url string) *Turns {
	t := &Turns{url: url, turns: map[[sha256.Size]byte]*turn{}}
	_, _ = rand.Read(t.secret[:])
	return t
}

// Open makes a token for the tools of a turn, which is valid until end is called. end waits for
// running calls. ctx is that of the turn.
func (t *Turns) Open(ctx context.Context, box agent.Toolbox) (access agent.ToolAccess, end func()) {
	var raw [sha256.Size]byte
	_, _ = rand.Read(raw[:])
	return t.open(ctx, raw[:], box)
}

// OpenKept is Open for a program that is kept: each turn of the session has the same token, as long
// as this process runs. The program works for one turn at a time, and its runner ends one access
// before it opens the next.
func (t *Turns) OpenKept(ctx context.Context, session string, box agent.Toolbox) (access agent.ToolAccess, end func()) {
	mac := hmac.New(sha256.New, t.secret[:])
	_, _ = mac.Write([]byte(session)) // never fails
	return t.open(ctx, mac.Sum(nil), box)
}

func (t *Turns) open(ctx context.Context, raw []byte, box agent.Toolbox) (access agent.ToolAccess, end func()) {
	token := Prefix + base64.RawURLEncoding.EncodeToString(raw)
	key := sha256.Sum256([]byte(token))
	ctx, cancel := context.WithCancelCause(ctx)
	one := &turn{box: box, ctx: ctx}
	t.mu.Lock()
	t.turns[key] = one
	t.mu.Unlock()
	return agent.ToolAccess{URL: t.url, Token: token}, func() {
		t.mu.Lock()
		if t.turns[key] == one { // not if a later turn has the token
			delete(t.turns, key)
		}
		t.mu.Unlock()
		cancel(ErrEnded)
		one.calls.Wait()
	}
}

// Enter returns the tools of the turn that has this token, for one request: ctx is done when the
// turn or the given context is, and the caller calls leave at the end of the request. ok is false
// when no running turn has the token.
func (t *Turns) Enter(ctx context.Context, token string) (box agent.Toolbox, in context.Context, leave func(), ok bool) {
	key := sha256.Sum256([]byte(token))
	t.mu.Lock()
	one := t.turns[key]
	if one != nil {
		one.calls.Add(1)
	}
	t.mu.Unlock()
	if one == nil {
		return nil, nil, nil, false
	}
	in, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(one.ctx, func() { cancel(context.Cause(one.ctx)) })
	return one.box, in, func() { stop(); cancel(nil); one.calls.Done() }, true
}
