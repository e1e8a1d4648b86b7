package dispatch

import (
	"context"
	"fmt"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// Receive takes one message: a chat command is executed at once, everything else is made durable and submitted to its lane. When it
// returns without an error the message cannot be lost. It never waits for a slot or an answer.
func (d *Dispatcher) Receive(ctx context.Context, m chat.Message) (chat.Receipt, error) {
	return d.receiver.receive(ctx, m, nil)
}

// ReceiveFrom is Receive for a caller of the gateway: it may be restricted to sessions of its own, a command needs one of its scopes, and so many
// of its messages may wait (chat.CodeRateLimited).
func (d *Dispatcher) ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	return d.receiver.receiveFrom(ctx, m, by)
}

// Defer makes a system text durable that the next turn of its session sees before its message. It starts nothing. The same Dedupe
// offered again is the same text; a repetition completes what a crash has left half done.
func (d *Dispatcher) Defer(ctx context.Context, m chat.Message, by chat.Caller) error {
	return d.receiver.deferText(ctx, m, by)
}

// Stop stops what p names and returns the ids of the runs and messages that it ended. The signal reaches turns of this process
// before the store is asked; the durable half makes sure that what was stopped never runs again, and reaches turns of other
// processes. It takes no slot and waits for no turn.
func (d *Dispatcher) Stop(ctx context.Context, p store.StopParams) ([]string, error) {
	met, err := d.stops.stop(ctx, p)
	return append(met.running, met.waiting...), err
}

// Reset stops everything of a session and begins an empty transcript; it returns the id of the new one. A repetition, which once identifies, stops
// nothing and returns the id of the first. A caller whom [chat.Caller.MayChange] refuses gets chat.CodeForbidden, and nothing was done.
func (d *Dispatcher) Reset(ctx context.Context, key chat.SessionKey, by chat.Caller, once *chat.IdempotencyKey) (string, error) {
	return d.stops.reset(ctx, key, by, once)
}

// Delete stops everything of a session and removes it, with its transcripts unless they are to be kept. A repetition stops and removes
// nothing. It fills in who asked.
func (d *Dispatcher) Delete(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error) {
	return d.stops.remove(ctx, p, by)
}

// Wait returns when the message has ended, or when ctx is over (then with its cause). It holds no slot and no lock.
func (d *Dispatcher) Wait(ctx context.Context, messageID string) (chat.RunEnd, error) {
	return d.publisher.Wait(ctx, messageID, d.endOf)
}

// DefaultAgent is the id of the agent that answers when no other is named.
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
		infos = append(infos, a.Info)
	}
	return infos
}

// Commands lists the chat commands.
func (d *Dispatcher) Commands() []chat.CommandInfo { return d.commands.table.Infos() }

// Subscribe calls fn for every event of this process until cancel is called, and for those of others that share the store and are about something
// durable: ends of runs and changes of sessions. Of those, one with a long text comes only while wanted answers true for it without that text.
// Neither may block; fn is never called after cancel has returned, unless it is running.
func (d *Dispatcher) Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func()) {
	return d.publisher.Subscribe(fn, wanted)
}

// InFlight is the oldest running turn of a session on this process.
func (d *Dispatcher) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	return d.publisher.InFlight(key)
}

// Figures are counts of the store, as last read. It answers at once, without the database.
func (d *Dispatcher) Figures() Figures { return d.figures.current() }
