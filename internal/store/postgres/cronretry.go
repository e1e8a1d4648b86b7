package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	// retrySQL finds runs whose next attempt is due, with the message of the last attempt.
	retrySQL = `SELECT ` + waitingColumns + `, i.params_hash, ` + logColumns + `
FROM cron_run_logs l JOIN inbox i ON i.message_id = l.run_id
WHERE l.next_attempt_at <= ` + nowSQL + ` AND l.state = 'retrying' AND ($2::text[] IS NULL OR l.owner = '` + cron.SystemOwner + `' OR l.agent = ANY($2))
ORDER BY l.next_attempt_at, l.id LIMIT `

	retriedSQL = `UPDATE cron_run_logs l SET state = 'queued', next_attempt_at = NULL, node = $1, run_id = v.message
FROM unnest($2::text[], $3::text[]) AS v(id, message) WHERE l.id = v.id`
)

// claimRetries puts the next attempts of runs into the inbox: the message of the last attempt again, under a new id.
func (c *claiming) claimRetries(ctx context.Context) error {
	var (
		launched []cron.Launched
		more     bool
	)
	err := pgx.BeginFunc(ctx, c.s.pool, func(tx pgx.Tx) error {
		list, err := c.dueRetries(ctx, tx)
		if err != nil {
			return err
		}
		if room := c.p.Limit - len(c.out.Jobs); c.p.Limit > 0 && len(list) > max(room, 0) {
			list, more = list[:max(room, 0)], true
		}
		if len(list) == 0 {
			return nil
		}
		_, err = tx.Exec(ctx, retriedSQL, c.p.Node, column(list, func(p placed) string { return p.run.ID }),
			column(list, func(p placed) string { return p.message.ID }))
		if err != nil {
			return err
		}
		launched, err = c.s.place(ctx, tx, c.p.Node, list)
		return err
	})
	if err != nil {
		c.s.unknownLaunches.add(launched)
		return err
	}
	c.out.Launched = append(c.out.Launched, launched...)
	c.out.More = c.out.More || more
	c.retries = true
	return nil
}

func (c *claiming) dueRetries(ctx context.Context, tx pgx.Tx) ([]placed, error) {
	var list []placed
	b := &pgx.Batch{}
	b.Queue(retrySQL+limit(c.p, len(c.out.Jobs))+` FOR UPDATE OF l SKIP LOCKED`, c.s.clock(), c.p.Agents).Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scanRetry)
		return err
	})
	if err := send(ctx, tx, b); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].run.Node = c.p.Node
	}
	return list, nil
}

// scanRetry reads a run with the message of its last attempt and makes the message of the next one.
func scanRetry(row pgx.CollectableRow) (placed, error) {
	var (
		hash string
		v    logRow
	)
	w, err := scanWaiting(prefixRow{row, append([]any{&hash}, v.targets()...)})
	if err != nil {
		return placed{}, err
	}
	run, err := v.logged()
	if err != nil {
		return placed{}, err
	}
	r, m := run.Retried("", chat.Message{
		Session: w.Session, Lane: w.Lane, Principal: w.Principal, Channel: w.Channel, ExternalID: w.ExternalID, ParamsHash: hash, Content: w.Content,
	})
	return placed{run: r, message: m}, nil
}

// unknownLaunches are launches whose commit got no answer. If they were committed, this process owns their sessions and must submit them:
// the next claim returns them. When the process ends before, the sweep of another one finds them.
type unknownLaunches struct {
	mu   sync.Mutex
	list map[string]cron.Launched // by message
}

func newUnknownLaunches() *unknownLaunches { return &unknownLaunches{list: map[string]cron.Launched{}} }

func (d *unknownLaunches) add(list []cron.Launched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range list {
		d.list[l.Message.ID] = l
	}
}

// remove forgets launches that the caller has got.
func (d *unknownLaunches) remove(list []cron.Launched) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range list {
		delete(d.list, l.Message.ID)
	}
}

func (d *unknownLaunches) all() []cron.Launched {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]cron.Launched, 0, len(d.list))
	for _, l := range d.list {
		list = append(list, l)
	}
	return list
}

const committedSQL = `SELECT i.message_id, i.seq, COALESCE(s.owner, ''), s.epoch FROM inbox i JOIN sessions s ON s.key = i.session_key
WHERE i.message_id = ANY($1::text[]) AND i.state = 'waiting'`

// committedLaunches finds which of the unknown launches wait for this node, and forgets the others.
func (s *Store) committedLaunches(ctx context.Context, node string) ([]cron.Launched, error) {
	list := s.unknownLaunches.all()
	if len(list) == 0 {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, committedSQL, column(list, func(l cron.Launched) string { return l.Message.ID }))
	if err != nil {
		return nil, err
	}
	waiting := map[string]cron.Launched{}
	var (
		id string
		l  cron.Launched
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &l.Seq, &l.Owner, &l.Epoch}, func() error {
		waiting[id] = l
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found, gone []cron.Launched
	for _, old := range list {
		now, ok := waiting[old.Message.ID]
		if !ok || now.Owner != node {
			gone = append(gone, old)
			continue
		}
		old.Seq, old.Owner, old.Epoch, old.Mine = now.Seq, now.Owner, now.Epoch, true
		found = append(found, old)
	}
	s.unknownLaunches.remove(gone)
	return found, nil
}
