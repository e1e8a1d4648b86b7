package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

const (
	runningRunsSQL = `SELECT ` + runColumns + ` FROM runs {by runs_open} WHERE session_key = $1 AND {running} AND state <> 'stopping' ORDER BY seq_from`

	// stoppedBeforeSQL are the messages that an earlier call may have ended. $3 milliseconds ago,
	// $4 one of them; '' = all.
	stoppedBeforeSQL = `SELECT ` + messageColumns + ` FROM inbox WHERE session_key = $1 AND outcome = '` + string(chat.OutcomeStopped) + `' AND reason = $2 AND run_id IS NULL
		AND ended_at >= {now} - CAST($3 AS bigint) AND ($4 = '' OR message_id = $4) ORDER BY seq`

	// The first requester stays recorded.
	stopRunsSQL = `UPDATE runs SET stop_by = $2 WHERE id {in $1} AND COALESCE(stop_by, '') = ''`
)

// Stop records a stop; see store.Store. It does not wait for turns.
func (s Inbox) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	return result(ctx, control(s.db, Stop), "stop", func(ctx context.Context, tx Tx) (out store.Stopped, err error) {
		var before []store.Waiting
		key := p.Session.String()
		runs, err := meets(ctx, tx, &p, &out)
		if err != nil {
			return out, err
		}
		if p.Again > 0 {
			ended, err := all(ctx, tx, stoppedBeforeSQL, scanMessage, key, p.Reason, p.Again.Milliseconds(), p.MessageID)
			if err != nil {
				return out, err
			}
			before = ended
		}
		ids := make([]string, len(runs))
		for i, u := range runs {
			ids[i] = u.ID
			out.Running = append(out.Running, store.RunningRun{RunID: u.ID, Node: u.Owner})
		}
		if len(ids) > 0 {
			if err := tx.Later(ctx, stopRunsSQL, nil, ids, cmp.Or(p.By, p.Reason, "stop")); err != nil {
				return out, err
			}
		}
		if err := endMessages(ctx, tx, key, out.Waiting, ending{outcome: chat.OutcomeStopped, reason: p.Reason}); err != nil {
			return out, err
		}
		out.Waiting = append(before, out.Waiting...)
		if p.Scope == store.StopAll {
			_, err = one(ctx, tx, `UPDATE sessions SET stop_seq = last_seq WHERE key = $1 RETURNING stop_seq`, into(&out.Cutoff), key)
			if err != nil {
				return out, err
			}
		}
		return out, settle(ctx, tx, []string{key})
	})
}

// meets locks the session and reads what a stop selects: the runs, and the waiting messages.
func meets(ctx context.Context, tx Tx, p *store.StopParams, out *store.Stopped) (runs []store.Run, err error) {
	key := p.Session.String()
	sessions, err := lockRows(ctx, tx, []string{key}, true)
	if err != nil {
		return nil, err
	}
	running, err := all(ctx, tx, runningRunsSQL, func(r Row) (store.Run, error) {
		u, err := scanRun(r)
		return u.Run, err
	}, key)
	if err != nil {
		return nil, err
	}
	which, args := ` ORDER BY seq`, []any{key}
	switch p.Scope {
	case store.StopOne:
		which, args = ` ORDER BY seq {limit $2}`, append(args, headPage)
	case store.StopRun:
		which, args = ` AND message_id = $2`, append(args, p.MessageID)
	default: // the others read all
	}
	waiting, err := all(ctx, tx, `SELECT `+messageColumns+queuedFrom+which, scanMessage, args...)
	if err != nil {
		return nil, err
	}
	named, err := namedRun(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	if r := sessions.rows[key]; r != nil && p.Scope == store.StopOne {
		st := scheduler.SessionState{Mode: scheduler.QueueMode(r.mode), Last: r.lastSeq}
		if list := scheduler.Units(rowsOf(waiting), p.Queue, st); len(list) > 0 {
			waiting = slices.DeleteFunc(waiting, func(m store.Waiting) bool {
				return !slices.ContainsFunc(list[0].Rows, func(r scheduler.Row) bool { return r.Seq == m.Seq })
			})
		}
	}
	runs, out.Waiting, err = p.Meets(running, waiting, named)
	return runs, err
}

// namedRun is the run that the id of a stop names: the run of a running message with this id, else
// the run with this id.
func namedRun(ctx context.Context, tx Tx, p *store.StopParams) (run string, err error) {
	if p.Scope != store.StopRun {
		return "", nil
	}
	_, err = one(ctx, tx, `SELECT run_id FROM inbox WHERE message_id = $1 AND session_key = $2 AND state = 'running'`, into(&run), p.MessageID, p.Session.String())
	return cmp.Or(run, p.MessageID), err
}

// EndStopping ends a run whose goroutine has returned; see store.Store.
func (s Inbox) EndStopping(ctx context.Context, c store.Claim, runID string) error {
	return s.db.Update(ctx, "end a stopped run", func(ctx context.Context, tx Tx) error {
		key := c.Session.String()
		sessions, err := lockRows(ctx, tx, []string{key}, true)
		if err != nil {
			return err
		}
		left, err := readRest(ctx, tx, Set{{key, runID}})
		if err != nil {
			return err
		}
		stopping, err := one(ctx, tx, `SELECT 1 FROM runs WHERE id = $1 AND session_key = $2 AND state = 'stopping'`, func(Row) error { return nil }, runID, key)
		if err != nil || !stopping {
			return err
		}
		r := sessions.heldBy(c)
		if r == nil {
			return chat.ErrFenced
		}
		if err := tx.Later(ctx, `UPDATE runs SET state = 'stopped', ended_at = {now} WHERE id = $1`, nil, runID); err != nil {
			return err
		}
		r.settle(left[key].oldest)
		r.release(left[key].active)
		return saveRows(ctx, tx, r)
	})
}

// nodeKept is how long the row of a dead node is kept. The row distinguishes a crash from a clean
// stop, which deletes it. For that long a person learns of it.
const nodeKept = time.Hour

const (
	// ownerless is the condition that no live node owns a session s. While the database has been
	// running for less than a lease, no node counts as dead: owners could not extend their leases
	// while it was down.
	ownerless = `NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.owner
		AND (n.lease_until > {now} OR n.lease_until > {booted} - n.lease_ms AND {now} < {booted} + n.lease_ms))`

	// orphansSQL locks sessions to be taken over, the longest waiting first. It skips rows that
	// another sweeper has locked. $1 = 1 means all agents, else the agents $2.
	orphansSQL = `SELECT s.key FROM (SELECT session_key, min(accepted_at) AS since FROM inbox WHERE {open} GROUP BY session_key) w
		JOIN sessions s ON s.key = w.session_key
		WHERE s.debounce_until <= {now} AND ` + ownerless + ` AND ($1 = 1 OR s.principal = '` + cron.SystemOwner + `' OR s.agent {in $2})
		ORDER BY w.since, s.key {limit $3} {skip s}`

	// takeOverSQL checks again, now that the rows are locked.
	takeOverSQL = `UPDATE sessions AS s SET owner = $2, epoch = s.epoch + 1, updated_at = {now} WHERE s.key {in $1} AND s.done_seq < s.last_seq AND ` + ownerless + `
		RETURNING key`

	// interruptSQL ends the runs of the old owners. Each counts as a crash unless the owner's row
	// is missing: a clean stop deletes it.
	interruptSQL = `UPDATE runs {by runs_open} SET state = CASE WHEN state = 'stopping' THEN 'stopped' ELSE 'interrupted' END, ended_at = {now},
			crashes = crashes + CASE WHEN state = 'running' AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = runs.owner) THEN 1 ELSE 0 END
		WHERE session_key {in $1} AND {running}`
	// Their messages wait again. So do those of a version that had another state for them.
	countLeftSQL = `UPDATE sessions SET waiting = waiting + (SELECT count(*) FROM inbox i
		WHERE i.session_key = sessions.key AND {open i} AND i.state = 'running') WHERE key {in $1}`
	waitLeftSQL = `UPDATE inbox SET state = 'waiting' WHERE session_key {in $1} AND {open} AND state <> 'waiting'`

	leftSQL = `SELECT message_id FROM inbox WHERE session_key {in $1} AND {open}`

	// frontsFrom reads the messages that wait first in sessions of a node $1. The bound of the numbers
	// is what ended before: PostgreSQL would otherwise read its dead entries in the index.
	frontsFrom = `SELECT s.key, s.mode, s.waiting, s.last_seq, COALESCE(i.message_id, ''), i.principal, COALESCE({json i.body} -> 'options' -> 'task' ->> 'channel', i.channel),
			i.seq, COALESCE(i.run_id, ''), i.sender, i.thread, i.lane, i.mode, i.flags, i.size, i.accepted_at, CASE WHEN i.flags < 0 THEN i.body ELSE '{}' END
		FROM sessions s JOIN inbox i ON i.session_key = s.key
			AND i.seq = (SELECT min(w.seq) FROM inbox w WHERE w.session_key = s.key AND {open w} AND w.state <> 'running' AND w.seq > s.done_seq)
		WHERE s.owner = $1 AND s.key `
	frontsSQL = frontsFrom + `{in $2} ORDER BY i.accepted_at, s.key`

	// nextFrontsSQL are those of the next sessions of a live node $1 after $2 in which a message waits
	// that another node accepted, or that $1 accepted $3 ago.
	nextFrontsSQL = frontsFrom + `IN (SELECT n.session_key FROM inbox n JOIN sessions o ON o.key = n.session_key AND o.owner = $1
			WHERE {open n} AND n.state <> 'running' AND n.session_key > $2 AND (n.node <> $1 OR n.accepted_at <= {now} - $3)
				AND EXISTS (SELECT 1 FROM nodes a WHERE a.id = $1 AND a.lease_until > {now})
			GROUP BY n.session_key ORDER BY n.session_key {limit $4})
		ORDER BY s.key`

	// oldestSQL is when the oldest message that waits in sessions of $1 was accepted.
	oldestSQL = `SELECT COALESCE(min(i.accepted_at), 0) FROM inbox i JOIN sessions s ON s.key = i.session_key AND s.owner = $1 WHERE {open i} AND i.state <> 'running'`

	// forgetSQL deletes the rows of nodes that died long ago, unless they still have work: without
	// its row the takeover would look like one after a clean stop.
	forgetSQL = `DELETE FROM nodes WHERE lease_until <= {now} - $1
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE {running r} AND r.owner = nodes.id)
		AND NOT EXISTS (SELECT 1 FROM inbox i JOIN sessions s ON s.key = i.session_key WHERE {open i} AND s.owner = nodes.id)`

	nextOrphanSQL = `SELECT COALESCE(min(s.debounce_until), 0) FROM (SELECT DISTINCT session_key FROM inbox WHERE {open}) u
		JOIN sessions s ON s.key = u.session_key WHERE s.debounce_until > {now}`
)

// Sweep takes over sessions that no live node owns; see store.Store. A dead node gets
// chat.ErrFenced.
func (s Inbox) Sweep(ctx context.Context, p store.SweepParams) ([]store.Front, error) {
	of, err := pollOf(PollSweep, p.Node, p.Agents)
	if err != nil {
		return nil, err
	}
	return poll(ctx, s.db, of, func(ctx context.Context, tx Tx) (f found[[]store.Front], err error) {
		orphans, held, err := findOrphans(ctx, tx, p)
		switch {
		case err != nil || held:
			return f, err
		case len(orphans) == 0:
			f.idle = p.Limit > 0
			f.next = func(ctx context.Context, tx Tx) (int64, error) { return nextOrphan(ctx, tx, p.Node) }
			return f, nil
		}
		f.out, err = takeOver(ctx, tx, orphans, p.Node)
		return f, err
	})
}

// findOrphans locks the sessions to be taken over.
func findOrphans(ctx context.Context, tx Tx, p store.SweepParams) (keys []string, held bool, err error) {
	alive := false
	err = tx.Later(ctx, aliveSQL, func(Row) error { alive = true; return nil }, p.Node)
	if err == nil {
		err = tx.Later(ctx, endStoppingOfDeadSQL, nil)
	}
	if err == nil {
		err = tx.Later(ctx, forgetSQL, nil, nodeKept.Milliseconds())
	}
	if err == nil {
		err = tx.Later(ctx, store.HoldSQL, func(Row) error { held = true; return nil })
	}
	if err != nil {
		return nil, false, err
	}
	every := 0
	if p.Agents == nil {
		every = 1
	}
	keys, err = all(ctx, tx, orphansSQL, scanText, every, p.Agents, max(p.Limit, 0))
	if err == nil && !alive {
		err = chat.ErrFenced
	}
	return keys, held, err
}

// takeOver moves sessions to a new owner. The runs of the old one are interrupted and wait again.
func takeOver(ctx context.Context, tx Tx, orphans []string, nodeID string) ([]store.Front, error) {
	keys, err := all(ctx, tx, takeOverSQL, scanText, orphans, nodeID)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	for _, text := range []string{interruptSQL, countLeftSQL, waitLeftSQL} {
		if err := tx.Later(ctx, text, nil, keys); err != nil {
			return nil, err
		}
	}
	messages, err := all(ctx, tx, leftSQL, scanText, keys)
	if err != nil {
		return nil, err
	}
	if err := waitAgain(ctx, tx, messages); err != nil {
		return nil, err
	}
	list, err := all(ctx, tx, frontsSQL, scanFront, nodeID, keys)
	if err != nil {
		return nil, err
	}
	return list, tx.Later(ctx, forgetSQL, nil, nodeKept.Milliseconds()) // nodes whose last work this was
}

func scanFront(r Row) (f store.Front, err error) {
	f.Row, err = scanQueued(r, keyColumn{&f.Session}, (*string)(&f.Mode), &f.Waiting, &f.Last, &f.ID, &f.Principal, &f.Channel)
	return f, err
}

// nextOrphan is when a sweep next gets work by time: the end of a debounce window or of the lease
// of another node; 0 = never.
func nextOrphan(ctx context.Context, tx Tx, nodeID string) (at int64, err error) {
	ends, err := leaseEnds(ctx, tx, nodeID)
	if err != nil {
		return 0, err
	}
	_, err = one(ctx, tx, nextOrphanSQL, into(&at))
	return earlier(at, ends), err
}

// Fronts reads what waits first in sessions of a node; see store.Store. A dead node owns none.
func (s Inbox) Fronts(ctx context.Context, p store.FrontsParams) (list []store.Front, err error) {
	if len(p.Sessions) > 0 {
		keys := make([]string, len(p.Sessions))
		for i, key := range p.Sessions {
			keys[i] = key.String()
		}
		err = s.db.View(ctx, "read what waits in sessions", func(ctx context.Context, tx Tx) (err error) {
			list, err = all(ctx, tx, frontsSQL, scanFront, p.Node, keys)
			return err
		})
		return list, err
	}
	return poll(ctx, s.db, store.Poll{Kind: PollFronts, Node: p.Node}, func(ctx context.Context, tx Tx) (f found[[]store.Front], err error) {
		after := ""
		if !p.After.IsZero() {
			after = p.After.String()
		}
		f.out, err = all(ctx, tx, nextFrontsSQL, scanFront, p.Node, after, store.HintedAfter.Milliseconds(), max(p.Limit, 0))
		f.idle = len(f.out) == 0 && after == "" && p.Limit > 0
		f.next = func(ctx context.Context, tx Tx) (at int64, err error) {
			if _, err = one(ctx, tx, oldestSQL, into(&at), p.Node); at > 0 {
				at += store.HintedAfter.Milliseconds()
			}
			return at, err
		}
		return f, err
	})
}
