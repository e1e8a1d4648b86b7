package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// Sweep takes over sessions that no live node owns; see the port. A dead node gets chat.ErrFenced.
func (s *Store) Sweep(ctx context.Context, p store.SweepParams) ([]store.Taken, error) {
	of, err := pollOf(pollSweep, p.Node, p.Agents)
	if err != nil {
		return nil, err
	}
	return poll(ctx, s, of, func(ctx context.Context, t *tx) (f found[[]store.Taken], err error) {
		if err := t.proveAlive(ctx, p.Node); err != nil {
			return f, err
		}
		if err := t.endStoppingOfDead(ctx); err != nil {
			return f, err
		}
		held, err := t.held(ctx)
		if err != nil {
			return f, err
		}
		if held {
			return f, t.forget(ctx)
		}
		if f.out, err = t.sweep(ctx, p); err != nil {
			return f, err
		}
		if err := t.forget(ctx); err != nil {
			return f, err
		}
		more, err := t.shrink(ctx)
		if err != nil || more || len(f.out) > 0 || p.Limit <= 0 {
			return f, err
		}
		f.idle = true
		f.next, err = t.nextOrphan(ctx, p.Node)
		return f, err
	})
}

// nextOrphan is when time alone gives a sweep work: the end of a debounce window or of the lease of another node; 0 = never.
func (t *tx) nextOrphan(ctx context.Context, nodeID string) (at int64, err error) {
	ends, err := leaseEnds(ctx, t, nodeID, t.now)
	if err != nil {
		return 0, err
	}
	err = t.one(ctx, `
		SELECT coalesce(min(s.debounce_until), 0) FROM (SELECT DISTINCT session_key FROM inbox WHERE state <> 'done') AS u
		JOIN sessions s ON s.key = u.session_key WHERE s.debounce_until > ?`, t.now).Scan(&at)
	return earlier(at, ends), err
}

func (t *tx) sweep(ctx context.Context, p store.SweepParams) ([]store.Taken, error) {
	keys, err := t.orphans(ctx, p)
	if err != nil {
		return nil, err
	}
	var out []store.Taken
	budget := store.NewBudget(0)
	for _, key := range keys {
		var waits int
		if err := t.one(ctx, `SELECT coalesce(sum(octet_length(body)), 0) FROM inbox WHERE session_key = ? AND state <> 'done'`, key.String()).Scan(&waits); err != nil {
			return nil, err
		}
		if !budget.Take(waits) {
			break
		}
		r, ok, err := t.find(ctx, key)
		if err != nil || !ok {
			return nil, err
		}
		if err := t.takeOver(ctx, r, p.Node); err != nil {
			return nil, err
		}
		rows, err := t.query(ctx, `SELECT `+messageColumns+` FROM inbox WHERE session_key = ? AND state <> 'done' ORDER BY seq`, r.key)
		list, err := collect(rows, err, scanMessage)
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(list))
		for i := range list {
			ids[i] = list[i].MessageID
		}
		if err := sqlstore.WaitAgain(ctx, t.shared(), ids); err != nil {
			return nil, err
		}
		taken, err := t.taken(ctx, r, list)
		if err != nil {
			return nil, err
		}
		out = append(out, taken)
	}
	return out, nil
}

// orphans lists sessions with unfinished messages, no live owner and no open debounce window, the longest waiting first. It reads the index
// of unfinished messages and one session row for each: its cost follows the unfinished work.
func (t *tx) orphans(ctx context.Context, p store.SweepParams) ([]chat.SessionKey, error) {
	agents, err := agentList(p.Agents)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `
		SELECT s.key FROM (SELECT session_key, min(seq) AS seq FROM inbox WHERE state <> 'done' GROUP BY session_key) AS u
		JOIN sessions s ON s.key = u.session_key
		JOIN inbox i ON i.session_key = u.session_key AND i.seq = u.seq
		WHERE s.debounce_until <= ? AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.owner AND n.lease_until > ?)
			AND (? IS NULL OR s.principal = ? OR s.agent IN (SELECT value FROM json_each(?)))
		ORDER BY i.accepted_at, s.key LIMIT +?`, t.now, t.now, agents, cron.SystemOwner, agents, max(p.Limit, 0))
	return collect(rows, err, func(row scanner) (key chat.SessionKey, err error) {
		err = row.Scan(keyColumn{&key})
		return key, err
	})
}

// agentList is the list of agents as a value of a statement, which reads it with json_each; NULL = all agents.
func agentList(agents []string) (any, error) {
	if agents == nil {
		return nil, nil //nolint:nilnil // NULL
	}
	return encode(agents)
}

// takeOver moves a session to a new owner. What ran under the old one is interrupted and waits again; it counts as a crash unless the old
// owner has deleted its row.
func (t *tx) takeOver(ctx context.Context, r *row, nodeID string) error {
	_, err := t.exec(ctx, `
		UPDATE runs SET state = 'interrupted', ended_at = ?, crashes = crashes + (state <> 'yielded' AND EXISTS (SELECT 1 FROM nodes WHERE id = runs.owner))
		WHERE session_key = ? AND state IN ('running', 'stopping', 'yielded')`, t.now, r.key)
	if err != nil {
		return err
	}
	n, err := t.exec(ctx, `UPDATE inbox SET state = 'held' WHERE session_key = ? AND state <> 'done' AND state = 'running'`, r.key)
	if err != nil {
		return err
	}
	r.waiting += n
	r.owner = nodeID
	r.epoch++
	return t.save(ctx, r)
}

// taken describes a session that the node owns, with its unfinished messages.
func (t *tx) taken(ctx context.Context, r *row, list []store.Waiting) (store.Taken, error) {
	out := store.Taken{
		Claim:    store.Claim{Session: sessionKey(r.key), Node: r.owner, Epoch: r.epoch},
		RunLimit: int(r.runLimit), Mode: chat.QueueMode(r.mode), Principal: r.principal, Cutoff: r.stopSeq, LastSeq: r.lastSeq,
		Messages: list, Runs: map[string]store.Run{},
	}
	for i := range list {
		id := list[i].RunID
		if _, have := out.Runs[id]; have || id == "" {
			continue
		}
		u, known, err := t.findRun(ctx, id)
		if err != nil {
			return out, err
		}
		if known {
			out.Runs[id] = u.Run
		}
	}
	return out, nil
}

// Hinted returns what other nodes accepted for sessions of this one; see the port. A dead node owns no session.
func (s *Store) Hinted(ctx context.Context, nodeID string, limit int) ([]store.Taken, error) {
	return poll(ctx, s, store.Poll{Kind: pollHinted, Node: nodeID}, func(ctx context.Context, t *tx) (f found[[]store.Taken], err error) {
		rows, err := t.query(ctx, `
			SELECT octet_length(body), `+messageColumns+` FROM inbox WHERE state <> 'done' AND state <> 'running' AND node <> ?
			AND EXISTS (SELECT 1 FROM sessions s JOIN nodes n ON n.id = s.owner WHERE s.key = inbox.session_key AND s.owner = ? AND n.lease_until > ?)
			ORDER BY session_key, seq LIMIT +?`, nodeID, nodeID, t.now, max(limit, 0))
		list, err := messagesWithin(rows, err, store.NewBudget(0))
		if err != nil {
			return f, err
		}
		f.idle = len(list) == 0 && limit > 0
		f.out, err = t.hinted(ctx, list)
		return f, err
	})
}

// hinted groups messages, which come in the order of their sessions.
func (t *tx) hinted(ctx context.Context, list []store.Waiting) ([]store.Taken, error) {
	var out []store.Taken
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Session == list[0].Session {
			n++
		}
		r, ok, err := t.find(ctx, list[0].Session)
		if err != nil || !ok {
			return nil, err
		}
		taken, err := t.taken(ctx, r, list[:n:n])
		if err != nil {
			return nil, err
		}
		out, list = append(out, taken), list[n:]
	}
	return out, nil
}
