package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sony/gobreaker/v2"

	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/tool"
)

var (
	errNotConnected = errors.New("it is not connected")
	errEnded        = errors.New("the connection has ended")
	errSilent       = errors.New("it answers nothing")
	// errForgotten is returned when the server has forgotten the session: a new one is made at
	// once.
	errForgotten = errors.New("it has forgotten the session")
	// errTooMany is returned for a list of tools that does not end.
	errTooMany = errors.New("its list of tools does not end")
)

// broken is a connection that a call has found useless.
type broken struct {
	session *mcp.ClientSession
	why     error
}

// server is one server with its connection.
type server struct {
	cfg     Config
	names   map[string]string // of the tools for models, by the server's names
	open    opener
	log     *slog.Logger
	breaker *gobreaker.CircuitBreaker[*mcp.CallToolResult]
	changed chan struct{}           // the server has announced that its tools have changed
	broken  chan broken             // what calls have found
	silent  chan *mcp.ClientSession // a call was not answered in time
	tried   chan struct{}           // closed when the first attempt to connect has ended, or its time has
	try     func()                  // closes tried

	mu      sync.Mutex
	session *mcp.ClientSession // nil means not connected
	tools   []tool.Tool        // as last read; kept while the server is not connected
	leftOut []chat.LeftOutTool
	state   string
	last    string
	next    chan struct{}      // closed at the next change of session
	over    *mcp.ClientSession // the last session, if its end is why the server is not connected; nil after a failed attempt to connect
}

func newServer(cfg Config, open opener, log *slog.Logger) *server {
	s := &server{
		cfg: cfg, names: modelNames(cfg), open: open, log: log, changed: make(chan struct{}, 1), broken: make(chan broken, 1), silent: make(chan *mcp.ClientSession, 1), state: StateConnecting,
		next: make(chan struct{}),
	}
	s.tried = make(chan struct{})
	s.try = sync.OnceFunc(func() { close(s.tried) })
	s.breaker = gobreaker.NewCircuitBreaker[*mcp.CallToolResult](gobreaker.Settings{
		Name: cfg.Name, Timeout: breakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		// The turn was stopped, or no connection existed: neither is a failure of the server.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) || errors.Is(err, errNotConnected) },
	})
	return s
}

// current returns the connection; nil if not connected.
func (s *server) current() *mcp.ClientSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// useless drops a connection that no longer answers. Later calls find no connection, which does not
// count as another failure of the server.
func (s *server) useless(session *mcp.ClientSession, why error) {
	s.mu.Lock()
	if s.session == session {
		s.session, s.state = nil, StateConnecting
	}
	s.mu.Unlock()
	offer(s.broken, broken{session, why})
}

// after returns the connection that follows one that has been dropped; nil when an attempt fails, or
// none can be made before ctx is done. The end of the old connection may be noticed in the answer to
// a call and by itself, in any order.
func (s *server) after(ctx context.Context, old *mcp.ClientSession) *mcp.ClientSession {
	for {
		s.mu.Lock()
		session, failed, next := s.session, s.state == StateFailed && s.over != old, s.next
		s.mu.Unlock()
		if session != nil && session != old || failed {
			return session
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// step marks a change of the connection. The caller holds mu.
func (s *server) step() {
	close(s.next)
	s.next = make(chan struct{})
}

// offer passes a connection to watch, unless one is already pending.
func offer[T any](to chan T, one T) {
	select {
	case to <- one:
	default: // one is already pending
	}
}

// run keeps connecting until ctx is done. The pause between two connections grows until one has
// lasted.
func (s *server) run(ctx context.Context) {
	defer s.try()
	defer time.AfterFunc(firstTime, s.try).Stop()
	for ctx.Err() == nil {
		_ = retry.Do(ctx, retry.Options{Policy: retry.Policy{Base: time.Second, Max: time.Minute}}, func(ctx context.Context) error { // it is in the status
			began := time.Now()
			err := s.connection(ctx)
			for errors.Is(err, errForgotten) && ctx.Err() == nil {
				err = s.connection(ctx)
			}
			if ctx.Err() != nil {
				err = nil // the end was requested
			}
			s.lost(err)
			if time.Since(began) > startTime {
				return nil
			}
			return err
		})
	}
}

// connection opens one connection and serves it until it ends.
func (s *server) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var session *mcp.ClientSession // once it can be used
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = session
	}()
	way, err := s.open.link(ctx, s.cfg, s.log)
	if err != nil {
		return err
	}
	defer way.end()
	start, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	made, err := s.client().Connect(start, way.transport, nil)
	if err != nil {
		way.end()
		return way.failed(fmt.Errorf("connecting: %w", err))
	}
	tools, leftOut, err := s.read(start, made)
	stop()
	if err != nil {
		way.end()
		_ = made.Close()
		return way.failed(err)
	}
	session = made
	s.have(session, tools, leftOut)
	s.log.InfoContext(ctx, "a server of tools is connected", "tools", len(tools))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = session.Wait() }() // why it ended is in the errors of its calls
	err = s.watch(ctx, session, ended)
	cancel()
	way.end()
	_ = session.Close()
	<-ended
	if err = cmp.Or(way.why(), err); errors.Is(err, errForgotten) {
		s.useless(session, err)
	}
	return err
}

// client makes a client. The SDK first sends a request that older servers do not support, and waits
// for its answer; some of them never answer. After any error it falls back to the older handshake,
// so that request has a separate bound.
func (s *server) client() *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "laneway", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case s.changed <- struct{}{}:
			default: // a change is already pending
			}
		},
	})
	client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == methodDiscover {
				bound, cancel := context.WithTimeout(ctx, discoverTime)
				defer cancel()
				ctx = bound
			}
			return next(ctx, method, req)
		}
	})
	return client
}

// watch reads the tools again when they have changed, until the connection ends.
func (s *server) watch(ctx context.Context, session *mcp.ClientSession, ended <-chan struct{}) error {
	last := time.Now()
	due := time.NewTimer(s.relistEvery())
	defer due.Stop()
	for {
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return ctx.Err() // the end was requested
		case broken := <-s.broken:
			if broken.session == session {
				return broken.why
			}
			continue
		case silent := <-s.silent:
			if silent == session && !s.alive(ctx, session) {
				return errSilent
			}
			continue
		case <-s.changed:
			due.Reset(relistAfter - time.Since(last))
			continue
		case <-due.C:
		}
		again, end := context.WithTimeout(ctx, startTime)
		tools, leftOut, err := s.read(again, session)
		end()
		if err != nil {
			return err
		}
		s.have(session, tools, leftOut)
		last = time.Now()
		due.Reset(s.relistEvery())
	}
}

// alive reports whether the server answers anything within the time of a call. A program that does
// not is restarted, even if it was working on calls.
func (s *server) alive(ctx context.Context, session *mcp.ClientSession) bool {
	bound, cancel := context.WithTimeout(ctx, max(s.cfg.CallTime, leastPing))
	defer cancel()
	err := session.Ping(bound, nil)
	return err == nil || refusal(err) != nil
}

// relistEvery returns how often the tools are read although the server announces no change. A
// server with an address has no connection on which it could announce one, or whose end would be
// noticed. A program has one, and may be busy with a call.
func (s *server) relistEvery() time.Duration {
	if s.cfg.URL == "" {
		return math.MaxInt64
	}
	return cmp.Or(s.cfg.Relist, relistEvery)
}

// read reads the tools that the operator lists, and why others of them are left out.
func (s *server) read(ctx context.Context, session *mcp.ClientSession) (tools []tool.Tool, leftOut []chat.LeftOutTool, err error) {
	cursor := ""
	missing := slices.Clone(s.cfg.Tools)
	for range maxPages {
		page, err := session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, nil, fmt.Errorf("reading the tools: %w", err)
		}
		for _, one := range page.Tools {
			at := slices.Index(missing, one.Name)
			if at < 0 {
				continue // not listed by the operator, or a second one of this name
			}
			missing = slices.Delete(missing, at, at+1)
			row, why := s.row(one)
			if len(tools) == maxTools {
				why = fmt.Sprintf("%d tools of a server are offered at most", maxTools)
			}
			if why != "" {
				leftOut = append(leftOut, chat.LeftOutTool{Name: one.Name, Why: why})
				continue
			}
			tools = append(tools, row)
		}
		if cursor = page.NextCursor; cursor == "" {
			for _, name := range missing {
				leftOut = append(leftOut, chat.LeftOutTool{Name: name, Why: whyMissing})
			}
			return tools, leftOut, nil
		}
	}
	return nil, nil, errTooMany
}

func (s *server) have(session *mcp.ClientSession, tools []tool.Tool, leftOut []chat.LeftOutTool) {
	s.mu.Lock()
	again := slices.Equal(s.leftOut, leftOut)
	s.session, s.tools, s.leftOut, s.state, s.last = session, tools, leftOut, StateConnected, ""
	s.step()
	s.mu.Unlock()
	s.try()
	for _, one := range leftOut {
		if !again {
			s.log.Warn("a tool is not offered", "tool", chat.Cut(chat.Printable(one.Name), 64), "reason", one.Why)
		}
	}
}

// lost records the end of a connection. It logs one line for each change, not one for each attempt
// to connect.
func (s *server) lost(err error) {
	why := ""
	if err != nil {
		why = sentence(err)
	}
	s.mu.Lock()
	known := s.state == StateFailed && s.last == why
	s.session, s.state = nil, StateFailed
	s.last = cmp.Or(why, s.last)
	s.step()
	s.mu.Unlock()
	s.try()
	if err != nil && !known {
		s.log.Warn("a server of tools is away; connecting again and again", "err", why)
	}
}

func (s *server) offered() []tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools)
}

func (s *server) status() chat.ToolServer {
	suspended := s.breaker.State() == gobreaker.StateOpen
	s.mu.Lock()
	defer s.mu.Unlock()
	out := chat.ToolServer{Name: s.cfg.Name, State: s.state, LastError: s.last, Tools: []string{}, LeftOut: s.leftOut}
	if suspended && s.state == StateConnected {
		out.State = StateSuspended
	}
	for _, one := range s.tools {
		out.Tools = append(out.Tools, one.Name)
	}
	for own, name := range s.names {
		if name != s.cfg.Name+"_"+own && slices.Contains(out.Tools, name) {
			out.Renamed = append(out.Renamed, chat.RenamedTool{Name: name, Own: own})
		}
	}
	slices.SortFunc(out.Renamed, func(a, b chat.RenamedTool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
