package sqlstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Nodes are the processes that use the database, and the named leases that they hold.
type Nodes struct{ db Engine }

const (
	// The time at which a node was first marked as draining is kept.
	beatSQL = `UPDATE nodes SET lease_until = {now} + lease_ms, draining = (draining OR $2),
			draining_since = CASE WHEN $2 THEN COALESCE(draining_since, {now}) ELSE draining_since END
		WHERE id = $1 AND lease_until > {now}
		RETURNING {now}, lease_until, (SELECT count(*) FROM nodes o WHERE o.lease_until > {now} AND o.id <> nodes.id),
			(SELECT since FROM hold), COALESCE((SELECT who FROM hold), ''), COALESCE((SELECT reason FROM hold), '')`

	openRunsSQL = `SELECT session_key, id, state, COALESCE(stop_by, '') FROM runs {by runs_open} WHERE {running} AND owner = $1 ORDER BY id`

	aliveSQL = `SELECT 1 FROM nodes WHERE id = $1 AND lease_until > {now}`

	acquireSQL = `INSERT INTO leases AS l (name, owner, epoch) VALUES ($1, $2, 1)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = l.epoch + CASE WHEN l.owner = excluded.owner THEN 0 ELSE 1 END
		WHERE l.owner IS NULL OR l.owner = excluded.owner OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = l.owner AND n.lease_until > {now})
		RETURNING epoch`
)

// Heartbeat extends the lease of a live node; see store.Store.
func (s Nodes) Heartbeat(ctx context.Context, nodeID string, draining bool) (store.Beat, error) {
	return result(ctx, control(s.db, Beat), "extend the lease of this gateway", func(ctx context.Context, tx Tx) (store.Beat, error) {
		return beat(ctx, tx, nodeID, draining)
	})
}

func beat(ctx context.Context, tx Tx, nodeID string, draining bool) (b store.Beat, err error) {
	var hold store.Hold
	alive, err := one(ctx, tx, beatSQL, into(instant{&b.Now}, instant{&b.LeaseUntil}, &b.OtherNodes, instant{&hold.Since}, &hold.Who, &hold.Reason), nodeID, draining)
	switch {
	case err != nil:
		return b, err
	case !alive:
		return b, chat.ErrFenced
	case !hold.Since.IsZero():
		b.Hold = &hold
	}
	if b.Runs, b.Stops, err = openRuns(ctx, tx, nodeID); err != nil {
		return b, err
	}
	b.Leases, err = all(ctx, tx, `SELECT name FROM leases WHERE owner = $1 ORDER BY name`, func(r Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	}, nodeID)
	return b, err
}

// openRuns reads the runs of a node that have a slot or are stopping, and the stop requests.
func openRuns(ctx context.Context, tx Tx, nodeID string) (runs []string, stops []store.StopRequest, err error) {
	err = tx.Query(ctx, openRunsSQL, func(r Row) error {
		var (
			q     store.StopRequest
			state string
		)
		if err := r.Scan(keyColumn{&q.Session}, &q.RunID, &state, &q.By); err != nil {
			return err
		}
		if state != store.RunYielded {
			runs = append(runs, q.RunID)
		}
		if state != store.RunStopping && q.By != "" {
			stops = append(stops, q)
		}
		return nil
	}, nodeID)
	return runs, stops, err
}

// defaultLease is how long a node lives without a heartbeat when [store.Node] does not set it.
const defaultLease = 15 * time.Second

const (
	// The rows stay: a node whose row exists has crashed, and the sweep counts a crash for its
	// runs.
	expireOthersSQL = `UPDATE nodes SET lease_until = {now} WHERE id <> $1 AND lease_until > {now}`

	registerSQL = `INSERT INTO nodes (id, started_at, lease_until, lease_ms, addr, version, fires, agents) VALUES ($1, {now}, {now} + $2, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, lease_until = excluded.lease_until, lease_ms = excluded.lease_ms,
			addr = excluded.addr, version = excluded.version, fires = excluded.fires, agents = excluded.agents, draining = false, draining_since = NULL RETURNING lease_until`
)

// Register creates a new incarnation; see store.Store.
func (s Nodes) Register(ctx context.Context, n store.Node) error {
	_, err := s.Registered(ctx, n)
	return err
}

// Registered is Register and returns the end of the lease.
func (s Nodes) Registered(ctx context.Context, n store.Node) (time.Time, error) {
	if n.ID == "" {
		return time.Time{}, chat.Errorf(chat.CodeInvalid, "a node needs an id")
	}
	if n.Lease <= 0 {
		n.Lease = defaultLease
	}
	agents := ""
	if n.Agents != nil {
		var err error
		if agents, err = encode(n.Agents); err != nil {
			return time.Time{}, err
		}
	}
	return result(ctx, s.db.Update, "register this gateway", func(ctx context.Context, tx Tx) (until time.Time, err error) {
		if err := endOutage(ctx, tx, n); err != nil {
			return until, err
		}
		if n.Exclusive {
			if err := tx.Later(ctx, expireOthersSQL, nil, n.ID); err != nil {
				return until, err
			}
		}
		_, err = one(ctx, tx, registerSQL, into(instant{&until}), n.ID, span(n.Lease), n.Addr, n.Version, n.Fires, agents)
		return until, err
	})
}

// Unregister is the clean stop of a node; see store.Store. Running runs keep their state: because
// the node row is deleted, the next owner counts no crash. It reads all sessions once: ownership
// intentionally has no index.
func (s Nodes) Unregister(ctx context.Context, nodeID string) error {
	return s.db.Update(ctx, "unregister this gateway", func(ctx context.Context, tx Tx) error {
		for _, text := range []string{
			beginOutageSQL,
			`UPDATE leases SET owner = NULL WHERE owner = $1`, `UPDATE sessions SET owner = NULL WHERE owner = $1`, `DELETE FROM nodes WHERE id = $1`,
		} {
			if err := tx.Later(ctx, text, nil, nodeID); err != nil {
				return err
			}
		}
		return tx.Later(ctx, endStoppingOfDeadSQL, nil)
	})
}

const goneNodesSQL = `SELECT COALESCE(NULLIF(d.addr, ''), d.id) AS name, max(d.lease_until) FROM nodes d WHERE d.lease_until <= {now} AND d.lease_until > {now} - $1 AND NOT d.draining
		AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.lease_until > {now} AND (n.addr = d.addr AND d.addr <> '' OR n.started_at >= d.lease_until - d.lease_ms))
	GROUP BY 1 ORDER BY 2 DESC, 1`

// takenRowsSQL are the queries of taken rows. A session with an open run is not waiting for its
// owner; the first message of another one is.
func takenRowsSQL() []string {
	return []string{
		`SELECT '` + store.TakenDelivery + `', id, node, attempt, created_at AS since FROM outbox WHERE ` + unsent + ` AND state = 'sending' ORDER BY since LIMIT 1000`,
		`SELECT '` + store.TakenCall + `', id, node, 1, asked_at AS since FROM tool_questions WHERE state = 'allowed' ORDER BY since LIMIT 1000`,
		`SELECT CASE WHEN state = 'stopping' THEN '` + store.TakenStopping + `' ELSE '` + store.TakenTurn + `' END, id, owner, attempt, started_at AS since
		FROM runs WHERE {running} AND state <> 'yielded' ORDER BY since LIMIT 1000`,
		`SELECT '` + store.TakenMessage + `', i.session_key, s.owner, min(i.seq), min(i.accepted_at) AS since
		FROM inbox i JOIN sessions s ON s.key = i.session_key AND s.owner IS NOT NULL AND s.debounce_until <= {now}
		WHERE {open i} AND NOT EXISTS (SELECT 1 FROM runs WHERE session_key = s.key AND {running})
		GROUP BY i.session_key, s.owner ORDER BY since LIMIT 1000`,
	}
}

// TakenRows lists the rows that nodes have taken; see store.Store.
func (s Nodes) TakenRows(ctx context.Context) (found []store.TakenRow, err error) {
	for _, text := range takenRowsSQL() {
		rows, err := list(ctx, s.db, query{"list the rows that gateways have taken", text, nil}, func(r Row) (t store.TakenRow, err error) {
			var since int64
			err = r.Scan(&t.Kind, &t.ID, &t.Node, &t.Attempt, &since)
			return t, err
		})
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

// Cluster reads the live nodes, those that are gone, and the named leases; see store.Store.
func (s Nodes) Cluster(ctx context.Context) (c store.Cluster, err error) {
	err = s.db.View(ctx, "list the gateways", func(ctx context.Context, tx Tx) (err error) {
		c = store.Cluster{Leases: map[string]bool{}}
		var (
			name string
			held bool
		)
		err = tx.Query(ctx, `SELECT l.name, EXISTS (SELECT 1 FROM nodes n WHERE n.id = l.owner AND n.lease_until > {now}) FROM leases l`, func(r Row) error {
			err := r.Scan(&name, &held)
			c.Leases[name] = held
			return err
		})
		if err != nil {
			return err
		}
		c.Nodes, err = all(ctx, tx, `SELECT id, COALESCE(NULLIF(addr, ''), id), version, draining, lease_until - {now}, agents FROM nodes WHERE lease_until > {now} ORDER BY started_at, id`, scanNode)
		if err != nil {
			return err
		}
		c.Gone, err = all(ctx, tx, goneNodesSQL, func(r Row) (n chat.GoneNode, err error) {
			err = r.Scan(&n.Name, instant{&n.Since})
			return n, err
		}, nodeKept.Milliseconds())
		return err
	})
	return c, err
}

func scanNode(r Row) (n chat.NodeStatus, err error) {
	var left int64
	err = r.Scan(&n.ID, &n.Name, &n.Version, &n.Draining, &left, jsonColumn{&n.Agents})
	n.Lease = time.Duration(left) * time.Millisecond
	return n, err
}

const unownedSQL = `SELECT s.agent, true, count(*) FROM inbox i JOIN sessions s ON s.key = i.session_key WHERE {open i} AND s.debounce_until <= {now} AND s.principal <> '` + cron.SystemOwner + `'
		AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.owner AND n.lease_until > {now}) GROUP BY s.agent
	UNION ALL SELECT agent, false, count(*) FROM cron_jobs WHERE {true enabled} AND invalid = '' AND next_run_at <= {now} AND (paused_at IS NULL OR paused_until IS NOT NULL)
		AND owner <> '` + cron.SystemOwner + `' GROUP BY agent
	UNION ALL SELECT agent, false, count(*) FROM cron_run_logs WHERE state = 'retrying' AND next_attempt_at <= {now} AND owner <> '` + cron.SystemOwner + `' GROUP BY agent`

// Unowned counts the work that waits for agents that no live node has; see store.Store.
func (s Nodes) Unowned(ctx context.Context) (left map[string]store.Unowned, err error) {
	err = s.db.View(ctx, "count the work that no gateway has", func(ctx context.Context, tx Tx) error {
		left = map[string]store.Unowned{}
		nodes, err := all(ctx, tx, `SELECT agents FROM nodes WHERE lease_until > {now}`, func(r Row) (n chat.NodeStatus, err error) {
			err = r.Scan(jsonColumn{&n.Agents})
			return n, err
		})
		if err != nil {
			return err
		}
		err = tx.Query(ctx, unownedSQL, func(r Row) error {
			var (
				agent    string
				messages bool
				n        int
			)
			if err := r.Scan(&agent, &messages, &n); err != nil {
				return err
			}
			of := left[agent]
			if messages {
				of.Messages += n
			} else {
				of.Jobs += n
			}
			left[agent] = of
			return nil
		})
		maps.DeleteFunc(left, func(agent string, _ store.Unowned) bool {
			return slices.ContainsFunc(nodes, func(n chat.NodeStatus) bool { return n.Has(agent) })
		})
		return err
	})
	return left, err
}

// proveAlive is the fence of operations that need a live node but no session: chat.ErrFenced when
// its lease has ended.
func proveAlive(ctx context.Context, tx Tx, nodeID string) error {
	alive, err := one(ctx, tx, aliveSQL, func(Row) error { return nil }, nodeID)
	if err == nil && !alive {
		err = chat.ErrFenced
	}
	return err
}

// AcquireLease takes a named lease that no live node holds, or confirms that nodeID holds it; see
// store.Store.
func (s Nodes) AcquireLease(ctx context.Context, name, nodeID string) (l store.Lease, ok bool, err error) {
	l, err = result(ctx, s.db.Update, "acquire the lease "+name, func(ctx context.Context, tx Tx) (store.Lease, error) {
		l := store.Lease{Name: name, Owner: nodeID}
		if err := proveAlive(ctx, tx, nodeID); err != nil {
			return l, err
		}
		if ok, err := one(ctx, tx, acquireSQL, into(&l.Epoch), name, nodeID); err != nil || !ok {
			return store.Lease{}, err
		}
		return l, nil
	})
	return l, l.Owner != "", err
}

// ReleaseLease releases a lease. It does nothing when the claim is not current.
func (s Nodes) ReleaseLease(ctx context.Context, l store.Lease) error {
	return s.db.Update(ctx, "release the lease "+l.Name, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE leases SET owner = NULL WHERE name = $1 AND owner = $2 AND epoch = $3`, l.Name, l.Owner, l.Epoch)
		return err
	})
}

// The polls, which an engine may skip.
const (
	PollSweep     = "sweep"
	PollFronts    = "read what waits in sessions"
	PollOutgoing  = "claim outgoing messages"
	PollQuestions = "take questions over"
	PollTasks     = "list left sub-turns" // read-only
	PollJobs      = "find due jobs"       // read-only
)

const mayBeDueSQL = `SELECT NOT EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND lease_until > {now}),
	EXISTS (SELECT 1 FROM inbox WHERE {open}),
	EXISTS (SELECT 1 FROM runs WHERE {running} AND state = 'stopping')
		OR EXISTS (SELECT 1 FROM nodes WHERE lease_until <= {now} - $2),
	EXISTS (SELECT 1 FROM outbox WHERE ` + unsent + ` AND (state = 'sending' OR next_at <= {now} OR node = $1 OR expires_at <= {now})),
	EXISTS (SELECT 1 FROM inbox i WHERE i.parent IS NOT NULL AND ({open i} OR i.announce = 1)),
	EXISTS (SELECT 1 ` + leftQuestions + `)`

// Due checks which polls of a node, except that of jobs, may find something. It is one statement
// whose cost does not depend on the size of the history. Polls that need a live node must run when
// the node is dead, so that they return the error.
func Due(ctx context.Context, tx Tx, nodeID string) (map[string]bool, error) {
	var dead, unfinished, upkeep, outgoing, tasks, questions bool
	_, err := one(ctx, tx, mayBeDueSQL, into(&dead, &unfinished, &upkeep, &outgoing, &tasks, &questions), nodeID, nodeKept.Milliseconds())
	return map[string]bool{
		PollSweep: dead || unfinished || upkeep, PollFronts: dead || unfinished, PollOutgoing: dead || outgoing, PollTasks: tasks, PollQuestions: dead || questions,
	}, err
}

// Rest is the result of a poll about the next one.
type Rest struct {
	// Idle: the poll found nothing, and before Next only a change can make it find something.
	Idle bool
	// Next reads when something becomes due by time, in milliseconds; 0 = never. nil = never.
	Next func(ctx context.Context, tx Tx) (int64, error)
}

// Rested is a poll that was skipped at Now. It can find nothing before Next; the zero time = before
// a change.
type Rested struct{ Now, Next time.Time }

// found is the result of a poll.
type found[T any] struct {
	out  T
	idle bool
	next func(ctx context.Context, tx Tx) (int64, error)
}

// poll runs a poll, unless the engine can tell that it would find nothing.
func poll[T any](ctx context.Context, db Engine, p store.Poll, look func(ctx context.Context, tx Tx) (found[T], error)) (T, error) {
	var none, out T
	_, err := db.Poll(ctx, p, func(ctx context.Context, tx Tx) (Rest, error) {
		f, err := look(ctx, tx)
		out = f.out
		return Rest{Idle: f.idle, Next: f.next}, err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

// pollOf identifies a poll of a node that is restricted to the listed agents or channels; each list
// is a poll of its own.
func pollOf(kind, nodeID string, of []string) (store.Poll, error) {
	names, err := encode(of)
	return store.Poll{Kind: kind, Node: nodeID, Of: names}, err
}

// leaseEnds is when the first lease of another node ends and its work becomes due; 0 when no other
// node is alive.
func leaseEnds(ctx context.Context, tx Tx, nodeID string) (at int64, err error) {
	_, err = one(ctx, tx, `SELECT COALESCE(min(lease_until), 0) FROM nodes WHERE lease_until > {now} AND id <> $1`, into(&at), nodeID)
	return at, err
}

// earlier is the earlier of two instants, 0 = never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Holds reads and sets the hold of the gateway.
type Holds struct {
	db   Engine
	jobs Cron
}

// Hold reads the hold; see store.Store.
func (s Holds) Hold(ctx context.Context) (held *store.Hold, err error) {
	err = s.db.View(ctx, "read the hold", func(ctx context.Context, tx Tx) error {
		var h store.Hold
		found, err := one(ctx, tx, store.HoldSQL, into(instant{&h.Since}, &h.Who, &h.Reason))
		if found {
			held = &h
		}
		return err
	})
	return held, err
}

// SetHold holds or releases the gateway; see store.Store.
func (s Holds) SetHold(ctx context.Context, h *store.Hold, by store.ChangedBy) error {
	return s.db.Update(ctx, "hold or release the gateway", func(ctx context.Context, tx Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		text, verb, args := store.ReleaseHoldSQL, store.VerbRelease, []any(nil)
		if h != nil {
			text, verb, args = store.SetHoldSQL, store.VerbHold, []any{now, h.Who, h.Reason}
		}
		n, err := tx.Exec(ctx, text, args...)
		if err != nil || n == 0 {
			return err
		}
		return logChange(ctx, tx, by, Change{Verb: verb})
	})
}

// Held counts the work that waits for the release; see store.Store.
func (s Holds) Held(ctx context.Context) (w store.HeldWork, err error) {
	err = s.db.View(ctx, "read what is held", func(ctx context.Context, tx Tx) error {
		w = store.HeldWork{}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		w.Now = fromMillis(now)
		if _, err := one(ctx, tx, store.HeldWorkSQL, into(&w.Outgoing, &w.Unfinished)); err != nil {
			return err
		}
		scan := s.jobs.scanner()
		w.Due, err = all(ctx, tx, readJob+jobPlanned+` AND next_run_at <= {now} ORDER BY next_run_at, id`, func(r Row) (cron.Job, error) {
			j, err := scan(r)
			return j.Job, err
		})
		return err
	})
	return w, err
}

// History is the history of jobs that is stored outside of the ledger.
type History struct{ db Engine }

const (
	// outagesKept is how long an outage is kept.
	outagesKept = 400 * 24 * time.Hour

	// A node that fires jobs and leaves no other such node begins an outage. $1 its node.
	beginOutageSQL = `INSERT INTO cron_outages (from_at) SELECT {now} FROM nodes n WHERE n.id = $1 AND n.fires
		AND NOT EXISTS (SELECT 1 FROM nodes o WHERE o.id <> $1 AND o.fires AND o.lease_until > {now})
		AND NOT EXISTS (SELECT 1 FROM cron_outages c WHERE c.until_at IS NULL) ON CONFLICT (from_at) DO NOTHING`

	endOutageSQL = `UPDATE cron_outages SET until_at = {now} WHERE until_at IS NULL`

	// After a crash the outage began with the last heartbeat of the last process. $2: no other
	// process can use the store, whatever its lease says.
	crashOutageSQL = `INSERT INTO cron_outages (from_at, until_at)
		SELECT d.last, {now} FROM (SELECT max(lease_until - lease_ms) AS last FROM nodes WHERE fires AND id <> $1) d
		WHERE d.last IS NOT NULL AND d.last < {now} AND (CAST($2 AS boolean) OR NOT EXISTS (SELECT 1 FROM nodes o WHERE o.fires AND o.id <> $1 AND o.lease_until > {now}))
			AND NOT EXISTS (SELECT 1 FROM cron_outages c WHERE c.until_at IS NULL OR c.until_at > d.last) ON CONFLICT (from_at) DO NOTHING`

	outagesSQL = `SELECT from_at, COALESCE(until_at, 0) FROM cron_outages WHERE until_at IS NULL OR until_at > $1 ORDER BY from_at {limit $2}`

	jobChangesSQL = `SELECT at, who, verb FROM audit_log WHERE object {in $1} AND at >= $2 AND verb LIKE 'cron.%' ORDER BY at DESC, id DESC {limit $3}`
)

// endOutage ends an outage when a node that fires jobs registers. It runs before the registration
// of the node.
func endOutage(ctx context.Context, tx Tx, n store.Node) error {
	if !n.Fires {
		return nil
	}
	return later(ctx, tx,
		with(crashOutageSQL, n.ID, n.Exclusive), with(endOutageSQL), with(`DELETE FROM cron_outages WHERE until_at < {now} - $1`, outagesKept.Milliseconds()))
}

// Past reads the history of a job; see cron.History.
func (s History) Past(ctx context.Context, id, key string, since time.Time, limit int) (p cron.Past, err error) {
	err = s.db.List(ctx, "read the past of a job", func(ctx context.Context, tx Tx) (err error) {
		if p.Outages, err = all(ctx, tx, outagesSQL, scanOutage, since.UnixMilli(), limit); err == nil {
			p.Changes, err = all(ctx, tx, jobChangesSQL, scanJobChange, []string{id, key}, since.UnixMilli(), limit)
		}
		return err
	})
	return p, err
}

func scanOutage(r Row) (o cron.Outage, err error) {
	var until int64
	if err = r.Scan(instant{&o.From}, &until); until > 0 {
		o.Until = fromMillis(until)
	}
	return o, err
}

func scanJobChange(r Row) (c cron.JobChange, err error) {
	err = r.Scan(instant{&c.At}, &c.Who, &c.Verb)
	return c, err
}
