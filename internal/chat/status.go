package chat

import (
	"fmt"
	"slices"
	"time"
)

// LaneStatus is a picture of one lane at one moment.
type LaneStatus struct {
	Name     string
	Capacity int
	// Active turns hold a slot; Stopping of them were stopped and have not returned. Active <= Capacity, but for a lane that was just made smaller.
	Active, Stopping int
	// Yielded turns hold no slot: they wait for sub-turns, or summarise a conversation.
	Yielded int
	// Waiting counts sessions that are ready and have no slot.
	Waiting                             int
	OldestWait                          time.Duration
	Started, Finished, Failed, Canceled int64
}

// LanesStatus is a picture of this process's scheduler.
type LanesStatus struct {
	At                                   time.Time
	NodeID                               string
	Draining                             bool
	UnknownLaneFallbacks                 int64
	Lanes                                []LaneStatus
	Tracked, Running, Waiting, Debounced int // sessions
	Stuck                                int // turns that were stopped and have not ended within the grace
	DropsOld, DropsNew, Stale, Cleared   int64
}

// SessionStatus is a session as watchers see it.
type SessionStatus struct {
	Key           SessionKey
	SessionID     string // of the current transcript; changes with a reset
	Principal     string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	LastMessageAt time.Time
	// Status is "", queued, running, done, failed, killed or timeout.
	Status      string
	LastRunID   string
	LastError   string
	LastPreview string // start of the last answer
	TotalTokens int
	ActiveRuns  []string
	Mode        QueueMode
	QueueDepth  int
	Lane        string
}

// NodeStatus is one gateway process that shares the database.
type NodeStatus struct {
	ID, Version string
	Name        string // for people; the id of a process without a name
	Draining    bool
	Lease       time.Duration // left
	Agents      []string      // that it has; nil = all
}

// Has reports whether the process has an agent.
func (n NodeStatus) Has(agent string) bool {
	return n.Agents == nil || slices.Contains(n.Agents, agent)
}

// RunEnd is how a message ended, for callers that wait for it.
type RunEnd struct {
	RunID   string
	Session SessionKey
	Outcome Outcome
	// Reason is a [FailReason] or a word such as stop, stopall, superseded, draining; "" when answered.
	Reason string
	// Message is a sentence for a person when there is no answer. Detail is what the service behind the agent wrote, for administrators; "" = nothing.
	Message, Detail string
	Text            string
	// StopReason of the answer: stop, or length when the model ran into its limit; "" = unknown.
	StopReason string
	Usage      Usage
	// Duration of the run and the time between acceptance and start.
	Duration, Waited time.Duration
	// MergedInto is the run whose answer it got (Outcome merged).
	MergedInto string
	// Foreign: the turn was given results of calls with text from outside, see [ToolResult].
	Foreign bool
}

// Place is where an accepted message stands.
type Place struct {
	Session SessionKey
	// RunID is the run that the message belongs to, or leads.
	RunID string
	// Newest: no message of the session was accepted after it. Ended: it has its outcome.
	Newest, Ended bool
}

// InFlight is a running turn and its text so far.
type InFlight struct {
	RunID, Text string
	Seq         int64
}

// CommandInfo describes a chat command to people and clients.
type CommandInfo struct {
	Name        string
	Aliases     []string // without the slash
	Description string
	Category    string // session, status, cron, model, …
	ArgsHint    string // "" = takes none
	Urgent      bool   // waits behind nothing: see command.Command
}

// SystemStatus is a picture of this gateway.
type SystemStatus struct {
	NodeID, BootID, Version string
	StartedAt               time.Time
	Draining                bool
	// Store is sqlite or postgres. StoreError is one sentence, "" when it answers; StoreLatency is of the last check.
	Store        string
	StoreError   string
	StoreLatency time.Duration
	// Sessions that the store knows; the running and waiting ones are in Lanes.
	SessionsKnown int
	Nodes         []NodeStatus
	Lanes         LanesStatus
	Progress      Progress
	// DiskLow: a disk has less free space than the floor, so that new messages are refused.
	DiskLow bool
	// Stranded is work that no live process can do, one sentence for each agent that is missing and each account that no process sends for.
	Stranded []string
	// Held says since when and why the gateway is held; "" = it is not.
	Held          string
	Channels      []ChannelStatus
	OutboxWaiting int
	OutboxFailed  int
	// Programs are the agents that keep processes, in the order of the configuration.
	Programs []ProgramStatus
}

// ProgramStatus is the processes of one agent on this gateway.
type ProgramStatus struct {
	Agent string
	// Processes are at most Limit. Memory is what they have in memory, in bytes; 0 = unknown. Evicted have ended to make room for another session.
	Processes, Limit int
	Memory, Evicted  int64
}

// Progress reports whether the loops run. A negative age means that the loop does not exist in this process.
type Progress struct {
	// StalledFor is how long work has been ready and a slot free while nothing started; 0 = not stalled.
	StalledFor time.Duration
	// DispatcherAge is the time since the ownership loop last turned, CronAge since the last tick, WriterAge since the store last committed or was idle.
	DispatcherAge, CronAge, WriterAge time.Duration
}

// ToolServer is the state of an MCP server whose tools agents call.
type ToolServer struct {
	Name string
	// State is connecting, connected, suspended (not asked for a while because it has failed several times) or failed (not connected).
	State string
	// Tools are the names that agents are offered.
	Tools []string
	// LastError is one sentence; "" = none since the connection.
	LastError string
}

// ChannelStatus is a channel as people see it.
type ChannelStatus struct {
	// Name is the channel's own, `telegram:<bot id>`; ID its kind, AccountID the configured name of the account.
	Name, ID, AccountID, Label     string
	Configured, Running, Connected bool
	State, Mode, LastError         string
	LastPollAge                    time.Duration // negative = never
	PollOwner                      string
	OutboxWaiting, OutboxFailed    int
	OldestWaiting                  time.Time // of the messages to be sent; zero = unknown
	// OutboxMaybeSent counts messages that were being sent when a process ended; whether they arrived is not known.
	OutboxMaybeSent int
}

// WaitCause is what a turn waits for.
type WaitCause string

// The causes of waiting. The first five are those of the scheduler.
const (
	WaitDebounce  WaitCause = "debounce"  // its person may go on typing
	WaitSession   WaitCause = "session"   // turns of its session run, or earlier messages wait
	WaitLane      WaitCause = "lane"      // a free slot of its lane
	WaitPrincipal WaitCause = "principal" // its principal has as many turns as one may have
	WaitDrain     WaitCause = "drain"     // its process ends; another one takes it
	WaitRetry     WaitCause = "retry"     // the next attempt of a job
	WaitQuestion  WaitCause = "question"  // the answer of a person
	WaitTasks     WaitCause = "tasks"     // its sub-turns
	WaitGateway   WaitCause = "gateway"   // a process that takes its session and has its agent
)

// Waiting is what a turn waits for. The zero value of a field means unknown, or that the cause has no such thing.
type Waiting struct {
	Cause WaitCause
	// Position counts from 1: for WaitLane among the sessions that are ready for a slot, for WaitSession among the messages of the session.
	Position int
	Until    time.Time
	// BlockedBy is the run that goes before it in its session.
	BlockedBy string
}

// Text is what the turn waits for, in words, without the time that [Waiting.Until] has.
func (w Waiting) Text() string {
	place := func(what string) string {
		if w.Position == 0 {
			return what
		}
		return fmt.Sprintf("%s, place %d", what, w.Position)
	}
	switch w.Cause {
	case WaitDebounce:
		return "more words of its person"
	case WaitSession:
		return place("its session")
	case WaitLane:
		return place("a slot of its lane")
	case WaitPrincipal:
		return "other runs of its person"
	case WaitDrain:
		return "another gateway: this one ends"
	case WaitRetry:
		return "its next attempt"
	case WaitQuestion:
		return "the answer of a person"
	case WaitTasks:
		return "its tasks"
	default:
		return "a gateway that has its agent"
	}
}
