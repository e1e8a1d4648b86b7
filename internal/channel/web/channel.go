package web

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Name is the channel's name in targets; the chat of a target is a session key.
const Name = channel.Web

// Reasons of failed attempts; the set is closed.
const (
	ReasonAddress = "bad_address" // no session key
	ReasonAgent   = "no_agent"    // the agent of the session does not exist
	ReasonForeign = "not_theirs"  // the session is somebody else's
	ReasonStore   = "store"       // it could not be written
	ReasonStopped = "not_running" // the channel has no house
)

// storeAway is what people are told while nothing can be delivered.
const storeAway = "the database does not answer"

// House is what the channel needs of its house besides taking messages.
type House interface {
	channel.House
	// Say adds a reply to the transcript of a session and tells the watchers. It returns the number of the line. The same reply, by its id, adds one
	// line however often it is said; watchers may hear it again after a crash. chat.ErrUnknownAgent and chat.ErrSessionNotFound will not pass.
	Say(ctx context.Context, key chat.SessionKey, r chat.Reply) (seq int64, err error)
	// StoreUp reports whether the store answered when it was last asked. It asks nobody.
	StoreUp() bool
}

// Channel delivers into transcripts. Make it with New; it is safe for concurrent use.
type Channel struct {
	mu      sync.Mutex
	house   House         // nil while it does not run
	running chan struct{} // closed while it runs
}

var _ channel.Channel = (*Channel)(nil)

// New makes a channel.
func New() *Channel { return &Channel{running: make(chan struct{})} }

// Name is "web".
func (*Channel) Name() string { return Name }

// errHouse is a house that cannot be used: a mistake of whoever wired it.
var errHouse = errors.New("the house has no transcripts")

// Run brings nothing in; replies go to the house until ctx is over.
func (c *Channel) Run(ctx context.Context, house channel.House) error {
	h, ok := house.(House)
	if !ok {
		return errHouse
	}
	c.mu.Lock()
	c.house = h
	close(c.running)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.house, c.running = nil, make(chan struct{})
	return nil
}

// Status is connected while the store answers.
func (c *Channel) Status() channel.Status {
	c.mu.Lock()
	h := c.house
	c.mu.Unlock()
	s := channel.Status{Label: "Web", Account: "default", Configured: true, Running: h != nil, State: "stopped", LastPollAge: -1}
	switch {
	case h == nil:
	case h.StoreUp():
		s.Connected, s.State = true, "connected"
	default:
		s.State, s.LastError = "degraded", storeAway
	}
	return s
}

// Send delivers one reply; the receipt is the id of the line in the history. Until the channel runs it waits for that.
func (c *Channel) Send(ctx context.Context, r chat.Reply) (chat.Sent, error) {
	key, err := address(r.Target)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: ReasonAddress, Permanent: true, Cause: err}
	}
	h, err := c.open(ctx)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: ReasonStopped, Cause: err}
	}
	seq, err := h.Say(ctx, key, r)
	if err != nil {
		return chat.Sent{}, judge(err)
	}
	return chat.Sent{ProviderID: "m-" + strconv.FormatInt(seq, 10)}, nil
}

var errAddress = errors.New("the target is not a session key in full")

// address is the session of a target. A short form would depend on the default agent, which may be another one by now.
func address(to chat.Target) (chat.SessionKey, error) {
	key, err := chat.ParseSessionKey(to.ChatID, "")
	if err != nil || to.Channel != Name {
		return chat.SessionKey{}, errAddress
	}
	return key, nil
}

// startTime is how long a reply waits for the channel to run.
const startTime = 5 * time.Second

// open is the house, once there is one.
func (c *Channel) open(ctx context.Context) (House, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errors.New("the channel does not run"))
	defer cancel()
	for {
		c.mu.Lock()
		h, running := c.house, c.running
		c.mu.Unlock()
		if h != nil {
			return h, nil
		}
		select {
		case <-running:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func judge(err error) *channel.SendError {
	out := &channel.SendError{Reason: ReasonStore, Cause: err}
	switch {
	case errors.Is(err, chat.ErrUnknownAgent):
		out.Reason, out.Permanent = ReasonAgent, true
	case errors.Is(err, chat.ErrSessionNotFound):
		out.Reason, out.Permanent = ReasonForeign, true
	}
	return out
}
