package external

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/process"
	"laneway/internal/secret"
	"laneway/internal/tool"
)

// The bounds of a server.
const (
	// maxMessage is the longest message, maxResult the longest text of a result, in bytes.
	maxMessage = 4 << 20
	maxResult  = 64 << 10
	// maxTools and maxPages bound the list of tools; maxDescription and maxSchema bound each of them, in bytes.
	maxTools       = 64
	maxPages       = 16
	maxDescription = 2 << 10
	maxSchema      = 16 << 10
	// startTime bounds the first exchange and the reading of the tools.
	startTime = 30 * time.Second
	// methodDiscover is the first request of the SDK; discoverTime is how long a server has to answer it.
	methodDiscover = "server/discover"
	discoverTime   = 3 * time.Second
	// firstTime is how long turns wait for the first attempt to connect to a server.
	firstTime = 10 * time.Second
	// leastPing is the shortest time in which a server has to answer a ping when it has not answered a call.
	leastPing = 5 * time.Second
	// DefaultCallTime is how long one call may take.
	DefaultCallTime = 30 * time.Second
	// breakerPause is how long a server that has failed [breakerFailures] times in a row receives no calls.
	breakerPause    = 30 * time.Second
	breakerFailures = 5
	// relistAfter is the shortest time between two readings of the tools, relistEvery the longest one for an address.
	relistAfter = 5 * time.Second
	relistEvery = time.Minute
	// MaxCallTime is the longest [Config.CallTime]: the loops that make calls allow each of them a minute.
	MaxCallTime = 55 * time.Second
)

// Config of one server.
type Config struct {
	// Name is the prefix of the names of its tools.
	Name string
	// Command and its arguments, with further variables and the working directory; or URL with a bearer token, which may be unset.
	Command []string
	Env     map[string]string
	Dir     string
	URL     string
	Token   secret.Secret
	// Tools are the offered tools, by the server's names.
	Tools []string
	// ReadOnly are the offered tools that neither create nor send.
	ReadOnly []string
	// CallTime bounds one call, at most [MaxCallTime]; 0 means [DefaultCallTime].
	CallTime time.Duration
	// Relist is how often the tools of an address are read; 0 means every minute.
	Relist time.Duration
	// Reaper ends processes that leave the group of the program; nil means that they outlive the connection.
	Reaper *process.Reaper
}

// States of a server.
const (
	StateConnecting = "connecting"
	StateConnected  = "connected"
	// StateSuspended is connected, and receives no calls for a while because it has failed several times.
	StateSuspended = "suspended"
	// StateFailed is not connected; the connection is retried.
	StateFailed = "failed"
)

// Set has the configured servers. It is safe for concurrent use.
type Set struct{ servers []*server }

var _ tool.External = (*Set)(nil)

// New makes a set that is not connected. lookup returns the variables of the gateway, of which programs receive PATH, HOME, LANG and TZ; transport is
// for addresses, nil means a default one. A nil log discards.
func New(configs []Config, lookup func(string) (string, bool), transport http.RoundTripper, log *slog.Logger) *Set {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if transport == nil {
		transport = http.DefaultTransport
	}
	s := &Set{}
	for _, cfg := range configs {
		cfg.CallTime = min(cmp.Or(cfg.CallTime, DefaultCallTime), MaxCallTime)
		s.servers = append(s.servers, newServer(cfg, opener{lookup: lookup, transport: transport}, log.With("server", cfg.Name)))
	}
	return s
}

// Run keeps the connections until ctx is done; programs have ended when it returns.
func (s *Set) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range s.servers {
		all.Go(func() { one.run(ctx) })
	}
	all.Wait()
}

// Tools implements [tool.External].
func (s *Set) Tools(names []string) []tool.Tool {
	var all []tool.Tool
	for _, one := range s.servers {
		if slices.Contains(names, one.cfg.Name) {
			all = append(all, one.offered()...)
		}
	}
	return all
}

// ServerOf implements [tool.External].
func (s *Set) ServerOf(name string) string {
	for _, one := range s.servers {
		if strings.HasPrefix(name, one.cfg.Name+"_") {
			return one.cfg.Name
		}
	}
	return ""
}

// Await implements [tool.External].
func (s *Set) Await(ctx context.Context, names []string) {
	for _, one := range s.servers {
		if !slices.Contains(names, one.cfg.Name) {
			continue
		}
		select {
		case <-one.tried:
		case <-ctx.Done():
			return
		}
	}
}

// Status lists the servers in the order of the configuration.
func (s *Set) Status() []chat.ToolServer {
	list := make([]chat.ToolServer, 0, len(s.servers))
	for _, one := range s.servers {
		list = append(list, one.status())
	}
	return list
}
