package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// statusWait limits the queries of Status and Ready.
const statusWait = time.Second

// Lanes returns a snapshot of the scheduler.
func (d *Dispatcher) Lanes() chat.LanesStatus {
	st := d.sched.Stats()
	out := chat.LanesStatus{
		At: time.Now(), NodeID: d.NodeID(), Draining: d.node.Draining(), UnknownLaneFallbacks: signed(st.UnknownLanes),
		Tracked: st.Sessions.Tracked, Running: st.Sessions.Running, Waiting: st.Sessions.Waiting, Debounced: st.Sessions.Debouncing, Stuck: st.Sessions.Stuck,
		DropsOld: signed(st.Drops.Old), DropsNew: d.receiver.refused.Load(), Stale: signed(st.Drops.Stale), Cleared: signed(st.Drops.Cleared),
	}
	for _, l := range st.Lanes {
		out.Lanes = append(out.Lanes, chat.LaneStatus{
			Name: l.Name, Capacity: l.Capacity, Active: l.Active, Stopping: l.Stopping, Yielded: l.Yielded, Waiting: l.Ready, OldestWait: l.OldestWait,
			Started: signed(l.Started), Finished: signed(l.Finished), Failed: signed(l.Failed), Canceled: signed(l.Cancelled),
		})
	}
	return out
}

// Progress reports whether work progresses. It does not block.
func (d *Dispatcher) Progress() chat.Progress {
	p := chat.Progress{
		StalledFor:    d.sched.Progress(),
		DispatcherAge: d.node.SweepAge(),
		CronAge:       d.svc.Age(), WriterAge: -1,
	}
	if w, ok := d.store.(store.Progresser); ok {
		p.WriterAge = w.WriterAge()
	}
	return p
}

// Ready returns why this process should receive no work; nil = it is ready.
func (d *Dispatcher) Ready(ctx context.Context) error {
	if d.node.Draining() {
		return &chat.NotReadyError{Check: chat.CheckDraining, Cause: chat.ErrDraining}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, statusWait, errors.New("the database did not answer within a second"))
	defer cancel()
	if err := d.store.Ping(ctx); err != nil {
		return &chat.NotReadyError{Check: checkOf(err), Cause: err}
	}
	if err := d.receiver.writes.fault(); err != nil {
		return &chat.NotReadyError{Check: checkOf(err), Cause: err}
	}
	if _, err := d.node.Alive(); err != nil {
		return &chat.NotReadyError{Check: chat.CheckDatabase, Cause: err}
	}
	if err := d.admission.diskFault(); err != nil {
		return &chat.NotReadyError{Check: chat.CheckDisk, Cause: err}
	}
	return nil
}

// checkOf returns the readiness check to which an error of the store belongs.
func checkOf(err error) chat.Check {
	if errors.Is(err, store.ErrSchema) {
		return chat.CheckMigrations
	}
	return chat.CheckDatabase
}

// Status returns a snapshot of this gateway. It works even when the database is unavailable.
func (d *Dispatcher) Status(ctx context.Context) chat.SystemStatus {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	s := chat.SystemStatus{
		NodeID: d.NodeID(), BootID: d.cfg.BootID, Version: d.cfg.Version, StartedAt: d.started, Draining: d.node.Draining(),
		Store: d.store.Kind(), Lanes: d.Lanes(), Progress: d.Progress(),
		DiskLow: d.admission.diskFault() != nil, Stranded: slices.Concat(d.Figures().AgentMissing, d.Figures().TakenWords),
	}
	if h := d.node.Hold(); h != nil {
		s.Held = h.Sentence()
	}
	asked := time.Now()
	unreachable := d.store.Ping(ctx)
	s.StoreLatency = time.Since(asked)
	if err := cmp.Or(unreachable, d.receiver.writes.fault()); err != nil {
		s.StoreError = chat.SentenceOf(err)
	}
	counts := map[string]store.OutboxCount{}
	var cluster store.Cluster
	if unreachable == nil {
		cluster, _ = d.store.Cluster(ctx)     //nolint:errcheck // a picture: what cannot be read is left out
		counts, _ = d.store.OutboxCounts(ctx) //nolint:errcheck // as above
	}
	s.Nodes, s.Gone = cluster.Nodes, cluster.Gone
	for _, st := range d.Channels() {
		c := counts[st.Name]
		st.OutboxWaiting, st.OutboxFailed, st.OutboxMaybeSent, st.OldestWaiting = c.Waiting, c.Failed, c.MaybeSent, c.Oldest
		s.OutboxWaiting, s.OutboxFailed = s.OutboxWaiting+c.Waiting, s.OutboxFailed+c.Failed
		s.Channels = append(s.Channels, st)
		delete(counts, st.Name)
	}
	s.Stranded = append(s.Stranded, d.unserved(counts, cluster.Leases)...)
	for _, a := range d.cfg.Agents {
		if host, ok := a.Runner.(agent.Host); ok {
			p := host.Processes()
			s.Programs = append(s.Programs, chat.ProgramStatus{Agent: a.Info.ID, Processes: p.Living, Limit: p.Most, Memory: p.Memory, Evicted: p.Evicted})
		}
	}
	return s
}

// unserved names the accounts with waiting messages for which no live process sends. counts are those of channels that this process does
// not have.
func (d *Dispatcher) unserved(counts map[string]store.OutboxCount, leases map[string]bool) []string {
	maps.DeleteFunc(counts, func(_ string, c store.OutboxCount) bool { return c.Waiting == 0 })
	if leases == nil || d.node.Hold() != nil { // a held gateway sends nothing, and the hold is reported separately
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !leases[name] {
			all = append(all, fmt.Sprintf("channel %s: %s to be sent, and no running gateway has it: start a gateway with this account", name, store.CountWaiting(counts[name].Waiting, "message")))
		}
	}
	return all
}

// Channels returns a snapshot of the channels of this process, without their waiting messages. It does not block.
func (d *Dispatcher) Channels() []chat.ChannelStatus {
	var all []chat.ChannelStatus
	for _, name := range d.channelNames() {
		cs := d.channels[name].Status()
		st := chat.ChannelStatus{
			Name: name, ID: chat.ChannelKind(name), AccountID: cs.Account, Label: cs.Label, Configured: cs.Configured, Running: cs.Running,
			Connected: cs.Connected, State: cs.State, Mode: cs.Mode, LastError: cs.LastError, LastPollAge: cs.LastPollAge,
		}
		if _, ok := d.node.Held(name); ok {
			st.PollOwner = d.node.ID()
		}
		all = append(all, st)
	}
	slices.SortStableFunc(all, func(a, b chat.ChannelStatus) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.AccountID, b.AccountID))
	})
	return all
}

// Alive returns nil while this process holds its lease in the store, see [ownership.Node.Alive]. It does not block.
func (d *Dispatcher) Alive() error {
	_, err := d.node.Alive()
	return err
}

// signed converts a counter to the type of the protocol.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
