package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	// dueRetriesSQL finds runs whose next attempt is due, with the message of the last attempt.
	dueRetriesSQL = `SELECT ` + logColumns + ` FROM cron_run_logs WHERE next_attempt_at <= {now} AND state = 'retrying' AND ` + ofAgents + `
		ORDER BY next_attempt_at, id {limit $3} {skip}`
	lastMessagesSQL = `SELECT message_id, lane, principal, channel, external_id, params_hash, body FROM inbox WHERE message_id {in $1}`
)

// retries puts the next attempts of runs into the inbox.
func (c *claiming) retries(ctx context.Context, tx Tx) error {
	rows, err := all(ctx, tx, dueRetriesSQL, logScanner(), number(c.p.Agents == nil), c.p.Agents, c.p.Limit+1)
	if len(rows) > c.p.Limit {
		rows, c.out.More = rows[:c.p.Limit], true
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	if c.now, err = tx.Now(ctx); err != nil {
		return err
	}
	last, err := lastMessages(ctx, tx, rows)
	if err != nil {
		return err
	}
	var names takenNames
	for i := range rows {
		names.ask(parseKey(rows[i].SessionKey), rows[i].Owner, rows[i].JobID)
	}
	if err := names.read(ctx, tx); err != nil {
		return err
	}
	var place []cron.Launched
	for i := range rows {
		r := &rows[i]
		if names.has(parseKey(r.SessionKey), r.JobID) {
			r.Run, _ = r.EndedWaiting(chat.OutcomeFailed, "", fromMillis(c.now))
			r.Run = r.Taken()
			c.refused = append(c.refused, r.Run)
			continue
		}
		m, ok := last[r.message]
		if !ok {
			r.Run, _ = r.EndedWaiting(chat.OutcomeFailed, "the message of its last attempt does not exist any more", fromMillis(c.now))
			c.out.Finished = append(c.out.Finished, r.Run)
			continue
		}
		m.Session = parseKey(r.SessionKey)
		r.Run, m = r.Retried(c.node, m)
		r.message = m.ID
		place = append(place, cron.Launched{Run: r.Run, Message: m})
	}
	if err := storeRuns(ctx, tx, rows...); err != nil {
		return err
	}
	return c.place(ctx, tx, place)
}

func lastMessages(ctx context.Context, tx Tx, rows []loggedRun) (map[string]chat.Message, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].message
	}
	last := make(map[string]chat.Message, len(rows))
	err := tx.Query(ctx, lastMessagesSQL, func(r Row) error {
		var m chat.Message
		err := r.Scan(&m.ID, &m.Lane, &m.Principal, &m.Channel, &m.ExternalID, &m.ParamsHash, jsonColumn{&m.Content})
		last[m.ID] = m
		return err
	}, ids)
	return last, err
}
