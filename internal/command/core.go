package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// Compaction is the result of a request to summarise a conversation.
type Compaction int

// The results.
const (
	CompactionNothing Compaction = iota // there is nothing to summarise
	CompactionBegun
	CompactionRunning // a compaction of the conversation is already running
)

// Actions are the operations of the gateway that commands use.
type Actions interface {
	// StopOne cancels the oldest running turn of the session, or its oldest waiting message.
	StopOne(ctx context.Context, c Call) (StopReport, error)
	// StopAll cancels everything of the session.
	StopAll(ctx context.Context, c Call) (StopReport, error)
	// NewSession stops all work of the session and begins an empty transcript.
	NewSession(ctx context.Context, c Call) error
	// Queue describes the session's queue.
	Queue(ctx context.Context, c Call) (QueueReport, error)
	// SetMode changes the session's queue mode; "" = the default.
	SetMode(ctx context.Context, c Call, mode chat.QueueMode) error
	// ClearQueue ends waiting messages and does not stop running turns.
	ClearQueue(ctx context.Context, c Call) (int, error)
	// SetModel chooses a model for the session; "" = the model of the agent.
	SetModel(ctx context.Context, c Call, model string) error
	// Dirs returns the working directories that this conversation may choose from, with the agent's
	// own first, and the current one; all is empty when its agent has no directories. SetDir
	// chooses one; "" = the agent's own.
	Dirs(ctx context.Context, c Call) (all []string, chosen string, err error)
	SetDir(ctx context.Context, c Call, dir string) error
	// AnswerQuestion answers a question of an agent. A tool call that is allowed is made, and a
	// waiting turn continues. The result is a message for the person.
	AnswerQuestion(ctx context.Context, c Call, answer QuestionAnswer) (string, error)
	// Approvals are what the person has allowed agents for all turns of this conversation, the
	// oldest first.
	Approvals(ctx context.Context, c Call) ([]chat.Approval, error)
	// RevokeApprovals removes the approval with an id, or all for "", and returns how many were
	// removed.
	RevokeApprovals(ctx context.Context, c Call, id string) (int, error)
	// Compact asks the agent to summarise the older part of the conversation.
	Compact(ctx context.Context, c Call) (Compaction, error)
	// Toc lists summaries of conversations by day, week or month, the newest first.
	Toc(ctx context.Context, c Call, level string) ([]TocLine, error)
	// Overview describes the gateway and the session in a few facts.
	Overview(ctx context.Context, c Call) (Overview, error)
	// Zone is the time zone that the person chose, or "". SetZone chooses one, which must exist; ""
	// = the zone of the gateway.
	Zone(ctx context.Context, c Call) (string, error)
	SetZone(ctx context.Context, c Call, zone string) error
	// QuietHours are those of the chat of this conversation, false when it has none. SetQuietHours
	// sets them, nil removes them. Quiet hours belong to a chat of a network, so both refuse other
	// conversations.
	QuietHours(ctx context.Context, c Call) (q schedule.Quiet, ok bool, err error)
	SetQuietHours(ctx context.Context, c Call, q *schedule.Quiet) error
	// Agents lists the agents; the first is the default.
	Agents() []agent.Info

	JobActions

	// Tasks are turns that running turns of a conversation requested.

	// Tasks lists the open tasks of the conversation, oldest first.
	Tasks(ctx context.Context, c Call) ([]Task, error)
	// StopTask stops a task and its sub-tasks. chat.CodeNotFound: no such task exists that the
	// caller may stop.
	StopTask(ctx context.Context, c Call, id string) error
	// ExplainTurn says where the answer to a message of the caller in this conversation is; id "" =
	// the newest one. chat.CodeNotFound: there is no such message among the newest.
	ExplainTurn(ctx context.Context, c Call, id string) (store.TurnExplanation, error)
}

// StopReport counts what a stop ended.
type StopReport struct {
	// Running turns were asked to stop; Waiting messages ended.
	Running, Waiting int
}

// Overview is what /status shows.
type Overview struct {
	Version, Store, Agent, Model string
	Uptime                       string
	Lanes                        []chat.LaneStatus
	Queue                        QueueReport
	Messages, Tokens             int
	ContextWindow                int
	// Usage is today's usage and the budgets, one line each.
	Usage    []string
	Problems []string
}

// core returns the commands that every channel has. /help is not among them, because it needs the
// complete table, see [New].
func core() []Command {
	return []Command{
		{
			Name: "new", Aliases: []string{"reset"}, Common: true, Category: "session", Method: "sessions.reset",
			Description: "Stop everything here and start a new conversation.", Run: textOnly(runNew),
		},
		{
			Name: "compact", Category: "session", Method: "chat.send",
			Description: "Summarise the older part of this conversation. Nothing is deleted.", Run: textOnly(runCompact),
		},
		{
			Name: "stop", Common: true, Category: "session", Method: "chat.abort", Urgent: true,
			Description: "Stop the oldest running turn; if none runs, the oldest waiting message.", Run: textOnly(runStop),
		},
		{
			Name: "stopall", Category: "session", Method: "chat.abort", Urgent: true,
			Description: "Stop everything in this conversation and empty its queue.", Run: textOnly(runStopAll),
		},
		{
			Name: "status", Category: "status", Method: "status",
			Description: "Show the agent, the lanes and this conversation.", Run: textOnly(runStatus),
		},
		{
			Name: "queue", Args: "[clear | queue | followup | interrupt | collect | steer | default]", Category: "session",
			Method: "sessions.describe", Verbs: map[string]string{"clear": "chat.abort", "*": "chat.send"}, // the mode is a parameter of chat.send
			Description: "Show the queue, empty it, or choose what happens to messages that arrive during a turn.", Run: runQueue,
		},
		{
			Name: "model", Args: "[name | default]", Category: "session",
			Method: "sessions.describe", Verbs: map[string]string{"*": "agent"}, // the model is a parameter of agent
			Description: "Show or choose the model of this conversation.", Run: textOnly(runModel),
		},
		{
			Name: "dir", Args: "[number | default]", Category: "session", Method: "sessions.describe", Verbs: map[string]string{"*": "chat.send"},
			Description: "Show or choose the agent's directory in this conversation.", Run: runDir,
		},
		{
			Name: "agent", Category: "status", Method: "agents.list",
			Description: "List the agents.", Run: textOnly(runAgent),
		},
		{
			Name: "whoami", Category: "status", Method: "status",
			Description: "Show who the gateway thinks you are.", Run: textOnly(runWhoami),
		},
		{
			Name: "timezone", Args: "[zone | default]", Common: true, Category: "session",
			Method: "sessions.describe", Verbs: map[string]string{"*": "chat.send"},
			Description: "Show or choose your time zone, for /remind and lists: Europe/Berlin, +02:00.", Run: textOnly(runTimezone),
		},
		{
			Name: "quiet", Args: "[22:00-7:00 | off]", Common: true, Category: "session",
			Method: "sessions.describe", Verbs: map[string]string{"*": "chat.send"},
			Description: "Show or set quiet hours: jobs hold back their messages until they end.", Run: textOnly(runQuiet),
		},
		{
			Name: "id", Category: "status", Method: "sessions.describe",
			Description: "Show the key and the address of this conversation.", Run: textOnly(runID),
		},
	}
}

// New returns the table of all commands: the core ones, more, and /help for both.
func New(more ...Command) (*Table, error) {
	list := slices.Concat(core(), []Command{tocCommand()}, taskCommands(), jobCommands(), questionCommands(), more)
	var table *Table
	list = append(list, Command{
		Name: "help", Aliases: []string{"start"}, Args: "[all]", Common: true, Category: "status", Method: "commands.list",
		Description: "List the commands.",
		Run:         textOnly(func(_ context.Context, _ Actions, c Call) (string, error) { return table.Help(wantsAll(c)), nil }),
	})
	table, err := NewTable(list)
	return table, err
}

// wantsAll reports whether /help lists every command: for an operator, or for a person in a chat
// who asks for all.
func wantsAll(c Call) bool {
	return c.Scope == chat.ScopeAdmin || strings.EqualFold(c.Args, "all")
}

// Help returns the text of /help: every command, or those that people use.
func (t *Table) Help(all bool) string {
	var b strings.Builder
	b.WriteString("Write a message and the agent answers. Commands:\n")
	for _, c := range t.list {
		if !all && !c.Common {
			continue
		}
		b.WriteString("/" + c.Name)
		if c.Args != "" {
			b.WriteString(" " + c.Args)
		}
		b.WriteString(" - " + c.Description + "\n")
	}
	if !all {
		b.WriteString("/help all lists every command.")
	}
	return strings.TrimRight(b.String(), "\n")
}

func runNew(ctx context.Context, a Actions, c Call) (string, error) {
	if err := a.NewSession(ctx, c); err != nil {
		return "", err
	}
	return "Started a new conversation.", nil
}

func runCompact(ctx context.Context, a Actions, c Call) (string, error) {
	switch how, err := a.Compact(ctx, c); {
	case err != nil:
		return "", err
	case how == CompactionBegun:
		return "The older part of this conversation is being summarised. You can continue meanwhile.", nil
	case how == CompactionRunning:
		return "This conversation is already being summarised. You can continue meanwhile.", nil
	default:
		return "There's nothing to summarise here.", nil
	}
}

func runStop(ctx context.Context, a Actions, c Call) (string, error) {
	r, err := a.StopOne(ctx, c)
	switch {
	case err != nil:
		return "", err
	case r.Running > 0:
		return "Stopped the running turn.", nil
	case r.Waiting > 0:
		return "Stopped the oldest waiting message; nothing was running.", nil
	default:
		return "There's nothing to stop.", nil
	}
}

func runStopAll(ctx context.Context, a Actions, c Call) (string, error) {
	r, err := a.StopAll(ctx, c)
	switch {
	case err != nil:
		return "", err
	case r.Running+r.Waiting == 0:
		return "There's nothing to stop.", nil
	default:
		return "Stopped " + count(r.Running, "running turn") + " and " + count(r.Waiting, "waiting message") + ".", nil
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func runModel(ctx context.Context, a Actions, c Call) (string, error) {
	switch {
	case c.Args == "":
		o, err := a.Overview(ctx, c)
		if err != nil {
			return "", err
		}
		return "The model here is " + orNone(o.Model) + ".", nil
	case len(c.Args) > 200 || strings.ContainsFunc(c.Args, chat.Unprintable):
		return "", chat.Errorf(chat.CodeInvalid, "the name of a model has at most 200 printable characters")
	case strings.EqualFold(c.Args, "default"):
		return "Using the agent's default model again.", a.SetModel(ctx, c, "")
	default:
		return "This conversation now uses " + c.Args + ".", a.SetModel(ctx, c, c.Args)
	}
}

// runDir shows the directories with a button each, or chooses one by its number or its full name.
func runDir(ctx context.Context, a Actions, c Call) (Answer, error) {
	dirs, chosen, err := a.Dirs(ctx, c)
	if err != nil {
		return Answer{}, err
	}
	if len(dirs) == 0 {
		return Answer{Text: "This conversation's agent has no directories to choose from."}, nil
	}
	if c.Args == "" {
		return shownDirs(dirs, chosen), nil
	}
	at := slices.Index(dirs, c.Args)
	if n, err := strconv.Atoi(c.Args); err == nil && at < 0 {
		at = n - 1
	}
	if strings.EqualFold(c.Args, "default") {
		at = 0
	}
	if at < 0 || at >= len(dirs) {
		return Answer{}, chat.Errorf(chat.CodeInvalid, "the agent can't work there; /dir lists the directories, write the number of one")
	}
	note := dirs[at]
	if at == 0 {
		note = ""
	}
	return Answer{Text: "From the next turn on, the agent works in " + dirs[at] + "."}, a.SetDir(ctx, c, note)
}

func shownDirs(dirs []string, chosen string) Answer {
	answer := Answer{Text: "The agent works in " + chosen + "."}
	if len(dirs) == 1 {
		return answer
	}
	choice := &chat.Choice{}
	var typed []string
	for i, dir := range dirs {
		text, label := fmt.Sprintf("/dir %d", i+1), dir
		if dir == chosen {
			label = "✓ " + label
		}
		choice.Rows = append(choice.Rows, []chat.Button{{Label: label, Text: text}})
		typed = append(typed, text+" ("+dir+")")
	}
	choice.Typed = "Write " + strings.Join(typed, ", ") + " to choose another."
	answer.Choice = choice
	return answer
}

func orNone(s string) string {
	return cmp.Or(s, "not named")
}

func runAgent(_ context.Context, a Actions, c Call) (string, error) {
	var b strings.Builder
	for i, info := range a.Agents() {
		fmt.Fprintf(&b, "%s: %s", info.ID, info.Runner)
		if info.Model != "" {
			b.WriteString(" " + info.Model)
		}
		if i == 0 {
			b.WriteString(" (default)")
		}
		if info.ID == c.Session.Agent {
			b.WriteString(" <- this conversation")
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n"), nil
}

func runWhoami(_ context.Context, _ Actions, c Call) (string, error) {
	who := c.Principal
	if c.Sender.ID != "" {
		who += " (" + c.Channel + " user " + c.Sender.ID + ")"
	}
	return "You are " + who + ".", nil
}

func runID(_ context.Context, _ Actions, c Call) (string, error) {
	text := "This conversation is " + c.Session.String() + "."
	if !c.Target.IsZero() {
		text += " Its address is " + c.Target.Channel + ":" + c.Target.ChatID
		if c.Target.Thread != "" {
			text += ":" + c.Target.Thread
		}
		text += "."
	}
	return text, nil
}

func runStatus(ctx context.Context, a Actions, c Call) (string, error) {
	o, err := a.Overview(ctx, c)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "laneway %s, up %s, store %s\n", o.Version, o.Uptime, o.Store)
	fmt.Fprintf(&b, "agent %s, model %s\n", o.Agent, orNone(o.Model))
	fmt.Fprintf(&b, "here: %s, %s, mode %s, %s", count(o.Queue.Running, "running turn"), count(o.Queue.Waiting, "waiting message"), o.Queue.Mode, count(o.Messages, "message"))
	if o.ContextWindow > 0 {
		fmt.Fprintf(&b, ", about %d of %d tokens", o.Tokens, o.ContextWindow)
	}
	for _, line := range o.Usage {
		b.WriteString("\n" + line)
	}
	for _, l := range o.Lanes {
		fmt.Fprintf(&b, "\nlane %s: %d of %d, %d waiting", l.Name, l.Active, l.Capacity, l.Waiting)
	}
	for _, p := range o.Problems {
		b.WriteString("\nproblem: " + p)
	}
	return b.String(), nil
}

// QueueReport is a session's queue.
type QueueReport struct {
	Mode             chat.QueueMode
	Running, Waiting int
	Cap              int
	Lane             string
}

func runQueue(ctx context.Context, a Actions, c Call) (Answer, error) {
	switch arg := strings.ToLower(c.Args); arg {
	case "":
		return showQueue(ctx, a, c)
	case "clear":
		n, err := a.ClearQueue(ctx, c)
		if err != nil {
			return Answer{}, err
		}
		return Answer{Text: "Removed " + count(n, "waiting message") + "."}, nil
	case "default":
		return Answer{Text: "Using the default mode again."}, a.SetMode(ctx, c, "")
	default:
		if !slices.Contains(chat.QueueModes(), chat.QueueMode(arg)) {
			return Answer{}, chat.Errorf(chat.CodeInvalid, "I don't know the queue mode %q; use queue, followup, interrupt, collect, steer, default or clear", chat.Cut(arg, 40))
		}
		return Answer{Text: "Messages here now use the mode " + arg + "."}, a.SetMode(ctx, c, chat.QueueMode(arg))
	}
}

// showQueue describes the queue and offers the modes; the current mode is marked.
func showQueue(ctx context.Context, a Actions, c Call) (Answer, error) {
	q, err := a.Queue(ctx, c)
	if err != nil {
		return Answer{}, err
	}
	choice := &chat.Choice{Typed: "Write /queue queue, followup, interrupt, collect, steer or default to choose what happens to messages that arrive during a turn."}
	var modes []chat.Button
	for _, m := range chat.QueueModes() {
		label := string(m)
		if m == q.Mode {
			label = "✓ " + label
		}
		modes = append(modes, chat.Button{Label: label, Text: "/queue " + string(m)})
	}
	modes = append(modes, chat.Button{Label: "default", Text: "/queue default"})
	choice.Rows = slices.Collect(slices.Chunk(modes, 3))
	if q.Waiting > 0 {
		choice.Rows = append(choice.Rows, []chat.Button{{Label: "Remove " + count(q.Waiting, "waiting message"), Text: "/queue clear"}})
		choice.Typed += " Write /queue clear to remove what waits."
	}
	text := fmt.Sprintf("Mode %s, %s, %s of at most %d, lane %s.",
		q.Mode, count(q.Running, "running turn"), count(q.Waiting, "waiting message"), q.Cap, q.Lane)
	return Answer{Text: text, Choice: choice}, nil
}

// runTimezone shows or chooses the zone in which a person writes and reads times.
func runTimezone(ctx context.Context, a Actions, c Call) (string, error) {
	switch {
	case c.Args == "":
		return shownZone(ctx, a, c)
	case strings.EqualFold(c.Args, "default"):
		if err := a.SetZone(ctx, c, ""); err != nil {
			return "", err
		}
		return shownZone(ctx, a, c)
	}
	loc, err := schedule.LoadZone(c.Args)
	if err != nil {
		return "", chat.Errorf(chat.CodeInvalid, "I don't know the time zone %s; write a name such as Europe/Berlin, or an offset such as +02:00", chat.Cut(c.Args, 40))
	}
	if err := a.SetZone(ctx, c, loc.String()); err != nil {
		return "", err
	}
	return shownZone(ctx, a, c)
}

// runQuiet shows, sets or ends the quiet hours of a chat.
func runQuiet(ctx context.Context, a Actions, c Call) (string, error) {
	switch {
	case c.Args == "":
		q, ok, err := a.QuietHours(ctx, c)
		if err != nil {
			return "", err
		}
		if !ok {
			return "No quiet hours are set here; set them with /quiet 22:00-7:00.", nil
		}
		return "Quiet hours here are " + q.String() + ", " + q.Zone + ". Meanwhile jobs hold back their messages, except reminders and urgent jobs.", nil
	case strings.EqualFold(c.Args, "off"):
		if err := a.SetQuietHours(ctx, c, nil); err != nil {
			return "", err
		}
		return "Quiet hours are off here. Messages that waited are sent now.", nil
	}
	_, zone, err := a.Clock(ctx, c)
	if err != nil {
		return "", err
	}
	q, err := schedule.ParseQuiet(c.Args, zone)
	if err != nil {
		return "", chat.Errorf(chat.CodeInvalid, "%s; write /quiet 22:00-7:00, or /quiet off", err)
	}
	if err := a.SetQuietHours(ctx, c, &q); err != nil {
		return "", err
	}
	return "Quiet hours here are now " + q.String() + ", " + q.Zone + ". Meanwhile jobs hold back their messages, and afterwards you get the last one of each job. Reminders and urgent jobs don't wait.", nil
}

// shownZone returns the current zone and the time in it, so that a person sees whether it is right.
func shownZone(ctx context.Context, a Actions, c Call) (string, error) {
	chosen, err := a.Zone(ctx, c)
	if err != nil {
		return "", err
	}
	now, zone, err := a.Clock(ctx, c)
	if err != nil {
		return "", err
	}
	text := "Your time zone is " + zone
	if chosen == "" {
		text += ", the gateway's; change it with /timezone Europe/Berlin"
	}
	return text + ". It's " + schedule.Shown(now, zone) + " there.", nil
}

// TocLine is the summary of a period. Session is empty when it covers all sessions.
type TocLine struct{ Period, Session, Text string }

// tocText is how many bytes of a summary /toc shows.
const tocText = 600

func tocCommand() Command {
	return Command{
		Name: "toc", Args: "[day | week | month]", Category: "session", Method: "toc.list",
		Description: "Show summaries by day, week or month; in a group, only of this group.", Run: textOnly(runToc),
	}
}

func runToc(ctx context.Context, a Actions, c Call) (string, error) {
	level := strings.ToLower(c.Args)
	switch {
	case level == "":
		level = "day"
	case !slices.Contains([]string{"day", "week", "month"}, level):
		return "", chat.Errorf(chat.CodeInvalid, "write /toc day, /toc week or /toc month")
	}
	lines, err := a.Toc(ctx, c, level)
	if err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "There are no summaries yet.", nil
	}
	var b strings.Builder
	for _, l := range lines {
		text := chat.Cut(l.Text, tocText)
		if len(text) < len(l.Text) {
			text += " …"
		}
		fmt.Fprintf(&b, "%s\n%s\n\n", strings.TrimSpace(l.Period+"  "+l.Session), text)
	}
	return strings.TrimRight(b.String(), "\n"), nil
}
