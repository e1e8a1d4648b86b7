package dispatch

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/ownership"
)

// Observer counts events for metrics. Arguments are from closed sets; methods must not block.
type Observer interface {
	// Accepted: a message is durable. Channel is the name up to the first ':'.
	Accepted(channel string, duplicate bool)
	// Dropped: a full queue removed a message (policy old) or refused it (policy new).
	Dropped(policy string)
	// Ended: a message has its outcome.
	Ended(lane string, outcome chat.Outcome, reason string)
	// TurnEnded: a turn has returned after d; waited is the time from acceptance to start.
	TurnEnded(lane string, outcome chat.Outcome, d, waited time.Duration)
	// Tokens: the tokens that the model of a turn read and wrote, as reported by its runner; input includes the history.
	Tokens(lane string, input, output int)
	// Stored: an operation of the store ended after took, with or without an error; operation is accept, start or finish.
	Stored(operation string, took time.Duration)
	// Fenced: a write was refused because the claim was lost.
	Fenced(operation string)
	// Sent: one attempt to send ended; result is delivered, retry, failed, expired or resent.
	Sent(channel, kind, result string)
	// CommandRun: a chat command was executed.
	CommandRun(name string, ok bool)
	// LeaseLost: this process was declared dead, or could not reach the store in time.
	LeaseLost()
	// TakenOver: sessions were taken over by the sweep.
	TakenOver(sessions int)
	// RolledBack: the database has lost commits, see package ownership.
	RolledBack(sign ownership.RollbackSign)
}

// NopObserver observes nothing.
type NopObserver struct{}

// Accepted does nothing.
func (NopObserver) Accepted(string, bool) {}

// Dropped does nothing.
func (NopObserver) Dropped(string) {}

// Ended does nothing.
func (NopObserver) Ended(string, chat.Outcome, string) {}

// TurnEnded does nothing.
func (NopObserver) TurnEnded(string, chat.Outcome, time.Duration, time.Duration) {}

// Tokens does nothing.
func (NopObserver) Tokens(string, int, int) {}

// Stored does nothing.
func (NopObserver) Stored(string, time.Duration) {}

// Fenced does nothing.
func (NopObserver) Fenced(string) {}

// Sent does nothing.
func (NopObserver) Sent(string, string, string) {}

// CommandRun does nothing.
func (NopObserver) CommandRun(string, bool) {}

// LeaseLost does nothing.
func (NopObserver) LeaseLost() {}

// TakenOver does nothing.
func (NopObserver) TakenOver(int) {}

// RolledBack does nothing.
func (NopObserver) RolledBack(ownership.RollbackSign) {}
