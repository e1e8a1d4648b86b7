package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
)

// porch is who answers while the house is still being opened: a store that migrates or cannot be reached would otherwise look like a gateway that is
// not there. It knows nobody and does nothing: every connect is told `gateway starting`, every other request 503, and the probes say that the
// process lives and is not ready. The listeners are lent to it; the gateway gets them when there is one.
type porch struct {
	lent  []*lent
	close context.CancelFunc
	ended chan error
}

// openPorch begins to answer on the main listeners.
func (p *Process) openPorch(ctx context.Context) error {
	srv, err := gateway.New(gateway.Config{
		Version: p.opts.Version, AllowedHosts: p.cfg.Hosts(), AllowedOrigins: p.cfg.AllowedOrigins, TrustedProxies: p.cfg.TrustedPrefixes(),
		MaxSockets: p.cfg.Limits.Sockets, MaxStrangers: p.cfg.Limits.Unauthenticated, MaxStrangersPerAddr: p.cfg.Limits.UnauthenticatedPerAddress,
		Credentials: credentials(p.opts.Credentials), HoldConnects: true, StopTimeout: stopSockets,
	}, nobodyHome{}, p.log)
	if err != nil {
		return fmt.Errorf("making the door for the time of the start: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	door := &porch{close: cancel, ended: make(chan error, 1)}
	listeners := make([]net.Listener, 0, len(p.main))
	for _, l := range p.main {
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			cancel()
			return fmt.Errorf("a listener is a %T", l)
		}
		one := &lent{TCPListener: tcp}
		door.lent = append(door.lent, one)
		listeners = append(listeners, one)
	}
	go func() { door.ended <- srv.Serve(ctx, listeners...) }() // ends with leavePorch
	p.porch = door
	p.later("porch", func(context.Context) error { return p.leavePorch() })
	return nil
}

// leavePorch ends what answered during the start and takes the listeners back. A second call does nothing.
func (p *Process) leavePorch() error {
	if p.porch == nil {
		return nil
	}
	last := p.porch
	p.porch = nil
	last.close()
	err := ignoreCancel(<-last.ended)
	for _, l := range last.lent {
		err = errors.Join(err, l.SetDeadline(time.Time{}))
	}
	return err
}

// lent is a listener whose Close gives it back instead of closing it.
type lent struct {
	*net.TCPListener

	back atomic.Bool
}

// Accept implements [net.Listener].
func (l *lent) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && l.back.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}

// Close implements [net.Listener].
func (l *lent) Close() error {
	l.back.Store(true)
	return l.SetDeadline(time.Unix(1, 0)) // wakes Accept
}

// nobodyHome is a house that is not there yet. What it does not have is never asked for, because nobody gets in; what the gateway asks for by
// itself, each second and at a probe, it has.
type nobodyHome struct{ gateway.Backend }

func (nobodyHome) DefaultAgent() string { return "main" }

func (nobodyHome) Status(context.Context) chat.SystemStatus {
	return chat.SystemStatus{Progress: nobodyHome{}.Progress()}
}

// Lanes is asked for each second, whether anybody is there to be told or not.
func (nobodyHome) Lanes() chat.LanesStatus { return chat.LanesStatus{} }

func (nobodyHome) Progress() chat.Progress { return chat.Progress{CronAge: -1, WriterAge: -1} }

func (nobodyHome) Ready(context.Context) error {
	return &chat.NotReadyError{Check: chat.CheckDatabase, Cause: errors.New("the gateway is starting")}
}

// Audit keeps nothing: the log of the process alone has the credentials that were refused during the start.
func (nobodyHome) Audit(context.Context, chat.Audit) error { return chat.ErrStoreUnavailable }

func (nobodyHome) Subscribe(func(chat.Event), func(chat.Event) bool) (cancel func()) {
	return func() {}
}
