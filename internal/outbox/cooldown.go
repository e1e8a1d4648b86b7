package outbox

import (
	"sync"
	"time"
)

const (
	// probeInterval is the time between two probes of a channel that reports its provider as unreachable, of probeRows messages each. A failed attempt may
	// still have arrived, so probes are rare.
	probeInterval = time.Minute
	probeRows     = 4
	// provenTime is how long a delivery takes precedence over the status that the channel reports.
	provenTime = time.Minute
)

// cooldowns records for each channel until when nothing is claimed. It is safe for concurrent use; no lock is held while a channel is called.
type cooldowns struct {
	mu sync.Mutex
	by map[string]cooldown
}

type cooldown struct {
	until  time.Time // the provider requested a pause in every chat
	probe  time.Time // the next probe while the provider is unreachable; zero while it is reachable
	proven time.Time // the last delivery while it was reported unreachable
}

// split divides channels into those to serve and those to probe; all others are left out. A channel to probe counts as probed.
func (c *cooldowns) split(names []string, down func(name string) bool, now time.Time) (serve, probe []string) {
	for _, name := range names {
		unreachable := down(name)
		c.mu.Lock()
		at := c.by[name]
		switch {
		case now.Before(at.until):
		case !unreachable:
			c.set(name, cooldown{until: at.until})
			serve = append(serve, name)
		case now.Before(at.proven.Add(provenTime)):
			serve = append(serve, name)
		case now.Before(at.probe):
		default:
			at.probe = now.Add(probeInterval)
			c.set(name, at)
			probe = append(probe, name)
		}
		c.mu.Unlock()
	}
	return serve, probe
}

// hold claims nothing for a channel until the given time, unless a later time is set already.
func (c *cooldowns) hold(name string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[name]; until.After(at.until) {
		at.until = until
		c.set(name, at)
	}
}

// delivered records that a message has arrived although the channel may report its provider as unreachable.
func (c *cooldowns) delivered(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[name]; !at.probe.IsZero() {
		at.proven = now
		c.set(name, at)
	}
}

func (c *cooldowns) set(name string, at cooldown) {
	if c.by == nil {
		c.by = map[string]cooldown{}
	}
	c.by[name] = at
}
