package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/wire"
)

func opsMethods() []*method {
	return []*method{
		define("health", chat.ScopeRead, health, control, quick),
		define("status", chat.ScopeRead, status, control),
		define("lanes.status", chat.ScopeRead, lanesStatus),
		define("channels.status", chat.ScopeRead, channelsStatus),
		define("agents.list", chat.ScopeRead, agentsList, quick),
		define("commands.list", chat.ScopeRead, commandsList, quick),
	}
}

// health answers from the last picture, which is at most some seconds old; with probe it takes a new one.
func health(ctx context.Context, c *call, p wire.HealthParams) (encoded[wire.HealthResult], error) {
	pic := c.srv.health.Load()
	if p.Probe {
		pic = c.srv.look(ctx)
	}
	return encoded[wire.HealthResult](pic.of(c.extended, c.who.cred.Own())), nil
}

// status takes a new picture: whoever asks wants to know how it is now, and in its first seconds the gateway has no other.
func status(ctx context.Context, c *call, _ wire.NoParams) (wire.StatusResult, error) {
	s := c.srv
	st := s.look(ctx).status
	lanes := c.lanes(s.backend.Lanes())
	out := wire.StatusResult{
		OK: len(problemsOf(&st)) == 0, Version: s.version(), BootID: s.bootID, NodeID: st.NodeID,
		UptimeMs: time.Since(s.startedAt).Milliseconds(),
		Draining: st.Draining || s.state.draining(), Clients: c.clients(), Agents: len(s.backend.Agents()),
		Sessions: wire.StatusSessions{Known: c.knownSessions(ctx, &st), Running: lanes.Sessions.Running, Waiting: lanes.Sessions.Waiting},
		Cron:     c.cronCount(ctx), Lanes: map[string]wire.LaneCount{}, Nodes: []wire.StatusNode{},
	}
	if st.DiskLow {
		out.Disk = diskLow
	}
	for _, l := range lanes.Lanes {
		out.Lanes[l.Name] = wire.LaneCount{Capacity: l.Capacity, Active: l.Active, Waiting: l.Waiting}
	}
	for _, n := range st.Nodes {
		out.Nodes = append(out.Nodes, wire.StatusNode{NodeID: n.ID, Version: n.Version, Draining: n.Draining, LeaseMs: n.Lease.Milliseconds()})
	}
	return out, nil
}

// clients is how many connections there are; a caller that sees its own counts its own.
func (c *call) clients() int {
	if who := c.visible(); who != "" {
		return c.srv.hub.CountOf(who)
	}
	return c.srv.hub.Count()
}

// knownSessions is how many sessions there are; a caller that sees its own counts its own. What cannot be read is 0, as in the picture.
func (c *call) knownSessions(ctx context.Context, st *chat.SystemStatus) int {
	who := c.visible()
	if who == "" {
		return st.SessionsKnown
	}
	if st.StoreError != "" {
		return 0
	}
	_, total, err := c.srv.backend.Sessions(ctx, store.SessionFilter{Visible: who, Limit: 1})
	if err != nil {
		return 0
	}
	return total
}

// cronCount is the cron part of status, of the jobs that the caller sees.
func (c *call) cronCount(ctx context.Context) wire.StatusCron {
	sum := CronSummary{OldestDue: -1}
	switch b := c.srv.backend.(type) {
	case CronBackend:
		jobs, enabled := b.CronCounts(ctx, c.caller())
		sum = CronSummary{Enabled: enabled, Jobs: jobs.Jobs, Running: jobs.Running, Backlog: jobs.Backlog, OldestDue: jobs.OldestDue, NextWake: jobs.NextWake}
	case CronReporter:
		if all := b.CronSummary(ctx); c.visible() == "" {
			sum = all
		} else {
			sum.Enabled = all.Enabled
		}
	default:
		return wire.StatusCron{}
	}
	out := wire.StatusCron{Enabled: sum.Enabled, Jobs: sum.Jobs, Running: sum.Running, Backlog: sum.Backlog, OldestDueMs: ageMs(sum.OldestDue)}
	if !sum.NextWake.IsZero() {
		ms := sum.NextWake.UnixMilli()
		out.NextWakeAtMs = &ms
	}
	return out
}

func lanesOf(st chat.LanesStatus) wire.LanesOfNode {
	out := wire.LanesOfNode{
		TS: st.At.UnixMilli(), NodeID: st.NodeID, Draining: st.Draining, Fallbacks: st.UnknownLaneFallbacks, Lanes: []wire.Lane{},
		Sessions: wire.LaneSessions{Tracked: st.Tracked, Running: st.Running, Waiting: st.Waiting, Debouncing: st.Debounced},
		Drops:    wire.LaneDrops{Old: st.DropsOld, New: st.DropsNew, Stale: st.Stale, Cleared: st.Cleared},
	}
	for _, l := range st.Lanes {
		out.Lanes = append(out.Lanes, wire.Lane{
			Name: l.Name, Capacity: l.Capacity, Active: l.Active, Stopping: l.Stopping, Waiting: l.Waiting, OldestWaitMs: l.OldestWait.Milliseconds(),
			Started: l.Started, Finished: l.Finished, Failed: l.Failed, Cancelled: l.Canceled,
		})
	}
	return out
}

// lanes is a picture of the lanes for the caller. The work in them is everybody's: a caller that sees its own gets the names and capacities.
func (c *call) lanes(st chat.LanesStatus) wire.LanesOfNode {
	out := lanesOf(st)
	if c.visible() == "" {
		return out
	}
	out.Fallbacks, out.Sessions, out.Drops = 0, wire.LaneSessions{}, wire.LaneDrops{}
	for i, l := range out.Lanes {
		out.Lanes[i] = wire.Lane{Name: l.Name, Capacity: l.Capacity}
	}
	return out
}

func lanesStatus(ctx context.Context, c *call, p wire.LanesStatusParams) (wire.LanesStatusResult, error) {
	mine := c.lanes(c.srv.backend.Lanes())
	if !p.Cluster {
		return wire.LanesStatusResult{Of: mine}, nil
	}
	out := wire.LanesOfCluster{LanesOfNode: mine, Nodes: []wire.LanesOfNode{mine}}
	cluster, ok := c.srv.backend.(ClusterBackend)
	if !ok {
		return wire.LanesStatusResult{Of: out}, nil
	}
	all, err := cluster.ClusterLanes(ctx)
	if err != nil {
		return wire.LanesStatusResult{}, err
	}
	out.Nodes = out.Nodes[:0]
	for _, st := range all {
		out.Nodes = append(out.Nodes, c.lanes(st))
	}
	return wire.LanesStatusResult{Of: out}, nil
}

const (
	webChannel     = "web"
	defaultAccount = "default"
)

// channelsStatus shows the sockets of this gateway as the channel `web`, and the channels of the house.
func channelsStatus(ctx context.Context, c *call, p wire.ChannelsStatusParams) (wire.ChannelsStatusResult, error) {
	pic := c.srv.health.Load()
	if p.Probe {
		pic = c.srv.look(ctx)
	}
	out := wire.ChannelsStatusResult{
		TS: time.Now().UnixMilli(), Order: []string{}, Labels: map[string]string{}, Channels: map[string]wire.ChannelSummary{},
		Accounts: map[string][]wire.ChannelAccount{}, DefaultID: map[string]string{},
	}
	if p.Channel == "" || p.Channel == webChannel {
		account := wire.ChannelAccount{AccountID: defaultAccount, Enabled: true, Configured: true, Running: true, Connected: true}
		if i := slices.IndexFunc(pic.status.Channels, func(ch chat.ChannelStatus) bool { return ch.ID == webChannel }); i >= 0 {
			account = c.shownAccount(pic.status.Channels[i])
		}
		addChannel(&out, webChannel, "Web", wire.WebSummary{Connections: c.clients()}, account)
	}
	for _, ch := range pic.status.Channels {
		if ch.ID == webChannel || (p.Channel != "" && p.Channel != ch.ID) {
			continue
		}
		summary := wire.NetworkSummary{Configured: ch.Configured, Connected: ch.Connected, Running: ch.Running}
		addChannel(&out, ch.ID, cmp.Or(ch.Label, ch.ID), summary, c.shownAccount(ch))
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

// shownAccount shows an account. What waits to be sent is everybody's: a caller that sees its own gets no figures of it.
func (c *call) shownAccount(ch chat.ChannelStatus) wire.ChannelAccount {
	out := wire.ChannelAccount{
		AccountID: cmp.Or(ch.AccountID, defaultAccount), Enabled: ch.State != "disabled", Configured: ch.Configured, Running: ch.Running,
		Connected: ch.Connected, State: ch.State, Mode: ch.Mode, LastError: orNull(ch.LastError), LastPollAgeMs: ageMs(ch.LastPollAge),
		PollOwner: ch.PollOwner, OutboxWaiting: ch.OutboxWaiting, OutboxFailed: ch.OutboxFailed,
	}
	if c.visible() != "" {
		out.OutboxWaiting, out.OutboxFailed = 0, 0
	}
	return out
}
