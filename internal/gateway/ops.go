package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
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

type healthParams struct {
	Probe    bool `json:"probe"`
	Extended bool `json:"extended"`
}

func (p *healthParams) wantsExtended() bool { return p.Extended }

// health answers from the last picture, which is at most some seconds old; with probe it takes a new one.
func health(ctx context.Context, c *call, p healthParams) (any, error) {
	pic := c.srv.health.Load()
	if p.Probe {
		pic = c.srv.look(ctx)
	}
	return rawJSON(pic.of(c.extended, c.who.cred.Own())), nil
}

type statusResult struct {
	OK       bool                 `json:"ok"`
	Version  string               `json:"version"`
	BootID   string               `json:"bootId"`
	NodeID   string               `json:"nodeId"`
	UptimeMs int64                `json:"uptimeMs"`
	Draining bool                 `json:"draining"`
	Clients  int                  `json:"clients"`
	Agents   int                  `json:"agents"`
	Sessions statusSessions       `json:"sessions"`
	Cron     statusCron           `json:"cron"`
	Lanes    map[string]laneCount `json:"lanes"`
	Nodes    []statusNode         `json:"nodes"`
	Disk     string               `json:"disk,omitempty"` // "low", or absent
}

type statusSessions struct {
	Known   int `json:"known"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

type statusCron struct {
	Enabled      bool   `json:"enabled"`
	Jobs         int    `json:"jobs"`
	Running      int    `json:"running"`
	Backlog      int    `json:"backlog"`
	OldestDueMs  *int64 `json:"oldestDueMs"`
	NextWakeAtMs *int64 `json:"nextWakeAtMs"`
}

type laneCount struct {
	Capacity int `json:"capacity"`
	Active   int `json:"active"`
	Waiting  int `json:"waiting"`
}

type statusNode struct {
	NodeID   string `json:"nodeId"`
	Version  string `json:"version"`
	Draining bool   `json:"draining"`
	LeaseMs  int64  `json:"leaseMs"`
}

// status takes a new picture: whoever asks wants to know how it is now, and in its first seconds the gateway has no other.
func status(ctx context.Context, c *call, _ noParams) (any, error) {
	s := c.srv
	st := s.look(ctx).status
	lanes := c.lanes(s.backend.Lanes())
	out := statusResult{
		OK: len(problemsOf(&st)) == 0, Version: s.version(), BootID: s.bootID, NodeID: st.NodeID,
		UptimeMs: time.Since(s.startedAt).Milliseconds(),
		Draining: st.Draining || s.state.draining(), Clients: c.clients(), Agents: len(s.backend.Agents()),
		Sessions: statusSessions{c.knownSessions(ctx, &st), lanes.Sessions.Running, lanes.Sessions.Waiting},
		Cron:     c.cronCount(ctx), Lanes: map[string]laneCount{}, Nodes: []statusNode{},
	}
	if st.DiskLow {
		out.Disk = diskLow
	}
	for _, l := range lanes.Lanes {
		out.Lanes[l.Name] = laneCount{l.Capacity, l.Active, l.Waiting}
	}
	for _, n := range st.Nodes {
		out.Nodes = append(out.Nodes, statusNode{n.ID, n.Version, n.Draining, n.Lease.Milliseconds()})
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
func (c *call) cronCount(ctx context.Context) statusCron {
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
		return statusCron{}
	}
	out := statusCron{Enabled: sum.Enabled, Jobs: sum.Jobs, Running: sum.Running, Backlog: sum.Backlog, OldestDueMs: ageMs(sum.OldestDue)}
	if !sum.NextWake.IsZero() {
		ms := sum.NextWake.UnixMilli()
		out.NextWakeAtMs = &ms
	}
	return out
}

type lanesPicture struct {
	TS        int64        `json:"ts"`
	NodeID    string       `json:"nodeId"`
	Draining  bool         `json:"draining"`
	Fallbacks int64        `json:"unknownLaneFallbacks"`
	Lanes     []lanePlace  `json:"lanes"`
	Sessions  laneSessions `json:"sessions"`
	Drops     laneDrops    `json:"drops"`
}

type lanePlace struct {
	Name         string `json:"name"`
	Capacity     int    `json:"capacity"`
	Active       int    `json:"active"`
	Stopping     int    `json:"stopping"`
	Waiting      int    `json:"waiting"`
	OldestWaitMs int64  `json:"oldestWaitMs"`
	Started      int64  `json:"started"`
	Finished     int64  `json:"finished"`
	Failed       int64  `json:"failed"`
	Cancelled    int64  `json:"cancelled"`
}

type laneSessions struct {
	Tracked    int `json:"tracked"`
	Running    int `json:"running"`
	Waiting    int `json:"waiting"`
	Debouncing int `json:"debouncing"`
}

type laneDrops struct {
	Old     int64 `json:"old"`
	New     int64 `json:"new"`
	Stale   int64 `json:"stale"`
	Cleared int64 `json:"cleared"`
}

func lanesOf(st chat.LanesStatus) lanesPicture {
	out := lanesPicture{
		TS: st.At.UnixMilli(), NodeID: st.NodeID, Draining: st.Draining, Fallbacks: st.UnknownLaneFallbacks, Lanes: []lanePlace{},
		Sessions: laneSessions{st.Tracked, st.Running, st.Waiting, st.Debounced},
		Drops:    laneDrops{st.DropsOld, st.DropsNew, st.Stale, st.Cleared},
	}
	for _, l := range st.Lanes {
		out.Lanes = append(out.Lanes, lanePlace{
			l.Name, l.Capacity, l.Active, l.Stopping, l.Waiting, l.OldestWait.Milliseconds(), l.Started, l.Finished, l.Failed, l.Canceled,
		})
	}
	return out
}

// lanes is a picture of the lanes for the caller. The work in them is everybody's: a caller that sees its own gets the names and capacities.
func (c *call) lanes(st chat.LanesStatus) lanesPicture {
	out := lanesOf(st)
	if c.visible() == "" {
		return out
	}
	out.Fallbacks, out.Sessions, out.Drops = 0, laneSessions{}, laneDrops{}
	for i, l := range out.Lanes {
		out.Lanes[i] = lanePlace{Name: l.Name, Capacity: l.Capacity}
	}
	return out
}

type lanesParams struct {
	Cluster bool `json:"cluster"`
}

type clusterPicture struct {
	lanesPicture
	Nodes []lanesPicture `json:"nodes"`
}

func lanesStatus(ctx context.Context, c *call, p lanesParams) (any, error) {
	mine := c.lanes(c.srv.backend.Lanes())
	if !p.Cluster {
		return mine, nil
	}
	out := clusterPicture{lanesPicture: mine, Nodes: []lanesPicture{mine}}
	cluster, ok := c.srv.backend.(ClusterBackend)
	if !ok {
		return out, nil
	}
	all, err := cluster.ClusterLanes(ctx)
	if err != nil {
		return nil, err
	}
	out.Nodes = out.Nodes[:0]
	for _, st := range all {
		out.Nodes = append(out.Nodes, c.lanes(st))
	}
	return out, nil
}

type channelsParams struct {
	Probe     bool   `json:"probe"`
	TimeoutMs int64  `json:"timeoutMs" p:"min=0"`
	Channel   string `json:"channel" p:"min=1"`
}

type channelsResult struct {
	TS        int64                       `json:"ts"`
	Order     []string                    `json:"channelOrder"`
	Labels    map[string]string           `json:"channelLabels"`
	Channels  map[string]any              `json:"channels"`
	Accounts  map[string][]channelAccount `json:"channelAccounts"`
	DefaultID map[string]string           `json:"channelDefaultAccountId"`
}

type channelAccount struct {
	AccountID     string  `json:"accountId"`
	Enabled       bool    `json:"enabled"`
	Configured    bool    `json:"configured"`
	Running       bool    `json:"running"`
	Connected     bool    `json:"connected"`
	State         string  `json:"state,omitempty"`
	Mode          string  `json:"mode,omitempty"`
	LastError     *string `json:"lastError"`
	LastPollAgeMs *int64  `json:"lastPollAgeMs"`
	PollOwner     string  `json:"pollOwner,omitempty"`
	OutboxWaiting int     `json:"outboxWaiting"`
	OutboxFailed  int     `json:"outboxFailed"`
}

const (
	webChannel     = "web"
	defaultAccount = "default"
)

// channelsStatus shows the sockets of this gateway as the channel `web`, and the channels of the house.
func channelsStatus(ctx context.Context, c *call, p channelsParams) (any, error) {
	pic := c.srv.health.Load()
	if p.Probe {
		pic = c.srv.look(ctx)
	}
	out := channelsResult{
		TS: time.Now().UnixMilli(), Order: []string{}, Labels: map[string]string{}, Channels: map[string]any{},
		Accounts: map[string][]channelAccount{}, DefaultID: map[string]string{},
	}
	if p.Channel == "" || p.Channel == webChannel {
		account := channelAccount{AccountID: defaultAccount, Enabled: true, Configured: true, Running: true, Connected: true}
		if i := slices.IndexFunc(pic.status.Channels, func(ch chat.ChannelStatus) bool { return ch.ID == webChannel }); i >= 0 {
			account = c.shownAccount(pic.status.Channels[i])
		}
		out.add(webChannel, "Web", map[string]int{"connections": c.clients()}, account)
	}
	for _, ch := range pic.status.Channels {
		if ch.ID == webChannel || (p.Channel != "" && p.Channel != ch.ID) {
			continue
		}
		summary := map[string]bool{"configured": ch.Configured, "running": ch.Running, "connected": ch.Connected}
		out.add(ch.ID, cmp.Or(ch.Label, ch.ID), summary, c.shownAccount(ch))
	}
	return out, nil
}

func (r *channelsResult) add(id, label string, summary any, account channelAccount) {
	if _, there := r.Channels[id]; !there {
		r.Order = append(r.Order, id)
		r.Labels[id], r.Channels[id], r.DefaultID[id] = label, summary, account.AccountID
	}
	r.Accounts[id] = append(r.Accounts[id], account)
}

// shownAccount shows an account. What waits to be sent is everybody's: a caller that sees its own gets no figures of it.
func (c *call) shownAccount(ch chat.ChannelStatus) channelAccount {
	out := channelAccount{
		AccountID: cmp.Or(ch.AccountID, defaultAccount), Enabled: ch.State != "disabled", Configured: ch.Configured, Running: ch.Running,
		Connected: ch.Connected, State: ch.State, Mode: ch.Mode, LastError: orNull(ch.LastError), LastPollAgeMs: ageMs(ch.LastPollAge),
		PollOwner: ch.PollOwner, OutboxWaiting: ch.OutboxWaiting, OutboxFailed: ch.OutboxFailed,
	}
	if c.visible() != "" {
		out.OutboxWaiting, out.OutboxFailed = 0, 0
	}
	return out
}
