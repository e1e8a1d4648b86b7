package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// peer is one agent: its process, the connection to it, and which part of the conversation it has
// seen. It runs one turn at a time.
type peer struct {
	pool *pool
	log  *slog.Logger
	cfg  *Config
	dir  string
	hide *strings.Replacer // removes secrets from the agent's failures
	proc *process.Process
	link *link
	conn *sdk.ClientSideConnection
	stop context.CancelCauseFunc // ends the process: SIGTERM, later SIGKILL
	gone chan struct{}           // closed when the process has ended
	exit process.Exit            // valid when gone is closed

	kept    program.Kept  // if its Sessions is nil, the agent's session ends with its process
	started string        // see process.Started
	strays  chan struct{} // signals an update outside of a turn
	// replayed is true once a message or a call has arrived outside of a turn.
	replayed atomic.Bool

	mu   sync.Mutex
	turn *turn // the running turn, or nil

	// Only the running turn uses these.
	id             sdk.SessionId // "" = no session yet
	tools          bool          // the session has the tools of the gateway
	hello          sdk.InitializeResponse
	refusesServers bool // the agent has refused a session with MCP servers
	memory         program.Memory
	linesBefore    int  // number of lines of standard error before the turn
	unstored       bool // the session, or its process, is not stored yet
}

// start starts the process of a session in a directory, connects to it, and continues the agent
// session stored in kept, or makes a new one.
func (r *Runner) start(ctx context.Context, session chat.SessionKey, dir string, access agent.ToolAccess, kept agent.Sessions) (*peer, error) {
	p, err := r.open(ctx, session, dir, access)
	if err != nil {
		return nil, err
	}
	p.kept.Sessions = kept
	limit := startTime
	if r.cfg.Installs {
		limit = installTime
	}
	greeting, cancel := context.WithTimeoutCause(ctx, limit, errSlowStart)
	defer cancel()
	if err = p.greet(greeting); err == nil && !p.takeUp(greeting, access) {
		err = p.begin(greeting, access)
	}
	if err != nil {
		failed := p.failure(ctx, err)
		p.kill(err)
		<-p.gone
		return nil, failed
	}
	return p, nil
}

// open starts the process of a session and opens the connection to it.
func (r *Runner) open(ctx context.Context, session chat.SessionKey, dir string, access agent.ToolAccess) (*peer, error) {
	log := r.log.With("session", session.String())
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	spec := r.spec(session, dir, access, log)
	proc, err := process.Start(life, spec)
	if err != nil {
		stop(nil)
		return nil, program.NotStarted(err)
	}
	p := &peer{pool: &r.pool, log: log, cfg: &r.cfg, dir: dir, hide: spec.Hide, proc: proc, stop: stop, gone: make(chan struct{})}
	p.kept = program.Kept{Key: session, Dir: dir, Log: log}
	p.started, p.strays = proc.Identity(), make(chan struct{}, 1)
	output, into := io.Pipe()
	p.link = newLink(output, proc, p.update, log)
	context.AfterFunc(life, p.link.close) // the connection may have stopped reading
	r.pool.setAlive(p, true)
	kept := r.pool.spawn(func() { p.relay(life, into) })
	if !kept { // the pool was closed meanwhile, so it does not wait for this process
		stop(errClosed)
		p.relay(life, into)
		return nil, agent.NewError(chat.FailUnknown, "The gateway is about to end; try again later.", errClosed)
	}
	p.conn = sdk.NewClientSideConnection(client{p}, p.link, p.link)
	p.conn.SetLogger(slog.New(slog.DiscardHandler)) // its lines quote the agent's output
	p.link.open()
	return p, nil
}

// relay passes the output of the process to the connection and reaps the process.
func (p *peer) relay(life context.Context, into *io.PipeWriter) {
	defer p.stop(nil)
	err := p.proc.Read(life, func(piece []byte) error {
		_, err := into.Write(piece)
		return err
	})
	if err != nil { // the connection has stopped reading
		p.stop(err)
	}
	_ = into.Close() // never fails
	mute := time.AfterFunc(cancelTime, func() { p.stop(errDisconnected) })
	defer mute.Stop()
	p.exit = p.proc.Wait()
	p.pool.setAlive(p, false)
	close(p.gone)
}

// greet makes the first exchange with the agent.
func (p *peer) greet(ctx context.Context) error {
	hello, err := p.conn.Initialize(ctx, sdk.InitializeRequest{
		ProtocolVersion: sdk.ProtocolVersionNumber, ClientInfo: &sdk.Implementation{Name: "laneway", Version: "1"},
	})
	switch {
	case err != nil:
		return fmt.Errorf("initializing: %w", orCause(ctx, err))
	case hello.ProtocolVersion != sdk.ProtocolVersionNumber:
		return agent.NewError(chat.FailBadResponse, fmt.Sprintf(
			"The program behind this agent speaks version %d of the protocol, and the gateway version %d; the operator has to install another version.",
			hello.ProtocolVersion, sdk.ProtocolVersionNumber), nil)
	default:
		p.hello = hello
		return nil
	}
}

// closes reports whether the agent can close sessions.
func (p *peer) closes() bool { return p.hello.AgentCapabilities.SessionCapabilities.Close != nil }

// The environment variables with which programs find the tools of their turn.
const (
	urlVariable   = "LANEWAY_MCP_URL"
	tokenVariable = "LANEWAY_MCP_TOKEN"
)

var errSlowStart = errors.New("the agent did not answer in time after its start")

// orCause returns the cause of ctx if ctx has ended, because err then only repeats that, and err
// otherwise.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// ended reports whether the process or the connection has ended.
func (p *peer) ended() bool {
	select {
	case <-p.gone:
		return true
	case <-p.conn.Done():
		return true
	default:
		return false
	}
}

// kill ends the process with SIGTERM and, after killTime, SIGKILL. It does not wait.
func (p *peer) kill(why error) { p.stop(why) }

// quit closes the session and the input of the process, and kills the process if it does not end
// within cancelTime.
func (p *peer) quit() {
	p.closeSession(context.Background(), p.id) //nolint:forbidigo // it is bounded, and no turn runs
	p.proc.CloseInput()
	timer := time.NewTimer(cancelTime)
	defer timer.Stop()
	select {
	case <-p.gone:
	case <-timer.C:
		p.kill(errIdle)
	}
}

var errIdle = errors.New("the session has not used its process")

// update passes an update to the running turn. Updates outside of a turn, or for another session,
// are dropped.
func (p *peer) update(n sdk.SessionNotification) {
	switch t := p.current(); {
	case t == nil:
		if u := n.Update; u.UserMessageChunk != nil || u.AgentMessageChunk != nil || u.ToolCall != nil {
			p.replayed.Store(true)
		}
		select {
		case p.strays <- struct{}{}:
		default:
		}
	case t.session == n.SessionId:
		t.reads.see(n.Update) // before the agent can act on what it has read: the turn may apply the update later
		t.update(n.Update)
	}
}

func (p *peer) current() *turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turn
}

func (p *peer) setTurn(t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn = t
}

// failure classifies an error of the connection: the end of the turn, the end of the process, or a
// refusal of the agent.
func (p *peer) failure(ctx context.Context, err error) error {
	var (
		known   *agent.Error
		refused *sdk.RequestError
	)
	switch ended := agent.Ended(ctx); {
	case ended != nil:
		return ended
	case errors.As(err, &known):
		return known
	case errors.Is(err, errSlowStart):
		return agent.NewError(chat.FailFirstByte, "The program behind this agent did not answer in time after its start; try again later.", err)
	case p.link.broken.Load() != nil:
		p.kill(err)
		return agent.NewError(chat.FailBadResponse, "The program behind this agent does not keep to the protocol; the operator has to check the agent's command.", *p.link.broken.Load())
	case p.ended():
		p.kill(err)
		<-p.gone
		return program.Ended(p.exit)
	case errors.As(err, &refused) && refused.Code == authRequired:
		text := "The agent wants to be signed in (" + p.words(refused) + "); the operator has to do this once on the gateway's machine, or give it a key in env."
		if p.cfg.SignIn != "" {
			text = "The agent wants to be signed in (" + p.words(refused) + "); the operator has to " + p.cfg.SignIn + "."
		}
		return agent.NewError(chat.FailAuth, text, errors.New(p.hide.Replace(err.Error())))
	case errors.As(err, &refused):
		text := "The agent reported a failure: " + p.words(refused) + "."
		if last := p.proc.LastLines(p.linesBefore, stderrTime); last != "" {
			text += " Its last output: " + last
		}
		return agent.NewError(chat.FailProgram, text, errors.New(p.hide.Replace(err.Error())))
	default:
		return agent.NewError(chat.FailProgram, "The agent behind this session failed; try again.", err)
	}
}

// stderrTime is how long a failure waits for a line of standard error.
const stderrTime = 200 * time.Millisecond

// authRequired is the error code of the protocol for an agent that requires a sign-in.
const authRequired = -32000

const (
	// maxLine bounds a message of an agent, in bytes.
	maxLine = 8 << 20
	// maxAsked is how many requests of an agent may wait for their response.
	maxAsked = 64
)

var (
	errLongLine = fmt.Errorf("a message is longer than %d bytes", maxLine)
	errFlood    = fmt.Errorf("more than %d requests wait for their response", maxAsked)
)

// link is between a process and the connection of the SDK: the SDK reads from it and writes to it.
// Responses and requests pass through. Session updates are passed to update instead, in order with
// the responses. Other notifications and lines that are not messages are dropped. The reading
// goroutine of the connection calls Read, which waits until the link is opened.
type link struct {
	from   *io.PipeReader
	in     *bufio.Reader
	ready  chan struct{}
	out    io.Writer
	update func(sdk.SessionNotification)
	log    *slog.Logger

	rest  []byte // of a partly read message
	line  []byte
	asked atomic.Int64
	// broken is why reading has stopped although the process runs; nil while it is read.
	broken atomic.Pointer[error]
}

func newLink(from *io.PipeReader, out io.Writer, update func(sdk.SessionNotification), log *slog.Logger) *link {
	return &link{from: from, in: bufio.NewReaderSize(from, 64<<10), ready: make(chan struct{}), out: out, update: update, log: log}
}

// open lets the connection read.
func (l *link) open() { close(l.ready) }

// close ends reading and fails the writes of the process's output.
func (l *link) close() { _ = l.from.CloseWithError(io.ErrClosedPipe) } // never fails

// message has the members that decide how a message is routed.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (m message) request() bool { return m.Method != "" && len(m.ID) > 0 }

// Read implements [io.Reader]; it returns the messages that pass. After an error it reads nothing
// more from the process.
func (l *link) Read(p []byte) (int, error) {
	<-l.ready
	for len(l.rest) == 0 {
		line, err := l.next()
		pass := false
		if err == nil {
			pass, err = l.route(line)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				l.broken.Store(&err)
			}
			_ = l.from.CloseWithError(err) // never fails
			return 0, err                  // io.EOF must not be wrapped
		}
		if pass {
			l.rest = line
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next returns the next line with its newline. The slice is valid until the next call.
func (l *link) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case len(l.line) > maxLine:
			return nil, errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		default:
			return l.line, nil
		}
	}
}

// route reports whether a line passes to the SDK, and handles session updates.
func (l *link) route(line []byte) (pass bool, err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return false, nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		l.log.Debug("an agent wrote a line that is no message", "bytes", len(line))
		return false, nil //nolint:nilerr // libraries of agents print such lines
	}
	switch {
	case m.request():
		if l.asked.Add(1) > maxAsked {
			return false, errFlood
		}
		return true, nil
	case m.Method == sdk.ClientMethodSessionUpdate:
		l.take(m.Params)
		return false, nil
	case m.Method != "":
		return m.Method == "$/cancel_request", nil
	default:
		return len(m.ID) > 0, nil
	}
}

func (l *link) take(params json.RawMessage) {
	var n sdk.SessionNotification
	if err := json.Unmarshal(params, &n); err != nil { // a kind that the SDK does not know yet
		l.log.Debug("an update of an agent is not understood", "bytes", len(params))
		return
	}
	l.update(n)
}

// Write implements [io.Writer]. The SDK writes one message at a time.
func (l *link) Write(p []byte) (int, error) {
	var m message
	if json.Unmarshal(p, &m) == nil && m.Method == "" {
		l.asked.Add(-1)
	}
	return l.out.Write(p)
}
