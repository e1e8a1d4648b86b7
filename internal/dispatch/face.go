package dispatch

import (
	"context"
	"fmt"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// Receive takes one message: a chat command is executed at once, any other message is made durable and submitted to its lane. When it
// returns without an error, the message cannot be lost. It never waits for a slot or an answer.
func (d *Dispatcher) Receive(ctx context.Context, m chat.Message) (chat.Receipt, error) {
	return d.receiver.receive(ctx, m, nil)
}

// ReceiveFrom is Receive for a caller of the gateway. The caller may be restricted to its own sessions, a command requires one of its
// scopes, and the number of its waiting messages is limited (chat.CodeRateLimited).
func (d *Dispatcher) ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	return d.receiver.receiveFrom(ctx, m, by)
}

// Defer makes a system text durable that the next turn of its session reads before its message. It starts nothing. A call with the same
// Dedupe adds no second text; it completes what a crash left unfinished.
func (d *Dispatcher) Defer(ctx context.Context, m chat.Message, by chat.Caller) error {
	return d.receiver.deferText(ctx, m, by)
}

// Stop stops what p names and returns the ids of the runs and messages that it ended. It signals the turns of this process before it calls
// the store. The durable part ensures that stopped work never runs again, and reaches turns of other processes. It takes no slot and waits
// for no turn.
func (d *Dispatcher) Stop(ctx context.Context, p store.StopParams) ([]string, error) {
	met, err := d.stops.stop(ctx, p)
	return append(met.running, met.waiting...), err
}

// Reset stops all work of a session and begins an empty transcript; it returns the id of the new one. A repetition, identified by once,
// stops nothing and returns the id of the first call. A caller whom [chat.Caller.MayChange] refuses receives chat.CodeForbidden, and
// nothing was done.
func (d *Dispatcher) Reset(ctx context.Context, key chat.SessionKey, by chat.Caller, once *chat.IdempotencyKey) (string, error) {
	return d.stops.reset(ctx, key, by, once)
}

// Delete stops all work of a session and removes it, with its transcripts unless they are to be kept. A repetition stops and removes
// nothing. It sets the caller in p.
func (d *Dispatcher) Delete(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error) {
	return d.stops.remove(ctx, p, by)
}

// Wait returns when the message has ended, or when ctx is done (then with its cause). It holds no slot and no lock.
func (d *Dispatcher) Wait(ctx context.Context, messageID string) (chat.RunEnd, error) {
	return d.publisher.Wait(store.OnBehalfOf(ctx, ""), messageID, d.endOf) // the end of one run is no list
}

// DefaultAgent returns the id of the agent that answers when no other is named.
func (d *Dispatcher) DefaultAgent() string { return d.cfg.Agents[0].Info.ID }

// agentIDs lists the names of the agents, the default one first.
func (p *parts) agentIDs() []string {
	ids := make([]string, 0, len(p.cfg.Agents))
	for _, a := range p.cfg.Agents {
		ids = append(ids, a.Info.ID)
	}
	return ids
}

// checkAgent returns chat.CodeUnknownAgent when no live process has an agent.
func (p *parts) checkAgent(ctx context.Context, id string) error {
	if _, ours := p.agents[id]; ours {
		return nil
	}
	cluster, err := p.store.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("looking for a gateway with the agent: %w", err)
	}
	if slices.ContainsFunc(cluster.Nodes, func(n chat.NodeStatus) bool { return n.Has(id) }) {
		return nil
	}
	shown := chat.Cut(chat.Printable(id), 64)
	return chat.Errorf(chat.CodeUnknownAgent, "no running gateway has the agent %q: name another one, or start a gateway that has it in its configuration", shown).With("agentId", shown)
}

// Agents lists the agents, the default one first.
func (d *Dispatcher) Agents() []agent.Info {
	infos := make([]agent.Info, 0, len(d.cfg.Agents))
	for _, a := range d.cfg.Agents {
		if runner, ok := a.Runner.(interface{ Lacks() []agent.Lack }); ok {
			a.Info.Lacks = runner.Lacks()
		}
		infos = append(infos, a.Info)
	}
	return infos
}

// Commands lists the chat commands.
func (d *Dispatcher) Commands() []chat.CommandInfo { return d.commands.table.Infos() }

// Subscribe calls fn for every event of this process until cancel is called, and for events of other processes of the store about durable
// changes: ends of runs and changes of sessions. Of these, an event with a long text is loaded only if wanted returns true for it without
// that text. Neither function may block. After cancel has returned, fn is not called again, but a call may still be running.
func (d *Dispatcher) Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func()) {
	return d.publisher.Subscribe(fn, wanted)
}

// InFlight returns the oldest running turn of a session on this process.
func (d *Dispatcher) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	return d.publisher.InFlight(key)
}

// Figures returns counts of the store, as last read. It does not block.
func (d *Dispatcher) Figures() Figures { return d.figures.current() }
