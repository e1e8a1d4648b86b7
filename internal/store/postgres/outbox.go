package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const enqueueSQL = `
INSERT INTO outbox (` + outgoingColumns + `)
SELECT o.id, o.run, o.n, o.session, o.channel, o.chat, o.thread, o.kind, o.payload, o.many, o.count, o.word, o.epoch,
	` + nowSQL + ` + o.delay, o.expires, ` + nowSQL + `, ` + partsSQL + `
FROM ` + outgoingFrom + `($2::json)` + outgoingAs + ` ORDER BY o.i
ON CONFLICT DO NOTHING`

// Messages of one word are counted one after the other, or two of them would make two rows. $1 word.
const (
	lockWordSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`
	// countSQL adds one to the count of a pending row of the same word that no attempt was made to send. $2 session, $3 channel, $4 chat,
	// $5 number.
	countSQL = `
UPDATE outbox SET count = count + $5::bigint
WHERE id = (
	SELECT id FROM outbox
	WHERE coalesce = $1 AND session_key = $2 AND channel = $3 AND chat_id = $4 AND done_at IS NULL AND state = 'pending' AND attempt = 0
	ORDER BY place LIMIT 1)
  AND state = 'pending' AND attempt = 0`
)

// Enqueue adds outgoing messages outside of a run, see store.Outbox.
func (s *Store) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	worded := slices.ContainsFunc(rows, func(o store.Outgoing) bool { return o.Coalesce != "" })
	return s.do(ctx, "enqueuing outgoing messages", func(ctx context.Context) error {
		if !worded {
			return s.enqueue(ctx, s.pool, rows)
		}
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			for i := range rows {
				if err := s.count(ctx, tx, &rows[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// executor is a pool or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (s *Store) enqueue(ctx context.Context, to executor, rows []store.Outgoing) error {
	text, err := encodeOutgoing(rows)
	if err != nil {
		return err
	}
	_, err = to.Exec(ctx, enqueueSQL, s.clock(), text)
	return err
}

// count counts the message on a pending row of its word, or adds a row when there is none.
func (s *Store) count(ctx context.Context, tx pgx.Tx, o *store.Outgoing) error {
	if o.Coalesce != "" {
		if _, err := tx.Exec(ctx, lockWordSQL, o.Coalesce); err != nil {
			return err
		}
		counted, err := tx.Exec(ctx, countSQL, o.Coalesce, o.Session.String(), o.Target.Channel, o.Target.ChatID, max(o.Count, 1))
		if err != nil || counted.RowsAffected() > 0 {
			return err
		}
	}
	return s.enqueue(ctx, tx, []store.Outgoing{*o})
}

const (
	// giveBackSQL makes the rows that dead nodes were sending due again. Whether they arrived is unknown.
	giveBackSQL = `
UPDATE outbox SET state = 'pending', node = '', next_at = ` + nowSQL + `, maybe_sent = true
WHERE id IN (
	SELECT o.id FROM outbox o
	WHERE o.state = 'sending' AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node AND n.lease_until > ` + nowSQL + `)
	FOR UPDATE SKIP LOCKED)`

	// claimSQL takes, for each chat, the oldest message that is due, if none of that chat is under way and none before it waits for another
	// attempt; and it ends expired ones. Because it takes only the oldest, two nodes cannot take two messages of one chat. Should their
	// snapshots differ all the same, a unique index refuses the second, which then looks again. $2 node, $3 channels, $4 limit.
	claimSQL = `
WITH late AS (
	UPDATE outbox SET state = 'expired', done_at = ` + nowSQL + `
	WHERE id IN (
		SELECT id FROM outbox
		WHERE done_at IS NULL AND state = 'pending' AND channel = ANY($3::text[]) AND expires_at <= ` + nowSQL + ` AND ` + store.NotHeld + `
		ORDER BY place LIMIT $4 FOR UPDATE SKIP LOCKED)
	RETURNING *
), head AS (
	SELECT o.id FROM outbox o
	WHERE o.done_at IS NULL AND o.state = 'pending' AND o.channel = ANY($3::text[]) AND o.next_at <= ` + nowSQL + ` AND ` + store.NotHeld + `
	  AND (o.expires_at IS NULL OR o.expires_at > ` + nowSQL + `)
	  AND NOT EXISTS (
		SELECT 1 FROM outbox e
		WHERE e.done_at IS NULL AND e.channel = o.channel AND e.chat_id = o.chat_id AND (e.state = 'sending'
		   OR e.place < o.place AND (e.attempt > 0 OR e.next_at <= ` + nowSQL + `) AND (e.expires_at IS NULL OR e.expires_at > ` + nowSQL + `)))
	ORDER BY o.place LIMIT (SELECT GREATEST($4::bigint - count(*), 0) FROM late)
	FOR UPDATE OF o SKIP LOCKED
), taken AS (
	UPDATE outbox SET state = 'sending', node = $2, attempt = attempt + 1 WHERE id IN (SELECT id FROM head)
	RETURNING *
), o AS (
	SELECT * FROM late WHERE kind <> 'notice'
), l AS (
	` + tooLateSQL + `
), told AS (
	` + lastDelivery + `
)
SELECT o.id, COALESCE(o.run_id, ''), o.n, o.session_key, o.channel, o.chat_id, o.thread, o.kind, o.payload, o.text_many, o.count,
	o.coalesce, o.attempt, o.maybe_sent, o.state = 'expired', o.created_at, COALESCE(o.expires_at, 0), o.epoch, o.choice, o.file, o.principal, o.progress
FROM (SELECT * FROM late UNION ALL SELECT * FROM taken) o ORDER BY o.place`
)

// ClaimOutgoing takes what is due, see store.Outbox. A dead node gets chat.ErrFenced.
func (s *Store) ClaimOutgoing(ctx context.Context, nodeID string, channels []string, limit int) ([]store.Outgoing, error) {
	var out []store.Outgoing
	err := s.do(ctx, "claiming outgoing messages", func(ctx context.Context) error {
		out = nil
		b := &pgx.Batch{}
		b.Queue(aliveSQL, s.clock(), nodeID)
		b.Queue(giveBackSQL, s.clock())
		b.Queue(claimSQL, s.clock(), nodeID, channels, limit).Query(collect(&out, scanOutgoing))
		return send(ctx, s.pool, b)
	})
	return out, err
}

func scanOutgoing(row pgx.CollectableRow) (store.Outgoing, error) {
	var (
		o                store.Outgoing
		key              string
		choice, file     string
		created, expires int64
	)
	err := row.Scan(&o.ID, &o.RunID, &o.N, &key, &o.Target.Channel, &o.Target.ChatID, &o.Target.Thread, &o.Kind, &o.Text, &o.TextMany, &o.Count,
		&o.Coalesce, &o.Attempt, &o.MaybeSent, &o.Expired, &created, &expires, &o.Epoch, &choice, &file, &o.Principal, &o.Progress)
	if err == nil && choice != "" {
		err = json.Unmarshal([]byte(choice), &o.Choice)
	}
	if err == nil && file != "" {
		err = json.Unmarshal([]byte(file), &o.File)
	}
	if key != "" {
		o.Session = parseKey(key)
	}
	o.CreatedAt, o.ExpiresAt = fromMillis(created), fromMillis(expires)
	return o, err
}

// Delivered stores the provider's id, which must not be empty.
func (s *Store) Delivered(ctx context.Context, nodeID, id, providerID string) error {
	if providerID == "" {
		return chat.Errorf(chat.CodeInvalid, "a delivered message needs the provider's id")
	}
	return s.leased(ctx, "noting a delivery", arrivedSQL, `
		UPDATE outbox SET state = 'delivered', provider_id = $4, done_at = `+nowSQL+`
		WHERE id = $2 AND state = 'sending' AND node = $3`, s.clock(), id, nodeID, clean(providerID))
}

// RecordProgress stores what of a row has arrived.
func (s *Store) RecordProgress(ctx context.Context, nodeID, id, progress string) error {
	return s.do(ctx, "noting the progress of a delivery", func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `UPDATE outbox SET progress = $3 WHERE id = $1 AND state = 'sending' AND node = $2`, id, nodeID, clean(progress))
		if err == nil && tag.RowsAffected() == 0 {
			return chat.ErrFenced
		}
		return err
	})
}

// Undelivered gives the row back for a later attempt, or ends it.
func (s *Store) Undelivered(ctx context.Context, p store.UndeliveredParams) error {
	return s.leased(ctx, "noting a failed delivery", failedSQL, `
		UPDATE outbox SET last_error = $4, node = '', next_at = `+nowSQL+` + $5::bigint,
			state = $6::text, done_at = CASE WHEN $6::text <> 'pending' THEN `+nowSQL+` END, maybe_sent = maybe_sent OR $7::boolean,
			attempt = CASE WHEN $8::boolean THEN GREATEST(attempt - 1, 1) ELSE attempt END,
			progress = CASE WHEN $9::text <> '' THEN $9::text ELSE progress END
		WHERE id = $2 AND state = 'sending' AND node = $3`,
		s.clock(), p.ID, p.Node, clean(p.Error), p.RetryIn.Round(time.Millisecond).Milliseconds(), p.State(), p.MaybeSent, p.Uncounted, clean(p.Progress))
}

// leased runs an update of a row that is leased to the caller, and then the resulting change of a cron run. The row's id is the second
// parameter.
func (s *Store) leased(ctx context.Context, op, then, sql string, args ...any) error {
	return s.do(ctx, op, func(ctx context.Context) error {
		changed := false
		b := &pgx.Batch{}
		b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
			changed = tag.RowsAffected() > 0
			return nil
		})
		b.Queue(then, args[1])
		err := send(ctx, s.pool, b)
		if err == nil && !changed {
			return chat.ErrFenced
		}
		return err
	})
}

// OutboxCounts counts what is not yet delivered, what failed for good and what may have arrived.
func (s *Store) OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error) {
	var counts map[string]store.OutboxCount
	err := s.do(ctx, "counting outgoing messages", func(ctx context.Context) error {
		counts = map[string]store.OutboxCount{}
		b := &pgx.Batch{}
		for query, add := range map[string]func(c *store.OutboxCount, n int){
			`SELECT channel, count(*) FROM outbox WHERE done_at IS NULL GROUP BY channel`:      func(c *store.OutboxCount, n int) { c.Waiting = n },
			`SELECT channel, count(*) FROM outbox WHERE state = 'failed' GROUP BY channel`:     func(c *store.OutboxCount, n int) { c.Failed = n },
			`SELECT channel, count(*) FROM outbox WHERE state = 'maybe_sent' GROUP BY channel`: func(c *store.OutboxCount, n int) { c.MaybeSent = n },
		} {
			b.Queue(query).Query(func(rows pgx.Rows) error {
				return eachCount(rows, func(channel string, n int) {
					c := counts[channel]
					add(&c, n)
					counts[channel] = c
				})
			})
		}
		return send(ctx, s.pool, b)
	})
	return counts, err
}

func eachCount(rows pgx.Rows, use func(channel string, n int)) error {
	var (
		channel string
		n       int
	)
	_, err := pgx.ForEachRow(rows, []any{&channel, &n}, func() error {
		use(channel, n)
		return nil
	})
	return err
}
