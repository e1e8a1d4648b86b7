package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
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

// health answers from the last picture, which is at most some seconds old except for the channels; with probe it takes a new one.
func (o overview) health(ctx context.Context, c *rpc.Call, p wire.HealthParams) (rpc.Encoded[wire.HealthResult], error) {
	pic := o.srv.health.now(ctx)
	if p.Probe {
		pic = o.srv.health.look(ctx)
	}
	return rpc.Encoded[wire.HealthResult](pic.of(c.Extended)), nil
}

// status takes a new picture: the answer must be current, and in its first seconds the gateway has no other picture.
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
	out.Sessions.Known, out.Sessions.KnownIsLowerBound = min(known, store.Counted), known > store.Counted
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
	b, ok := o.srv.backend.(CronBackend)
	if !ok {
		return wire.StatusCron{}
	}
	sum, enabled := b.CronCounts(ctx, c.Caller())
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

// shownLanes returns a snapshot of the lanes for the caller. The work in them belongs to all principals: a caller that sees only its own
// data receives the names and capacities.
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

// channelsStatus shows the sockets of this gateway as the channel `web`, and the configured channels.
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

// shownAccount returns an account. The messages in the outbox belong to all principals: a caller that sees only its own data receives no
// figures about them.
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
