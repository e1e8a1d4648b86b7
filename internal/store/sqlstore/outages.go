package sqlstore

import (
	"context"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// History is the history of jobs that is stored outside of the ledger.
type History struct{ db Engine }

var _ cron.History = History{}

const (
	// outagesKept is how long an outage is kept.
	outagesKept = 400 * 24 * time.Hour

	// A node that fires jobs and leaves no other such node begins an outage. $1 its node.
	beginOutageSQL = `INSERT INTO cron_outages (from_at) SELECT {now} FROM nodes n WHERE n.id = $1 AND n.fires
		AND NOT EXISTS (SELECT 1 FROM nodes o WHERE o.id <> $1 AND o.fires AND o.lease_until > {now})
		AND NOT EXISTS (SELECT 1 FROM cron_outages c WHERE c.until_at IS NULL) ON CONFLICT (from_at) DO NOTHING`

	endOutageSQL = `UPDATE cron_outages SET until_at = {now} WHERE until_at IS NULL`

	// After a crash the outage began with the last heartbeat of the last process. $2: no other process can use the store, whatever its lease says.
	crashOutageSQL = `INSERT INTO cron_outages (from_at, until_at)
		SELECT d.last, {now} FROM (SELECT max(lease_until - lease_ms) AS last FROM nodes WHERE fires AND id <> $1) d
		WHERE d.last IS NOT NULL AND d.last < {now} AND (CAST($2 AS boolean) OR NOT EXISTS (SELECT 1 FROM nodes o WHERE o.fires AND o.id <> $1 AND o.lease_until > {now}))
			AND NOT EXISTS (SELECT 1 FROM cron_outages c WHERE c.until_at IS NULL OR c.until_at > d.last) ON CONFLICT (from_at) DO NOTHING`

	outagesSQL = `SELECT from_at, COALESCE(until_at, 0) FROM cron_outages WHERE until_at IS NULL OR until_at > $1 ORDER BY from_at {limit $2}`

	jobChangesSQL = `SELECT at, who, verb FROM audit_log WHERE object {in $1} AND at >= $2 AND verb LIKE 'cron.%' ORDER BY at DESC, id DESC {limit $3}`
)

// endOutage ends an outage when a node that fires jobs registers. It runs before the registration of the node.
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
