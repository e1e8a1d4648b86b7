package chat

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// LaneStatus is a snapshot of one lane.
type LaneStatus struct {
	Name     string
	Capacity int
	// Active turns hold a slot. Stopping counts those that were stopped and have not returned.
	// Active <= Capacity, except in a lane whose capacity was just reduced.
	Active, Stopping int
	// Yielded turns hold no slot: they wait for sub-turns, or summarise a conversation.
	Yielded int
	// Waiting counts sessions that are ready and have no slot.
	Waiting                             int
	OldestWait                          time.Duration
	Started, Finished, Failed, Canceled int64
}

// LanesStatus is a snapshot of this process's scheduler.
type LanesStatus struct {
	At                                   time.Time
	NodeID                               string
	Draining                             bool
	UnknownLaneFallbacks                 int64
	Lanes                                []LaneStatus
	Tracked, Running, Waiting, Debounced int // sessions
	Stuck                                int // turns that were stopped and have not ended within the grace period
	DropsOld, DropsNew, Stale, Cleared   int64
}

// SessionStatus is a session as subscribers see it.
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
	Name        string // for people; the id when the process has no name
	Draining    bool
	Lease       time.Duration // time until it expires
	Agents      []string      // agents that it has; nil = all
}

// Has reports whether the process has an agent.
func (n NodeStatus) Has(agent string) bool {
	return n.Agents == nil || slices.Contains(n.Agents, agent)
}

// GoneNode is a process that ended without a clean stop and that no other has replaced.
type GoneNode struct {
	Name  string
	Since time.Time // the end of its lease
}

// RunEnd is how a message ended, for callers that wait for it.
type RunEnd struct {
	RunID   string
	Session SessionKey
	Outcome Outcome
	// Reason is a [FailReason] or a word such as stop, stopall, superseded, draining; "" when
	// answered.
	Reason string
	// Message is a sentence for a person when there is no answer. Detail is the message of the
	// agent's service, for administrators; "" when there is no message.
	Message, Detail string
	Text            string
	// StopReason of the answer: stop, or length when the model reached its limit; "" = unknown.
	StopReason string
	// Calls are the calls of [ClientTools] with which the answer ends.
	Calls []ToolCall
	Usage Usage
	// Duration of the run and the time between acceptance and start.
	Duration, Waited time.Duration
	// MergedInto is the run that has the answer (Outcome merged).
	MergedInto string
	// Foreign: the turn was given results of calls that contain text from outside, see
	// [ToolResult].
	Foreign bool
}

// Place is the position of an accepted message.
type Place struct {
	Session SessionKey
	// RunID is the run that the message belongs to or starts.
	RunID string
	// Newest: no message of the session was accepted after it. First: none was accepted before it.
	// Ended: it has an outcome.
	Newest, First, Ended bool
	AcceptedAt           time.Time
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
	ArgsHint    string // "" when it takes no arguments
	Urgent      bool   // does not wait, see command.Command
}

// SystemStatus is a snapshot of this gateway.
type SystemStatus struct {
	NodeID, BootID, Version string
	StartedAt               time.Time
	Draining                bool
	// Store is sqlite or postgres. StoreError is one sentence, "" when the store answers.
	// StoreLatency is from the last check.
	Store        string
	StoreError   string
	StoreLatency time.Duration
	Nodes        []NodeStatus
	Gone         []GoneNode
	Lanes        LanesStatus
	Progress     Progress
	// DiskLow: the free space of a disk is below the minimum, so new messages are refused.
	DiskLow bool
	// Stranded is work that no live process can do or does, one sentence for each missing agent,
	// for each account without a process that sends for it.
	Stranded []string
	// Held says since when and why the gateway is held; "" when it is not held.
	Held          string
	Channels      []ChannelStatus
	OutboxWaiting int
	OutboxFailed  int
	// Programs are the agents that keep processes, in the order of the configuration.
	Programs []ProgramStatus
}

// ProgramStatus counts the processes of one agent on this gateway.
type ProgramStatus struct {
	Agent string
	// Processes are at most Limit. Memory is their memory in bytes; 0 = unknown. Evicted counts
	// processes that were ended to make room for another session.
	Processes, Limit int
	Memory, Evicted  int64
}

// Progress reports whether the loops run. A negative age means that the loop does not exist in this
// process.
type Progress struct {
	// StalledFor is how long work has been ready and a slot free while nothing started; 0 = not
	// stalled.
	StalledFor time.Duration
	// DispatcherAge is the time since the last iteration of the ownership loop, CronAge since the
	// last cron tick, WriterAge since the store last committed or was idle.
	DispatcherAge, CronAge, WriterAge time.Duration
}

// ToolServer is the state of an MCP server whose tools agents call.
type ToolServer struct {
	Name string
	// State is connecting, connected, suspended (not called for a while after several failures) or
	// failed (not connected).
	State string
	// Tools are the names that are offered to agents. Renamed are those of them whose name at the
	// server is another.
	Tools   []string
	Renamed []RenamedTool
	// LeftOut are the tools that the operator lists and agents do not have.
	LeftOut []LeftOutTool
	// LastError is one sentence; "" when no error occurred since the connection.
	LastError string
}

// RenamedTool is a tool that models know by another name than its server, because they take only
// letters, digits, `_` and `-`, at most 64.
type RenamedTool struct{ Name, Own string }

// LeftOutTool is a tool that is not offered, with the reason.
type LeftOutTool struct{ Name, Why string }

// ChannelStatus is a channel as people see it.
type ChannelStatus struct {
	// Name is the channel's own, `telegram:<bot id>`; ID its kind, AccountID the configured name of
	// the account.
	Name, ID, AccountID, Label     string
	Configured, Running, Connected bool
	State, Mode, LastError         string
	LastPollAge                    time.Duration // negative = never
	PollOwner                      string
	OutboxWaiting, OutboxFailed    int
	OldestWaiting                  time.Time // oldest message to be sent; zero = unknown
	LastFailed                     time.Time // when the newest message was given up; zero = unknown
	// OutboxMaybeSent counts messages that were being sent when a process ended. It is unknown
	// whether they arrived.
	OutboxMaybeSent int
}

// WaitCause is what a turn waits for.
type WaitCause string

// The causes of waiting. The scheduler reports the first five.
const (
	WaitDebounce  WaitCause = "debounce"  // more messages of the person may follow
	WaitSession   WaitCause = "session"   // turns of its session run, or earlier messages wait
	WaitLane      WaitCause = "lane"      // all slots of its lane are used
	WaitPrincipal WaitCause = "principal" // its principal has the maximum number of running turns
	WaitDrain     WaitCause = "drain"     // its process is stopping; another one takes it over
	WaitRetry     WaitCause = "retry"     // the next attempt of a job
	WaitQuestion  WaitCause = "question"  // the answer of a person
	WaitTasks     WaitCause = "tasks"     // its sub-turns
	WaitGateway   WaitCause = "gateway"   // a process that owns its session and has its agent
)

// Waiting is what a turn waits for. The zero value of a field means that it is unknown or does not
// apply to the cause.
type Waiting struct {
	Cause WaitCause
	// Position counts from 1: for WaitLane among the sessions that are ready for a slot, for
	// WaitSession among the messages of the session.
	Position int
	Until    time.Time
	// BlockedBy is the run before it in its session.
	BlockedBy string
}

// Text describes in words what the turn waits for, without the time of [Waiting.Until].
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

// Channel names of messages that belong to trees of sub-turns.
const (
	// ChannelTask is the channel of the messages of sub-turns, and of the announcements of their
	// results.
	ChannelTask = "task"
)

// Task is the place of a message in a tree of sub-turns, and what its turn inherits from the
// message at the root.
type Task struct {
	// Root is the run at the root of the tree. Depth is 1 for a sub-turn of the root; an
	// announcement has the depth of the turn that receives it.
	Root  string `json:"root"`
	Depth int    `json:"depth"`
	// Parent is the run that requested the sub-turn; "" for an announcement. ParentSession is its
	// session, where the result is announced.
	Parent        string `json:"parent,omitempty"`
	ParentSession string `json:"parentSession,omitempty"`
	// Announce: the parent does not wait, and the result is announced.
	Announce bool `json:"announce,omitempty"`
	// Announces is the sub-turn whose result is announced; "" = the message is not an announcement.
	Announces string `json:"announces,omitempty"`
	// Session, Channel and ReplyTo come from the message at the root. They decide where tools act,
	// which tools exist, and where an answer to an announcement in that session goes.
	Session string `json:"session"`
	Channel string `json:"channel,omitempty"`
	ReplyTo Target `json:"replyTo,omitzero"`
	// NoActs is why tools that create or send are refused in the turn, one sentence; "" = they may
	// run. It is inherited from the parent.
	NoActs string `json:"noActs,omitempty"`
	// Asks is why a person has to allow such a tool call, as the end of a sentence; "" = no
	// permission is needed. It is inherited from the parent.
	Asks string `json:"asks,omitempty"`
	// Audience is who reads the results of the tree.
	Audience Audience `json:"audience,omitzero"`
}

// MaxApprovals is how many approvals of one person are kept for a conversation. When there are
// more, the oldest are removed.
const MaxApprovals = 100

// Approval is what a person has allowed an agent for all turns of a conversation, until its
// transcript ends.
type Approval struct {
	// ID is the id of the question. The store sets ID and At.
	ID string
	// Agent is the agent that asked. Act is what the answer covers, in the words of the question.
	// Label is the chosen option.
	Agent, Act, Label string
	At                time.Time
}

// AgentSession is the session that an agent keeps for a conversation, and the process that last
// held it.
type AgentSession struct {
	// ID is assigned by the agent; "" = unknown.
	ID string
	// Runs are the latest turns that the agent has seen, the newest last. Seen is the number of the
	// last entry of the transcript that it has seen.
	Runs []string
	Seen int64
	// Used is the usage of the session, for agents that report it instead of the usage of a turn.
	// Names are not stored.
	Used Usage
	// Dir is the working directory that it was made for.
	Dir string
	// Host is the machine of the process. PIDStarted distinguishes the process, and those that it
	// started, from other processes that have had the same PID.
	Host       string
	PID        int
	PIDStarted string
}

// Program is the process that works for a run. Started distinguishes it, and those that it started,
// from other processes that have had the same PID on Host.
type Program struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Started string `json:"started"`
}

// Counted is how far the totals of lists count. A count reads every row that it counts, so without
// a bound each list of a large store is slow.
const Counted = 1000

// CountTo is how far the total of a list counts whose page ends at a row: as far as most (0 =
// [Counted]), and at least to the end of the page, so that the total always shows whether another
// page follows.
func CountTo(most, end int) int { return max(cmp.Or(most, Counted), end) }
