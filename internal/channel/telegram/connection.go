package telegram

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"laneway/internal/channel"
)

// States of [channel.Status].
const (
	stateStopped   = "stopped"
	stateConnected = "connected"
	stateDegraded  = "degraded"
	stateConflict  = "conflict"
	stateStandby   = "standby"
	stateDisabled  = "disabled"
)

// connection is the state of the connection to Telegram. The poller writes it, Status and the senders read it. It is safe for concurrent use.
type connection struct {
	log *slog.Logger
	// overdue is how long a poll may go without an answer before the connection counts as degraded; 0 means the channel does not poll.
	overdue time.Duration

	mu       sync.Mutex
	running  bool
	state    string
	lastErr  string
	polled   time.Time // the last completed getUpdates
	down     bool      // the last getUpdates did not reach Telegram
	diskFull bool      // the last attachment could not be saved
}

// begin and end mark the start and the end of Run.
func (c *connection) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.state = true, stateDegraded
}

func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.state, c.down = false, stateStopped, false
}

// set records the state with a sentence about its reason. A change is logged once.
func (c *connection) set(ctx context.Context, state, why string) {
	c.mu.Lock()
	before := c.state
	c.state, c.lastErr = state, why
	c.mu.Unlock()
	if before != state {
		c.log.InfoContext(ctx, "the state of the channel changed", "from", before, "to", state, "why", why)
	}
}

// answered records a completed poll. Only a poll proves that Telegram can be reached: it may be repeated without harm.
func (c *connection) answered(ctx context.Context) {
	c.set(ctx, stateConnected, "")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polled, c.down = time.Now(), false
}

// setDown records whether polls fail to reach Telegram.
func (c *connection) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// setDiskFull records whether the last attachment could not be saved.
func (c *connection) setDiskFull(full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diskFull = full
}

// patience bounds one call that sends a message. While Telegram cannot be reached the bound is short: a call that hangs would delay its message
// after the network has recovered.
func (c *connection) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return 2 * probeTime
	}
	return callTime
}

// status fills in the state of the connection. A connection whose poll is overdue is degraded, even before the poll has failed.
func (c *connection) status(s channel.Status) channel.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Running, s.State, s.LastError, s.Down, s.LastPollAge = c.running, c.state, c.lastErr, c.down, -1
	if !c.polled.IsZero() {
		s.LastPollAge = time.Since(c.polled)
	}
	if s.State == stateConnected && c.overdue > 0 && s.LastPollAge > c.overdue {
		s.State, s.LastError = stateDegraded, "Telegram has not answered for a while"
	}
	if s.State == stateConnected && c.diskFull {
		s.State, s.LastError = stateDegraded, errDisk.Error()
	}
	s.Connected = s.State == stateConnected
	return s
}
