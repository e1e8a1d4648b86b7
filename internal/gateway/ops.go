package gateway

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
	"laneway/internal/usage"
	"laneway/internal/wire"
)

// overview implements the methods that show the gateway as a whole.
type overview struct{ srv *Server }

func (o overview) methods() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("health", chat.ScopeRead, o.health, rpc.Control, rpc.Quick),
		rpc.Define("status", chat.ScopeRead, o.status, rpc.Control),
		rpc.Define("lanes.status", chat.ScopeRead, o.lanesStatus),
		rpc.Define("needs.list", chat.ScopeRead, o.needsList, rpc.Control),
		rpc.Define("runs.list", chat.ScopeRead, o.runsList, rpc.Lists),
		rpc.Define("runs.get", chat.ScopeRead, o.runsGet),
		rpc.Define("channels.status", chat.ScopeRead, o.channelsStatus),
		rpc.Define("agents.list", chat.ScopeRead, o.agentsList, rpc.Quick),
		rpc.Define("commands.list", chat.ScopeRead, o.commandsList, rpc.Quick),
	}
}

// health answers from the last picture, which is at most some seconds old except for the channels;
// with probe it takes a new one.
func (o overview) health(ctx context.Context, c *rpc.Call, p wire.HealthParams) (rpc.Encoded[wire.HealthResult], error) {
	pic := o.srv.health.now(ctx)
	if p.Probe {
		pic = o.srv.health.look(ctx)
	}
	return rpc.Encoded[wire.HealthResult](pic.of(c.Extended)), nil
}

// status takes a new picture: the answer must be current, and in its first seconds the gateway has
// no other picture.
func (o overview) status(ctx context.Context, c *rpc.Call, _ wire.NoParams) (wire.StatusResult, error) {
	s := o.srv
	st := s.health.look(ctx).status
	lanes := shownLanes(c, s.backend.Lanes())
	out := wire.StatusResult{
		OK: len(problemsOf(&st)) == 0, Version: s.version(), BootID: s.bootID, NodeID: st.NodeID,
		UptimeMs: time.Since(s.startedAt).Milliseconds(),
		Draining: st.Draining || s.state.draining(), Clients: o.clients(c), Agents: len(s.backend.Agents()),
		Sessions: wire.StatusSessions{Running: lanes.Sessions.Running, Waiting: lanes.Sessions.Waiting},
		Cron:     o.cronCount(ctx, c), Lanes: map[string]wire.LaneCount{}, Nodes: []wire.StatusNode{},
	}
	known := o.knownSessions(ctx, c, &st)
	out.Sessions.Known, out.Sessions.KnownIsLowerBound = min(known, chat.Counted), known > chat.Counted
	if st.DiskLow {
		out.Disk = diskLow
	}
	if c.Visible() != "" {
		st.Programs = nil // they run for other principals, too
	}
	for _, p := range st.Programs {
		out.Programs = append(out.Programs, wire.StatusProgram{Agent: p.Agent, Processes: p.Processes, Limit: p.Limit, Memory: p.Memory, Evicted: p.Evicted})
	}
	for _, l := range lanes.Lanes {
		out.Lanes[l.Name] = wire.LaneCount{Capacity: l.Capacity, Active: l.Active, Waiting: l.Waiting}
	}
	for _, n := range st.Nodes {
		out.Nodes = append(out.Nodes, wire.StatusNode{NodeID: n.ID, Name: n.Name, Version: n.Version, Draining: n.Draining, LeaseMs: n.Lease.Milliseconds()})
	}
	return out, nil
}

// clients returns the number of connections; a caller that sees only its own data counts its own.
func (o overview) clients(c *rpc.Call) int {
	if who := c.Visible(); who != "" {
		return o.srv.hub.CountOf(who)
	}
	return o.srv.hub.Count()
}

// knownSessions counts the sessions that the caller sees. On an error it is 0, as in the picture.
func (o overview) knownSessions(ctx context.Context, c *rpc.Call, st *chat.SystemStatus) int {
	if st.StoreError != "" {
		return 0
	}
	_, total, err := o.srv.backend.Sessions(ctx, store.SessionFilter{Visible: c.Visible(), Limit: 1})
	if err != nil {
		return 0
	}
	return total
}

// cronCount returns the cron part of status, for the jobs that the caller sees.
func (o overview) cronCount(ctx context.Context, c *rpc.Call) wire.StatusCron {
	b := o.srv.cfg.Jobs
	if b == nil {
		return wire.StatusCron{}
	}
	sum, enabled := b.Counts(ctx, c.Caller())
	return wire.StatusCron{
		Enabled: enabled, Jobs: sum.Jobs, Running: sum.Running, Backlog: sum.Backlog, OldestDueMs: ageMs(sum.OldestDue), NextWakeAtMs: rpc.Instant(sum.NextWake),
	}
}

func lanesOf(st chat.LanesStatus) wire.LanesStatusResult {
	out := wire.LanesStatusResult{
		TS: st.At.UnixMilli(), NodeID: st.NodeID, Draining: st.Draining, Fallbacks: st.UnknownLaneFallbacks, Lanes: []wire.Lane{},
		Sessions: wire.LaneSessions{Tracked: st.Tracked, Running: st.Running, Waiting: st.Waiting, Debouncing: st.Debounced},
		Drops:    wire.LaneDrops{Old: st.DropsOld, New: st.DropsNew, Stale: st.Stale, Cleared: st.Cleared},
	}
	for _, l := range st.Lanes {
		out.Lanes = append(out.Lanes, wire.Lane{
			Name: l.Name, Capacity: l.Capacity, Active: l.Active, Stopping: l.Stopping, Yielded: l.Yielded, Waiting: l.Waiting, OldestWaitMs: l.OldestWait.Milliseconds(),
			Started: l.Started, Finished: l.Finished, Failed: l.Failed, Cancelled: l.Canceled,
		})
	}
	return out
}

// shownLanes returns a snapshot of the lanes for the caller. The work in them belongs to all
// principals: a caller that sees only its own data receives the names and capacities.
func shownLanes(c *rpc.Call, st chat.LanesStatus) wire.LanesStatusResult {
	out := lanesOf(st)
	if c.Visible() == "" {
		return out
	}
	out.Fallbacks, out.Sessions, out.Drops = 0, wire.LaneSessions{}, wire.LaneDrops{}
	for i, l := range out.Lanes {
		out.Lanes[i] = wire.Lane{Name: l.Name, Capacity: l.Capacity}
	}
	return out
}

func (o overview) lanesStatus(_ context.Context, c *rpc.Call, _ wire.NoParams) (wire.LanesStatusResult, error) {
	return shownLanes(c, o.srv.backend.Lanes()), nil
}

// channelsStatus shows the sockets of this gateway as the channel `web`, and the configured
// channels.
func (o overview) channelsStatus(ctx context.Context, c *rpc.Call, p wire.ChannelsStatusParams) (wire.ChannelsStatusResult, error) {
	pic := o.srv.health.now(ctx)
	if p.Probe {
		pic = o.srv.health.look(ctx)
	}
	out := wire.ChannelsStatusResult{
		TS: time.Now().UnixMilli(), Order: []string{}, Labels: map[string]string{}, Channels: map[string]wire.ChannelSummary{},
		Accounts: map[string][]wire.ChannelAccount{}, DefaultID: map[string]string{},
	}
	if p.Channel == "" || p.Channel == wire.ChannelWeb {
		account := wire.ChannelAccount{AccountID: wire.AccountDefault, Enabled: true, Configured: true, Running: true, Connected: true}
		if i := slices.IndexFunc(pic.status.Channels, func(ch chat.ChannelStatus) bool { return ch.ID == wire.ChannelWeb }); i >= 0 {
			account = shownAccount(c, pic.status.Channels[i])
		}
		addChannel(&out, wire.ChannelWeb, "Web", wire.WebSummary{Connections: o.clients(c)}, account)
	}
	for _, ch := range pic.status.Channels {
		if ch.ID == wire.ChannelWeb || (p.Channel != "" && p.Channel != ch.ID) {
			continue
		}
		summary := wire.NetworkSummary{Configured: ch.Configured, Connected: ch.Connected, Running: ch.Running}
		addChannel(&out, ch.ID, cmp.Or(ch.Label, ch.ID), summary, shownAccount(c, ch))
	}
	return out, nil
}

func addChannel(r *wire.ChannelsStatusResult, id, label string, summary any, account wire.ChannelAccount) {
	if _, there := r.Channels[id]; !there {
		r.Order = append(r.Order, id)
		r.Labels[id], r.Channels[id], r.DefaultID[id] = label, wire.ChannelSummary{Of: summary}, account.AccountID
	}
	r.Accounts[id] = append(r.Accounts[id], account)
}

// shownAccount returns an account. The messages in the outbox belong to all principals: a caller
// that sees only its own data receives no figures about them.
func shownAccount(c *rpc.Call, ch chat.ChannelStatus) wire.ChannelAccount {
	out := wire.ChannelAccount{
		AccountID: cmp.Or(ch.AccountID, wire.AccountDefault), Enabled: ch.State != "disabled", Configured: ch.Configured, Running: ch.Running,
		Connected: ch.Connected, State: ch.State, Mode: ch.Mode, LastError: orNull(ch.LastError), LastPollAgeMs: ageMs(ch.LastPollAge),
		PollOwner: ch.PollOwner, OutboxWaiting: ch.OutboxWaiting, OutboxFailed: ch.OutboxFailed, OutboxMaybeSent: ch.OutboxMaybeSent,
	}
	if c.Visible() != "" {
		out.OutboxWaiting, out.OutboxFailed, out.OutboxMaybeSent = 0, 0, 0
	}
	return out
}

func (overview) lists() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("question.list", chat.ScopeRead, empty[wire.NoParams](wire.QuestionListResult{Questions: []any{}}), rpc.Quick),
		rpc.Define("plugin.approval.list", chat.ScopeRead, empty[wire.NoParams](wire.ApprovalListResult{}), rpc.Quick),
		rpc.Define("taskSuggestions.list", chat.ScopeRead, empty[wire.TaskSuggestionsListParams](wire.TaskSuggestionsListResult{Suggestions: []any{}})),
	}
}

// empty answers methods about features that this gateway does not have; a terminal client calls
// them at its start.
func empty[P, R any](result R) func(context.Context, *rpc.Call, P) (R, error) {
	return func(context.Context, *rpc.Call, P) (R, error) { return result, nil }
}

func (o overview) agentsList(_ context.Context, c *rpc.Call, _ wire.NoParams) (wire.AgentsListResult, error) {
	out := wire.AgentsListResult{DefaultID: o.srv.backend.DefaultAgent(), MainKey: "main", Scope: sessionScope, Agents: []wire.AgentEntry{}}
	for _, a := range o.srv.backend.Agents() {
		e := wire.AgentEntry{ID: a.ID, Kind: "agent", Name: a.Name}
		if a.Model != "" {
			e.Model = &wire.AgentModel{Primary: a.Model}
		}
		if c.Extended {
			e.Runner, e.Servers = a.Runner, a.Servers
			for _, lack := range a.Lacks {
				one := wire.AgentLack{Model: lack.Model, Part: lack.Part, UntilMs: lack.Until.UnixMilli()}
				if !c.Cred.Own() {
					one.Said = lack.Said
				}
				e.Lacks = append(e.Lacks, one)
			}
		}
		out.Agents = append(out.Agents, e)
	}
	if c.Extended && !c.Cred.Own() && o.srv.cfg.ToolServers != nil {
		out.Servers = toolServers(o.srv.cfg.ToolServers())
	}
	return out, nil
}

func toolServers(list []chat.ToolServer) (out []wire.ToolServer) {
	for _, s := range list {
		one := wire.ToolServer{Name: s.Name, State: s.State, Tools: s.Tools}
		for _, t := range s.Renamed {
			one.Renamed = append(one.Renamed, wire.RenamedTool{Name: t.Name, Own: t.Own})
		}
		for _, t := range s.LeftOut {
			one.LeftOut = append(one.LeftOut, wire.LeftOutTool{Name: t.Name, Reason: t.Why})
		}
		if s.LastError != "" {
			one.LastError = &s.LastError
		}
		out = append(out, one)
	}
	return out
}

func (o overview) commandsList(_ context.Context, c *rpc.Call, p wire.CommandsListParams) (wire.CommandsListResult, error) {
	out := wire.CommandsListResult{Commands: []wire.CommandEntry{}}
	for _, cmd := range o.srv.backend.Commands() {
		e := wire.CommandEntry{
			Name: cmd.Name, TextAliases: []string{"/" + cmd.Name}, Description: cmd.Description, Category: commandCategory(cmd.Category),
			Source: "native", Scope: "both", AcceptsArgs: cmd.ArgsHint != "",
		}
		for _, alias := range cmd.Aliases {
			e.TextAliases = append(e.TextAliases, "/"+alias)
		}
		if e.AcceptsArgs && (p.IncludeArgs == nil || *p.IncludeArgs) {
			e.Args = []wire.CommandArg{{Name: "args", Description: cmd.ArgsHint, Type: "string"}}
		}
		out.Commands = append(out.Commands, e)
	}
	return out, nil
}

// commandCategory maps laneway's categories to those of the standard protocol.
func commandCategory(s string) string {
	switch s {
	case "session", "options", "status", "management", "media", "tools":
		return s
	case "model":
		return "options"
	default:
		return "management"
	}
}

// runsList lists the turns of the caller, or of all principals for a caller that sees everything.
func (o overview) runsList(ctx context.Context, c *rpc.Call, p wire.RunsListParams) (wire.RunsListResult, error) {
	out := wire.RunsListResult{TS: time.Now().UnixMilli(), Runs: []wire.Run{}}
	f := store.TurnFilter{Which: p.State, Lane: p.Lane, Visible: c.Visible(), Limit: store.DefaultTasks}
	if p.Limit != nil {
		f.Limit = int(*p.Limit)
	}
	if p.SessionKey != "" {
		key, err := chat.ParseSessionKey(p.SessionKey, o.srv.backend.DefaultAgent())
		if err != nil {
			return out, c.BadParam("/sessionKey", err.Error())
		}
		f.Session = key
	}
	if p.Cursor != "" {
		at, id, ok := strings.Cut(p.Cursor, ".")
		ms, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return out, c.BadParam("/cursor", "it is not a nextCursor of runs.list")
		}
		f.After = &store.TurnMark{At: time.UnixMilli(ms), ID: id}
	}
	list, waits, err := o.srv.backend.Turns(ctx, f)
	if err != nil {
		return out, err
	}
	for i := range list {
		out.Runs = append(out.Runs, runView(c, &list[i], waits))
	}
	if n := len(list); n == f.Limit && waits[list[n-1].ID].Cause != chat.WaitRetry { // runs between two attempts follow after the last page of the others
		last := &list[n-1]
		at := last.AcceptedAt
		if f.Which == store.TurnsEnded {
			at = last.EndedAt
		}
		out.NextCursor = strconv.FormatInt(at.UnixMilli(), 10) + "." + last.ID
	}
	return out, nil
}

// runsGet returns one run with its tasks, its messages and, for a run of a job, its attempts.
func (o overview) runsGet(ctx context.Context, c *rpc.Call, p wire.RunsGetParams) (wire.RunsGetResult, error) {
	out := wire.RunsGetResult{Tasks: []wire.Run{}, Deliveries: []wire.RunDelivery{}}
	b := o.srv.backend
	f := store.TurnFilter{Message: p.ID, Visible: c.Visible()}
	if p.SessionKey != "" {
		key, err := chat.ParseSessionKey(p.SessionKey, b.DefaultAgent())
		if err != nil {
			return out, c.BadParam("/sessionKey", err.Error())
		}
		f.Session = key
	}
	list, waits, err := b.Turns(ctx, f)
	if err == nil && len(list) == 0 { // a caller names its runs by their keys
		f.Message = chat.RunIDOf(c.Principal(), p.ID)
		list, waits, err = b.Turns(ctx, f)
	}
	if err != nil || len(list) == 0 {
		return out, err
	}
	t := &list[0]
	run := runView(c, t, waits)
	out.Run = &run
	x := store.ExplainTurn(t, shownWait(c, t.ID, waits), time.Now())
	out.Answer = &wire.RunAnswer{Why: x.Why, Text: x.Text}
	for _, s := range t.Sent {
		out.Deliveries = append(out.Deliveries, wire.RunDelivery{
			Channel: s.Target.Channel, To: s.Target.ChatID, Kind: s.Kind, State: s.State, Attempts: s.Attempts, Error: s.Error, AtMs: rpc.Millis(s.DoneAt),
		})
	}
	tasks, waits, err := b.Turns(ctx, store.TurnFilter{Parent: t.ID, Visible: c.Visible()})
	if err != nil {
		return out, err
	}
	for i := range tasks {
		out.Tasks = append(out.Tasks, runView(c, &tasks[i], waits))
	}
	if run.JobID == "" {
		return out, nil
	}
	if b := o.srv.cfg.Jobs; b != nil {
		page, err := b.Ledger(ctx, cron.RunFilter{RunID: ledgerID(t.ID), IncludeActive: true, Limit: 1}, c.Caller())
		if err != nil {
			return out, err
		}
		if len(page.Runs) > 0 {
			entry := jobs.EntryView(page.Runs[0], nil, true)
			out.Job = &entry
		}
	}
	return out, nil
}

// ledgerID returns the ledger's id of the run to whose attempt a message belongs.
func ledgerID(message string) string {
	id, _, _ := strings.Cut(message, "/")
	return id
}

// kindOf returns the kind of origin of a turn.
func kindOf(t *store.Turn) string {
	switch t.Channel {
	case cron.Channel, "api", "hook", chat.ChannelTask:
		return t.Channel
	default:
		return "chat"
	}
}

// shownWait returns what a turn waits for, in a form that the caller may see; nil = nothing.
func shownWait(c *rpc.Call, id string, waits map[string]chat.Waiting) *chat.Waiting {
	w, ok := waits[id]
	if !ok {
		return nil
	}
	if w.Cause == chat.WaitLane && c.Visible() != "" {
		w.Position = 0 // it would reveal how much work of others waits
	}
	return &w
}

func runView(c *rpc.Call, t *store.Turn, waits map[string]chat.Waiting) wire.Run {
	out := wire.Run{
		ID: t.ID, RunID: chat.ShownRunID(t.ID), Kind: kindOf(t), SessionKey: t.Session.String(), AgentID: t.Session.Agent, Principal: t.Principal, Channel: t.Channel,
		Lane: t.Lane, ParentRunID: chat.ShownRunID(t.Parent), RootRunID: chat.ShownRunID(t.Root), Text: t.Text, State: t.State, Outcome: string(t.Outcome),
		Reason: t.Reason, Error: t.Error, StopBy: t.StopBy, NodeID: t.Node, Attempt: t.Attempt, AcceptedAt: rpc.Millis(t.AcceptedAt), StartedAt: rpc.Millis(t.StartedAt),
		EndedAt: rpc.Millis(t.EndedAt), Model: t.Usage.Model, Provider: t.Usage.Provider,
	}
	if c.Cred.Administers(c.Scopes) {
		out.Detail = t.Detail
	}
	if t.Usage.InputTokens+t.Usage.OutputTokens > 0 {
		out.Usage = &wire.RunUsage{InputTokens: t.Usage.InputTokens, OutputTokens: t.Usage.OutputTokens}
	}
	if t.Channel == cron.Channel {
		if _, job, _, err := cron.ParseRunID(ledgerID(t.ID)); err == nil {
			out.JobID = job
		}
	}
	if w := shownWait(c, t.ID, waits); w != nil {
		out.WaitingFor = &wire.RunWaiting{Cause: string(w.Cause), Text: w.Text(), Position: w.Position, UntilMs: rpc.Millis(w.Until), BlockedBy: chat.ShownRunID(w.BlockedBy)}
	}
	return out
}

// UsageBackend counts what agents use; [usage.Meter] implements it.
type UsageBackend interface {
	// Report returns the usage of today; with own, only that of the principal.
	Report(ctx context.Context, principal string, own bool) (usage.Report, error)
	Rows(ctx context.Context, q usage.Query) ([]usage.Row, error)
}

func (o overview) usages() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("usage.status", chat.ScopeRead, o.usageStatus),
		rpc.Define("usage.list", chat.ScopeRead, o.usageList),
	}
}

// usageOf returns the usage of today that a caller sees.
func (o overview) usageOf(ctx context.Context, c *rpc.Call) (usage.Report, error) {
	if o.srv.cfg.Usage == nil {
		return usage.Report{}, chat.Errorf(chat.CodeInvalid, "this gateway counts no usage")
	}
	return o.srv.cfg.Usage.Report(ctx, c.Principal(), c.Visible() != "")
}

func (o overview) usageStatus(ctx context.Context, c *rpc.Call, _ wire.UsageStatusParams) (wire.UsageStatusResult, error) {
	r, err := o.usageOf(ctx, c)
	if err != nil {
		return wire.UsageStatusResult{}, err
	}
	out := wire.UsageStatusResult{
		Day: r.Day, Timezone: r.Zone.String(), ResetsAtMs: r.Resets.UnixMilli(), Currency: r.Currency, Today: usageCount(r.Today), Budgets: []wire.UsageBudget{},
	}
	for _, s := range r.Budgets {
		out.Budgets = append(out.Budgets, usageBudget(s))
	}
	return out, nil
}

func usageBudget(s usage.State) wire.UsageBudget {
	out := wire.UsageBudget{Kind: string(s.Kind), LimitTokens: s.Limit.Tokens, LimitMicros: micros(s.Limit.Cost)}
	if s.Kind == usage.KindTurn || s.Kind == usage.KindJob {
		return out
	}
	tokens, cost := s.Spent.Tokens, micros(s.Spent.Cost)
	out.UsedTokens, out.UsedMicros = &tokens, &cost
	switch s.Level() {
	case usage.LevelReached:
		out.Level = "reached"
	case usage.LevelNear:
		out.Level = "near"
	case usage.LevelFree:
		out.Level = "free"
	}
	return out
}

// micros returns an amount in millionths of the currency.
func micros(m usage.Money) int64 { return int64(m) / 1000 }

func usageCount(c usage.Counted) wire.UsageCount {
	return wire.UsageCount{
		Turns: c.Turns, Requests: c.Requests, InputTokens: c.InputTokens, OutputTokens: c.OutputTokens, CachedTokens: c.CachedTokens,
		TotalTokens: c.Spent().Tokens, CostMicros: micros(c.Cost), UnreportedMs: c.Unreported.Milliseconds(),
	}
}

// The range of usage.list in days: the maximum, and the default.
const (
	mostUsageDays    = 100
	defaultUsageDays = 7
)

// byDay is the grouping of usage.list by days only.
const byDay = "day"

func (o overview) usageList(ctx context.Context, c *rpc.Call, p wire.UsageListParams) (wire.UsageListResult, error) {
	r, err := o.usageOf(ctx, c)
	if err != nil {
		return wire.UsageListResult{}, err
	}
	from, to, err := usageDays(p, r.Day)
	if err != nil {
		return wire.UsageListResult{}, err
	}
	out := wire.UsageListResult{From: from, To: to, By: p.By, Currency: r.Currency, Rows: []wire.UsageRow{}}
	out.By = cmp.Or(out.By, byDay)
	q := usage.Query{From: from, To: to, Principal: c.Visible(), Limit: int(p.Limit)}
	if out.By != byDay {
		q.By = usage.Grouping(out.By)
	}
	rows, err := o.srv.cfg.Usage.Rows(ctx, q)
	if err != nil {
		return wire.UsageListResult{}, err
	}
	for _, row := range rows {
		out.Rows = append(out.Rows, wire.UsageRow{Day: row.Day, Name: row.Name, UsageCount: usageCount(row.Counted)})
	}
	out.HasMore = len(rows) == q.Most()
	return out, nil
}

// usageDays returns the first and the last day of a list.
func usageDays(p wire.UsageListParams, today string) (from, to string, err error) {
	if to = p.To; to == "" {
		to = today
	}
	last, err := time.Parse(time.DateOnly, to)
	if err != nil {
		return "", "", chat.Errorf(chat.CodeInvalid, "to must be a day such as 2026-03-14")
	}
	if from = p.From; from == "" {
		from = last.AddDate(0, 0, 1-defaultUsageDays).Format(time.DateOnly)
	}
	first, err := time.Parse(time.DateOnly, from)
	switch {
	case err != nil:
		return "", "", chat.Errorf(chat.CodeInvalid, "from must be a day such as 2026-03-14")
	case last.Before(first):
		return "", "", chat.Errorf(chat.CodeInvalid, "from must not be after to")
	case !last.Before(first.AddDate(0, 0, mostUsageDays)):
		return "", "", chat.Errorf(chat.CodeInvalid, "from and to may be at most %d days; ask in parts", mostUsageDays)
	}
	return from, to, nil
}
