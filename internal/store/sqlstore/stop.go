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
	orphansSQL = `SELECT s.key, w.size FROM (
			SELECT session_key, min(accepted_at) AS since, sum(octet_length(body)) AS size FROM inbox WHERE {open} GROUP BY session_key) w
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
	// Their messages are held, because they already have a place in a turn.
	countLeftSQL = `UPDATE sessions SET waiting = waiting + (SELECT count(*) FROM inbox i
		WHERE i.session_key = sessions.key AND {open i} AND i.state = 'running') WHERE key {in $1}`
	holdLeftSQL = `UPDATE inbox SET state = 'held' WHERE session_key {in $1} AND {open} AND state = 'running'`

	takenSQL = `SELECT s.key, COALESCE(s.owner, ''), s.epoch, s.run_limit, s.mode, s.principal, s.stop_seq, s.last_seq FROM sessions s WHERE s.key {in $1}
		ORDER BY (SELECT min(i.accepted_at) FROM inbox i WHERE i.session_key = s.key AND {open i}), s.key`
	takenMessagesSQL = `SELECT ` + messageColumns + ` FROM inbox WHERE session_key {in $1} AND {open} ORDER BY session_key, seq`
	takenRunsSQL     = `SELECT ` + runColumns + ` FROM runs WHERE id IN (SELECT run_id FROM inbox WHERE session_key {in $1} AND {open})`

	// forgetSQL deletes the rows of nodes that died long ago, unless they still have work: without
	// its row the takeover would look like one after a clean stop.
	forgetSQL = `DELETE FROM nodes WHERE lease_until <= {now} - $1
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE {running r} AND r.owner = nodes.id)
		AND NOT EXISTS (SELECT 1 FROM inbox i JOIN sessions s ON s.key = i.session_key WHERE {open i} AND s.owner = nodes.id)`

	nextOrphanSQL = `SELECT COALESCE(min(s.debounce_until), 0) FROM (SELECT DISTINCT session_key FROM inbox WHERE {open}) u
		JOIN sessions s ON s.key = u.session_key WHERE s.debounce_until > {now}`

	// hintedSQL finds the sessions of $1 with messages that another node accepted, or that $1
	// accepted $2 ago, and the newest of these; and the newest one that $1 accepted since then,
	// with the time at which the first of those is old enough. The longest waiting session comes
	// first.
	hintedSQL = `SELECT i.session_key, COALESCE(max(CASE WHEN ` + hintable + ` THEN i.seq END), 0), COALESCE(max(CASE WHEN NOT (` + hintable + `) THEN i.seq END), 0),
			COALESCE(min(CASE WHEN NOT (` + hintable + `) THEN i.accepted_at END), 0) + $2
		FROM inbox i JOIN sessions s ON s.key = i.session_key AND s.owner = $1
		WHERE {open i} AND i.state <> 'running' AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $1 AND n.lease_until > {now})
		GROUP BY i.session_key ORDER BY min(i.accepted_at), i.session_key`
	hintable = `i.node <> $1 OR i.accepted_at <= {now} - $2`
)

// Sweep takes over sessions that no live node owns; see store.Store. A dead node gets
// chat.ErrFenced.
func (s Inbox) Sweep(ctx context.Context, p store.SweepParams) ([]store.Taken, error) {
	of, err := pollOf(PollSweep, p.Node, p.Agents)
	if err != nil {
		return nil, err
	}
	return poll(ctx, s.db, of, func(ctx context.Context, tx Tx) (f found[[]store.Taken], err error) {
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

// findOrphans locks the sessions to be taken over whose messages fit into one read.
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
	budget := store.NewBudget(0)
	err = tx.Query(ctx, orphansSQL, func(r Row) error {
		var (
			key  string
			size int
		)
		if err := r.Scan(&key, &size); err != nil {
			return err
		}
		if budget.Take(size) {
			keys = append(keys, key)
		}
		return nil
	}, every, p.Agents, max(p.Limit, 0))
	if err == nil && !alive {
		err = chat.ErrFenced
	}
	return keys, held, err
}

// takeOver moves sessions to a new owner. The runs of the old one are interrupted and wait again.
func takeOver(ctx context.Context, tx Tx, orphans []string, nodeID string) ([]store.Taken, error) {
	keys, err := all(ctx, tx, takeOverSQL, func(r Row) (key string, err error) {
		err = r.Scan(&key)
		return key, err
	}, orphans, nodeID)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	for _, text := range []string{interruptSQL, countLeftSQL, holdLeftSQL} {
		if err := tx.Later(ctx, text, nil, keys); err != nil {
			return nil, err
		}
	}
	messages, err := all(ctx, tx, takenMessagesSQL, scanMessage, keys)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(messages))
	for i := range messages {
		ids[i] = messages[i].MessageID
	}
	if err := waitAgain(ctx, tx, ids); err != nil {
		return nil, err
	}
	list, err := readTaken(ctx, tx, keys, messages)
	if err != nil {
		return nil, err
	}
	return list, tx.Later(ctx, forgetSQL, nil, nodeKept.Milliseconds()) // nodes whose last work this was
}

// readTaken adds to sessions their messages, which come in the order of the sessions, and the runs
// of these. Sessions without messages are left out.
func readTaken(ctx context.Context, tx Tx, keys []string, messages []store.Waiting) (list []store.Taken, err error) {
	of := map[chat.SessionKey][]store.Waiting{}
	for _, m := range messages {
		of[m.Session] = append(of[m.Session], m)
	}
	runs := map[string]store.Run{}
	err = tx.Later(ctx, takenRunsSQL, func(r Row) error {
		u, err := scanRun(r)
		runs[u.ID] = u.Run
		return err
	}, keys)
	if err != nil {
		return nil, err
	}
	taken, err := all(ctx, tx, takenSQL, func(r Row) (t store.Taken, err error) {
		err = r.Scan(keyColumn{&t.Session}, &t.Node, &t.Epoch, &t.RunLimit, (*string)(&t.Mode), &t.Principal, &t.Cutoff, &t.LastSeq)
		return t, err
	}, keys)
	for _, t := range taken {
		if t.Messages = of[t.Session]; len(t.Messages) == 0 {
			continue
		}
		t.Runs = map[string]store.Run{}
		for i := range t.Messages {
			if run, ok := runs[t.Messages[i].RunID]; ok {
				t.Runs[run.ID] = run
			}
		}
		list = append(list, t)
	}
	return list, err
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

// Hinted returns the waiting messages of sessions of a node that it does not know; see store.Store.
// A dead node owns no session.
func (s Inbox) Hinted(ctx context.Context, nodeID string, known func(chat.SessionKey) int64, limit int) ([]store.Taken, error) {
	return poll(ctx, s.db, store.Poll{Kind: PollHinted, Node: nodeID}, func(ctx context.Context, tx Tx) (f found[[]store.Taken], err error) {
		unknown, next, err := findHinted(ctx, tx, nodeID, known)
		if err != nil || len(unknown) == 0 {
			f.idle = limit > 0
			f.next = func(context.Context, Tx) (int64, error) { return next, nil }
			return f, err
		}
		var (
			keys     []string
			messages []store.Waiting
			read     int
		)
		for _, u := range unknown {
			if len(messages) >= limit || read >= store.ReadBytes {
				break
			}
			list, err := readPage(ctx, tx, page{
				columns: messageColumns, rows: `SELECT *, octet_length(body) AS page_size` + queuedFrom + ` AND seq > $2 AND seq <= $3 ORDER BY seq {limit $4}`,
				bytes: store.ReadBytes - read, read: &read, args: []any{u.key.String(), u.after, u.last, limit - len(messages)},
			}, scanMessage)
			if err != nil {
				return f, err
			}
			if len(messages) > 0 && read > store.ReadBytes { // its first message is large, and begins the next read
				break
			}
			keys, messages = append(keys, u.key.String()), append(messages, list...)
		}
		taken, err := readTaken(ctx, tx, keys, messages)
		for _, t := range taken {
			if t.Node == nodeID { // otherwise it has moved to another owner meanwhile
				t.LastSeq = t.Messages[len(t.Messages)-1].Seq
				f.out = append(f.out, t)
			}
		}
		return f, err
	})
}

// hinted is a session with unknown messages up to last; those up to after are known.
type hinted struct {
	key         chat.SessionKey
	after, last int64
}

// findHinted returns the sessions of a node with messages that it does not know, and when the next
// one becomes due by time; 0 = never.
func findHinted(ctx context.Context, tx Tx, nodeID string, known func(chat.SessionKey) int64) (list []hinted, next int64, err error) {
	err = tx.Query(ctx, hintedSQL, func(r Row) error {
		var (
			h         hinted
			young, at int64
		)
		if err := r.Scan(keyColumn{&h.key}, &h.last, &young, &at); err != nil {
			return err
		}
		h.after = known(h.key)
		if h.last > h.after {
			list = append(list, h)
		} else if young > h.after {
			next = earlier(next, at)
		}
		return nil
	}, nodeID, store.HintedAfter.Milliseconds())
	return list, next, err
}
