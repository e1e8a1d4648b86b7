// Package web is the channel of people who read their conversations through the gateway itself:
// dashboards, terminals, every client of the protocol. It has no provider: a delivered reply is a
// line of the session's transcript, which is published to the session's subscribers.
//
// Messages of these people arrive through the gateway's methods and not through [Channel.Run].
// Their answers are written to the transcript at the end of the turn. This channel is for replies
// from outside of the session: the answer of a job, an alert, the reply of a turn that another
// session ran. Those are rows of the outbox as for every other channel, written in the transaction
// that ends their run, so a crash loses none of them.
//
// The chat of a target is a whole session key. A reply is delivered once, by its id: the sink
// stores the id with the line ([TranscriptSink]), so that a second attempt after a crash finds the
// line instead of adding another. A session that does not exist is created, because a target such
// as the main session of an agent is valid before its first message. Permanent errors are an
// invalid session key, an unknown agent, and a session of another principal. Every other failure is
// the store's, and the outbox retries.
//
// The package starts no goroutine.
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
	ReasonAddress = "bad_address" // not a session key
	ReasonAgent   = "no_agent"    // the agent of the session does not exist
	ReasonForeign = "not_theirs"  // the session belongs to another principal
	ReasonStore   = "store"       // the store did not write the line
	ReasonStopped = "not_running" // the channel has no receiver
)

// storeAway is the last error of the status while the store does not answer.
const storeAway = "the database does not answer"

// TranscriptSink is the receiver of this channel: besides messages it takes replies, as lines of
// transcripts.
type TranscriptSink interface {
	channel.Receiver
	// AppendReply adds a reply to the transcript of a session and publishes it to the subscribers.
	// It returns the number of the line. Repeated calls with the same reply id add one line; after
	// a crash the line may be published again. chat.ErrUnknownAgent and chat.ErrSessionNotFound are
	// permanent.
	AppendReply(ctx context.Context, key chat.SessionKey, r chat.Reply) (seq int64, err error)
}

// Channel delivers into transcripts. Make it with New; it is safe for concurrent use, and the lock
// is not held while the sink is called.
type Channel struct {
	mu      sync.Mutex
	sink    TranscriptSink // nil while the channel does not run
	running chan struct{}  // closed while the channel runs
}

var _ channel.Channel = (*Channel)(nil)

// New makes a channel.
func New() *Channel { return &Channel{running: make(chan struct{})} }

// Name returns "web".
func (*Channel) Name() string { return Name }

// errNoSink is a mistake in the wiring of the process.
var errNoSink = errors.New("the receiver is not a transcript sink")

// Run receives nothing; replies are passed to the sink until ctx is done. A receiver that does not
// implement [TranscriptSink] is an error.
func (c *Channel) Run(ctx context.Context, receiver channel.Receiver) error {
	sink, ok := receiver.(TranscriptSink)
	if !ok {
		return errNoSink
	}
	c.mu.Lock()
	c.sink = sink
	close(c.running)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sink, c.running = nil, make(chan struct{})
	return nil
}

// Status reports connected while the store answers.
func (c *Channel) Status() channel.Status {
	c.mu.Lock()
	sink := c.sink
	c.mu.Unlock()
	s := channel.Status{Label: "Web", Account: "default", Configured: true, Running: sink != nil, State: "stopped", LastPollAge: -1}
	switch {
	case sink == nil:
	case sink.Alive() == nil:
		s.Connected, s.State = true, "connected"
	default:
		s.State, s.LastError = "degraded", storeAway
	}
	return s
}

// Send delivers one reply; repeating it adds nothing. The receipt is the id of the line in the
// history. If the channel does not run, Send waits for its start, at most startTime.
func (c *Channel) Send(ctx context.Context, r chat.Reply, _ channel.Claim) (chat.Sent, error) {
	key, err := address(r.Target)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: ReasonAddress, Permanent: true, Cause: err}
	}
	sink, err := c.open(ctx)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: ReasonStopped, Cause: err}
	}
	seq, err := sink.AppendReply(ctx, key, r)
	if err != nil {
		return chat.Sent{}, judge(err)
	}
	return chat.Sent{ProviderID: "m-" + strconv.FormatInt(seq, 10)}, nil
}

var errAddress = errors.New("the target is not a session key in full")

// address returns the session of a target. Short forms are refused: they depend on the default
// agent, which may have changed.
func address(to chat.Target) (chat.SessionKey, error) {
	key, err := chat.ParseSessionKey(to.ChatID, "")
	if err != nil || to.Channel != Name {
		return chat.SessionKey{}, errAddress
	}
	return key, nil
}

// startTime is how long a reply waits for the channel to run.
const startTime = 5 * time.Second

// open waits until the channel runs and returns its sink.
func (c *Channel) open(ctx context.Context) (TranscriptSink, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errors.New("the channel does not run"))
	defer cancel()
	for {
		c.mu.Lock()
		sink, running := c.sink, c.running
		c.mu.Unlock()
		if sink != nil {
			return sink, nil
		}
		select {
		case <-running:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// judge returns the outbox's error for an error of the sink.
func judge(err error) *channel.SendError {
	out := &channel.SendError{Reason: ReasonStore, Cause: err}
	switch {
	case errors.Is(err, chat.ErrUnknownAgent):
		out.Reason, out.Permanent = ReasonAgent, true
	case errors.Is(err, chat.ErrSessionNotFound):
		out.Reason, out.Permanent, out.Gone = ReasonForeign, true, true
	}
	return out
}
