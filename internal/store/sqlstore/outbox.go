package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// Outbox are the outgoing messages.
type Outbox struct {
	db   Engine
	jobs Cron
}

const (
	// unsent is the condition of the index of pending and sending rows. The engines have it in two
	// forms.
	unsent = `done_at IS NULL AND state IN ('pending', 'sending')`

	addOutgoingSQL = `{set id text, run text, n int, session text, channel text, chat text, thread text, kind text, payload text, many text, count int, word text,
			epoch int, delay int, expires int, choice text, file text, principal text, node text, progress text, origin text, quiet text}
		INSERT INTO outbox (id, run_id, n, session_key, channel, chat_id, thread, kind, payload, text_many, count, coalesce, epoch,
			next_at, expires_at, created_at, choice, file, principal, node, progress, origin, quiet)
		SELECT v.id, v.run, v.n, v.session, v.channel, v.chat, v.thread, v.kind, v.payload, v.many, v.count, v.word, v.epoch,
			{now} + v.delay, v.expires, {now}, v.choice, v.file, v.principal, v.node, v.progress, v.origin, v.quiet {from} WHERE true ON CONFLICT DO NOTHING`

	// raiseSQL adds to the count of a row of the same word whose first attempt has not begun.
	raiseSQL = `UPDATE outbox SET count = count + $1 WHERE id = (
			SELECT id FROM outbox WHERE ` + unsent + ` AND state = 'pending' AND attempt = 0
				AND channel = $2 AND chat_id = $3 AND coalesce = $4 AND session_key IN ($5, $6) ORDER BY place LIMIT 1)
		AND state = 'pending' AND attempt = 0 RETURNING id`

	// unseen: the node of a claim does not know the row, because the result of the claim that took
	// it was lost. So no attempt has begun.
	unseen = `node = $1 AND NOT (id {in $3})`

	// giveBackSQL makes the rows that no attempt can end due again: those of dead nodes, and those
	// of node $1 that are not in $2, the rows that it is sending. Whether they arrived is unknown,
	// unless the node has never seen them.
	giveBackSQL = `WITH lost AS MATERIALIZED (SELECT o.id FROM outbox o WHERE o.done_at IS NULL AND o.state IN ('pending', 'sending') AND o.state = 'sending'
			AND (o.node = $1 AND NOT (o.id {in $2}) OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node AND n.lease_until > {now})) {skip})
		UPDATE outbox SET state = 'pending', node = '', attempt = attempt - CASE WHEN ` + unseen + ` THEN 1 ELSE 0 END,
			next_at = CASE WHEN ` + unseen + ` THEN next_at ELSE {now} END, maybe_sent = (maybe_sent OR NOT (` + unseen + `)) WHERE id IN (SELECT id FROM lost)`

	// lateRow is a row that ends as expired without its sender: no person has seen a part of it,
	// see [store.Outgoing.PartlySeen]. lateBefore is the same for a row before it.
	lateRow    = `(COALESCE(o.expires_at <= {now}, false) AND NOT (o.origin <> '' AND (o.maybe_sent OR o.progress <> '')))`
	lateBefore = `(COALESCE(e.expires_at <= {now}, false) AND NOT (e.origin <> '' AND (e.maybe_sent OR e.progress <> '')))`

	// dueSQL finds the expired rows, and for each chat the oldest due row, if no row of that chat
	// is being sent and no earlier one waits for another attempt. Because only the oldest row of a
	// chat is taken, two nodes cannot take two messages of one chat. If their snapshots differ, a
	// unique index of PostgreSQL refuses the second, which then retries. A pending row with a node
	// is due at once for that node, and at its next_at for the others. An expired row that its
	// sender ends is due.
	dueSQL = `SELECT o.id, ` + lateRow + `, o.quiet <> '' AND o.attempt = 0 AND COALESCE(o.expires_at > {now}, true) FROM outbox o
		WHERE o.done_at IS NULL AND o.state IN ('pending', 'sending') AND o.state = 'pending' AND o.channel {in $1}
			AND (` + lateRow + ` OR (o.next_at <= {now} OR o.node = $3 OR o.expires_at <= {now}) AND NOT EXISTS (
				SELECT 1 FROM outbox e WHERE e.done_at IS NULL AND e.state IN ('pending', 'sending') AND e.channel = o.channel AND e.chat_id = o.chat_id
				AND (e.state = 'sending' OR e.place < o.place AND (e.attempt > 0 OR e.next_at <= {now} OR e.node <> '') AND NOT ` + lateBefore + `)))
		ORDER BY o.place {limit $2} {skip}`

	claimedColumns = ` RETURNING id, COALESCE(run_id, ''), n, session_key, channel, chat_id, thread, kind, payload, text_many, count, coalesce, attempt, epoch,
		COALESCE(expires_at, 0), maybe_sent, created_at, choice, file, principal, progress, origin, quiet, place, COALESCE(expires_at <= {now}, false)`
	expireSQL = `UPDATE outbox SET state = 'expired', done_at = {now} WHERE id {in $1}` + claimedColumns
	takeSQL   = `UPDATE outbox SET state = 'sending', node = $2, attempt = attempt + 1 WHERE id {in $1}` + claimedColumns

	// quietSQL reads the rows of $1 in chats with quiet hours.
	quietSQL = `SELECT o.id, o.place, o.quiet, COALESCE(o.run_id, ''), o.kind, o.channel, o.chat_id, o.thread, q.network, q.from_minute, q.to_minute, COALESCE(z.zone, q.zone), {now}
		FROM outbox o JOIN quiet_hours q ON q.chat_id = o.chat_id LEFT JOIN zones z ON z.principal = q.principal WHERE o.id {in $1}`
	holdRowSQL = `UPDATE outbox SET held_until = $2, next_at = $2, expires_at = CASE WHEN expires_at < $3 THEN $3 ELSE expires_at END WHERE id = $1`
	// supersedeSQL ends the rows that a later run has made useless: $1 is their word, $2 to $4 the
	// address, $5 the later run and $6 the place of its row.
	supersedeSQL = `UPDATE outbox SET state = 'superseded', done_at = {now} WHERE done_at IS NULL AND state IN ('pending', 'sending') AND state = 'pending'
			AND attempt = 0 AND held_until IS NOT NULL AND quiet = $1 AND channel = $2 AND chat_id = $3 AND thread = $4 AND COALESCE(run_id, '') <> $5 AND place < $6
		RETURNING COALESCE(run_id, ''), kind`

	nextOutgoingSQL = `SELECT COALESCE(min(CASE WHEN next_at > {now} THEN next_at END), 0), COALESCE(min(CASE WHEN expires_at > {now} THEN expires_at END), 0)
		FROM outbox WHERE ` + unsent
)

// outgoingRows are outgoing messages as a row set; a message without an id gets one.
func outgoingRows(list []store.Outgoing) (Set, error) {
	rows := make(Set, 0, len(list))
	for i := range list {
		o := &list[i]
		id, err := newID()
		if err != nil {
			return nil, err
		}
		delay := o.Delay
		if o.First != "" { // its own node does not wait
			delay = store.FirstTime
		}
		choice, err := encodePart(o.Choice)
		if err != nil {
			return nil, err
		}
		file, err := encodePart(o.File)
		if err != nil {
			return nil, err
		}
		origin, err := encodePart(o.Origin)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []any{
			cmp.Or(o.ID, id), null(o.RunID), o.N, o.Session.String(), o.Target.Channel, o.Target.ChatID, o.Target.Thread, o.Kind, o.Text, o.TextMany,
			max(o.Count, 1), o.Coalesce, o.Epoch, span(delay), zero(millis(o.ExpiresAt)), choice, file, o.Principal, o.First, o.Progress, origin, o.Quiet,
		})
	}
	return rows, nil
}

// encodePart is the column of an optional part, "" when the row has none.
func encodePart[T any](part *T) (string, error) {
	if part == nil {
		return "", nil
	}
	return encode(part)
}

// addOutgoing adds rows; existing ones stay unchanged.
func addOutgoing(ctx context.Context, tx Tx, list []store.Outgoing) error {
	if len(list) == 0 {
		return nil
	}
	rows, err := outgoingRows(list)
	if err != nil {
		return err
	}
	return tx.Later(ctx, addOutgoingSQL, nil, rows)
}

// notify adds count to the row of a notice with the same word whose first attempt has not begun,
// for the session, or for the session of the notice. Without such a row it adds one. It returns the
// row's id, "" when notice is nil.
func notify(ctx context.Context, tx Tx, session string, notice *store.Outgoing, count int) (id string, err error) {
	if notice == nil {
		return "", nil
	}
	if notice.Coalesce != "" {
		found, err := one(ctx, tx, raiseSQL, into(&id), count, notice.Target.Channel, notice.Target.ChatID, notice.Coalesce, notice.Session.String(), session)
		if found || err != nil {
			return id, err
		}
	}
	o := *notice
	o.Count = count
	if o.ID == "" {
		if o.ID, err = newID(); err != nil {
			return "", err
		}
	}
	return o.ID, addOutgoing(ctx, tx, []store.Outgoing{o})
}

// Enqueue adds outgoing messages outside of a run; see store.Store.
func (s Outbox) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	return s.db.Update(ctx, "enqueue outgoing messages", func(ctx context.Context, tx Tx) error {
		for rest := rows; len(rest) > 0; {
			n := slices.IndexFunc(rest, func(o store.Outgoing) bool { return o.Coalesce != "" })
			if n < 0 {
				n = len(rest)
			}
			if err := addOutgoing(ctx, tx, rest[:n]); err != nil {
				return err
			}
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
			o := &rest[0]
			// Notices with one word are counted one after the other. Otherwise two of them could
			// create two rows.
			if err := lockName(ctx, tx, "outbox", o.Coalesce); err != nil {
				return err
			}
			if _, err := notify(ctx, tx, o.Session.String(), o, max(o.Count, 1)); err != nil {
				return err
			}
			rest = rest[1:]
		}
		return nil
	})
}

// ClaimOutgoing takes due rows; see store.Store. A dead node gets chat.ErrFenced.
func (s Outbox) ClaimOutgoing(ctx context.Context, p store.ClaimOutgoingParams) ([]store.Outgoing, error) {
	// An attempt without a recorded result has changed no row, so it ends no rest of the poll. With
	// its id this is another poll.
	of, err := pollOf(PollOutgoing, p.Node, slices.Concat(p.Channels, p.Unrecorded))
	if err != nil {
		return nil, err
	}
	return poll(ctx, s.db, of, func(ctx context.Context, tx Tx) (f found[[]store.Outgoing], err error) {
		due, err := dueOutgoing(ctx, tx, p)
		switch {
		case err != nil:
			return f, err
		case len(due.late)+len(due.head) == 0:
			f.idle = p.Limit > 0
			f.next = func(ctx context.Context, tx Tx) (int64, error) { return nextOutgoing(ctx, tx, p.Node) }
			return f, nil
		}
		if err := due.hold(ctx, tx); err != nil {
			return f, err
		}
		f.out, err = s.take(ctx, tx, p.Node, due.late, due.head)
		return f, err
	})
}

// dueRows are the ids of the rows that have expired, of those that are due, and of the due ones
// that wait during quiet hours.
type dueRows struct{ late, head, quiet []string }

// hold lets rows wait whose chat has quiet hours now, and ends those that they supersede.
func (d *dueRows) hold(ctx context.Context, tx Tx) error {
	if len(d.quiet) == 0 {
		return nil
	}
	rows, err := all(ctx, tx, quietSQL, scanQuiet, d.quiet)
	if err != nil {
		return err
	}
	for _, r := range rows {
		end, quiet := r.hours.Ends(r.now)
		if !quiet || chat.ChannelKind(r.channel) != r.network {
			continue
		}
		d.head = slices.DeleteFunc(d.head, func(id string) bool { return id == r.id })
		if err := tx.Later(ctx, holdRowSQL, nil, r.id, millis(end), millis(end.Add(leastAfterQuiet))); err != nil {
			return err
		}
		if err := noteDelivery(ctx, tx, r.run, r.kind, delivery{status: cron.DeliveryUnknown, reason: cron.WaitsForQuiet + end.Format("15:04")}); err != nil {
			return err
		}
		if err := r.supersede(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// leastAfterQuiet is how long a row may be sent after quiet hours, at least.
const leastAfterQuiet = time.Hour

// quietRow is a row in a chat with quiet hours.
type quietRow struct {
	id, word, run, kind, channel, chatID, thread, network string

	place int64
	hours schedule.Quiet
	now   time.Time
}

func scanQuiet(r Row) (q quietRow, err error) {
	err = r.Scan(&q.id, &q.place, &q.word, &q.run, &q.kind, &q.channel, &q.chatID, &q.thread, &q.network, &q.hours.From, &q.hours.To, &q.hours.Zone, instant{&q.now})
	return q, err
}

// supersede ends the rows that the row makes useless.
func (q *quietRow) supersede(ctx context.Context, tx Tx) error {
	type ended struct{ run, kind string }
	list, err := all(ctx, tx, supersedeSQL, func(r Row) (e ended, err error) { err = r.Scan(&e.run, &e.kind); return e, err },
		q.word, q.channel, q.chatID, q.thread, q.run, q.place)
	for i := 0; i < len(list) && err == nil; i++ {
		err = noteDelivery(ctx, tx, list[i].run, list[i].kind, delivery{status: cron.DeliveryNot, reason: "superseded by a later run during quiet hours"})
	}
	return err
}

// dueOutgoing finds and locks the expired and the due rows.
func dueOutgoing(ctx context.Context, tx Tx, p store.ClaimOutgoingParams) (due dueRows, err error) {
	alive, held := false, false
	err = tx.Later(ctx, aliveSQL, func(Row) error { alive = true; return nil }, p.Node)
	if err == nil {
		err = tx.Later(ctx, store.HoldSQL, func(Row) error { held = true; return nil })
	}
	if err == nil {
		err = tx.Later(ctx, giveBackSQL, nil, p.Node, p.Sending, p.Unrecorded)
	}
	if err != nil {
		return due, err
	}
	err = tx.Query(ctx, dueSQL, func(r Row) error {
		var (
			id             string
			expired, quiet bool
		)
		if err := r.Scan(&id, &expired, &quiet); err != nil {
			return err
		}
		switch {
		case expired:
			due.late = append(due.late, id)
			return nil
		case quiet:
			due.quiet = append(due.quiet, id)
		}
		due.head = append(due.head, id)
		return nil
	}, p.Channels, max(p.Limit, 0), p.Node)
	switch {
	case err == nil && !alive:
		return dueRows{}, chat.ErrFenced
	case held:
		return dueRows{}, err
	}
	return due, err
}

// claimed is a row with its position.
type claimed struct {
	store.Outgoing

	place int64
}

func scanClaimed(r Row) (o claimed, err error) {
	err = r.Scan(&o.ID, &o.RunID, &o.N, keyColumn{&o.Session}, &o.Target.Channel, &o.Target.ChatID, &o.Target.Thread, &o.Kind, &o.Text, &o.TextMany, &o.Count,
		&o.Coalesce, &o.Attempt, &o.Epoch, instant{&o.ExpiresAt}, &o.MaybeSent, instant{&o.CreatedAt}, jsonColumn{&o.Choice}, jsonColumn{&o.File},
		&o.Principal, &o.Progress, jsonColumn{&o.Origin}, &o.Quiet, &o.place, &o.Expired)
	return o, err
}

// take leases rows to the node and ends the expired ones.
func (s Outbox) take(ctx context.Context, tx Tx, nodeID string, late, head []string) ([]store.Outgoing, error) {
	expired, err := all(ctx, tx, expireSQL, scanClaimed, late)
	if err != nil {
		return nil, err
	}
	list, err := all(ctx, tx, takeSQL, scanClaimed, head, nodeID)
	if err != nil {
		return nil, err
	}
	for _, o := range expired {
		list = append(list, o)
		if err := noteDelivery(ctx, tx, o.RunID, o.Kind, delivery{status: cron.DeliveryNot, reason: store.NotInTime}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list, func(a, b claimed) int { return cmp.Compare(a.place, b.place) })
	out := make([]store.Outgoing, len(list))
	for i, o := range list {
		out[i] = o.Outgoing
	}
	return out, nil
}

// nextOutgoing is when the next outgoing row of any channel becomes due by time: its next attempt,
// its expiry, or the end of the lease of another node that sends it; 0 = never.
func nextOutgoing(ctx context.Context, tx Tx, nodeID string) (int64, error) {
	ends, err := leaseEnds(ctx, tx, nodeID)
	if err != nil {
		return 0, err
	}
	var at, expires int64
	_, err = one(ctx, tx, nextOutgoingSQL, into(&at, &expires))
	return earlier(earlier(at, expires), ends), err
}

// outboxCountsSQL reads one partial index for each part.
const outboxCountsSQL = `SELECT channel, 'waiting', count(*), min(created_at) FROM outbox WHERE ` + unsent + `
		AND (held_until IS NULL OR held_until <= {now}) GROUP BY channel
	UNION ALL SELECT channel, 'failed', count(*), COALESCE(max(done_at), 0) FROM outbox WHERE state = 'failed' GROUP BY channel
	UNION ALL SELECT channel, 'maybe_sent', count(*), 0 FROM outbox WHERE state = 'maybe_sent' GROUP BY channel`

// OutboxCounts counts the undelivered, the permanently failed and the possibly sent rows by
// channel.
func (s Outbox) OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error) {
	var counts map[string]store.OutboxCount
	err := s.db.View(ctx, "count outgoing messages", func(ctx context.Context, tx Tx) error {
		counts = map[string]store.OutboxCount{}
		return tx.Query(ctx, outboxCountsSQL, func(r Row) error {
			var (
				channel, part string
				n             int
				at            int64
			)
			if err := r.Scan(&channel, &part, &n, &at); err != nil {
				return err
			}
			c := counts[channel]
			switch part {
			case "failed":
				c.Failed, c.FailedAt = n, fromMillis(at)
			case "maybe_sent":
				c.MaybeSent = n
			default:
				c.Waiting, c.Oldest = n, fromMillis(at)
			}
			counts[channel] = c
			return nil
		})
	})
	return counts, err
}

const (
	// addPartsSQL records the messages that show a row. A message that replaces a preview may show
	// it again.
	addPartsSQL = `{set channel text, chat text, message text, id text, from_byte int, to_byte int}
		INSERT INTO sent (channel, chat_id, message, outgoing_id, from_byte, to_byte)
		SELECT v.channel, v.chat, v.message, v.id, v.from_byte, v.to_byte {from} WHERE true
		ON CONFLICT (channel, chat_id, message) DO UPDATE SET outgoing_id = excluded.outgoing_id, from_byte = excluded.from_byte, to_byte = excluded.to_byte`

	sentMessageSQL = `SELECT o.id, COALESCE(o.run_id, ''), o.session_key, o.kind, o.payload, o.text_many, o.count, o.file, o.origin, s.channel, s.chat_id, s.message,
			s.from_byte, s.to_byte, COALESCE(o.done_at, o.created_at),
			EXISTS (SELECT 1 FROM runs r JOIN transcript t ON t.session_key = r.session_key AND t.session_id = r.session_id AND t.run_id = r.id
				WHERE r.id = o.run_id AND t.role = 'assistant' AND t.outside)
		FROM sent s JOIN outbox o ON o.id = s.outgoing_id WHERE s.channel = $1 AND s.chat_id = $2 AND s.message = $3 AND o.payload <> ''`

	deliveredSQL = `UPDATE outbox SET state = 'delivered', provider_id = $3, done_at = {now} WHERE id = $1 AND state = 'sending' AND node = $2
		RETURNING COALESCE(run_id, ''), kind`

	undeliveredSQL = `UPDATE outbox SET last_error = $3, node = '', next_at = {now} + $4, state = $5, done_at = CASE WHEN $6 THEN {now} END,
			maybe_sent = (maybe_sent OR $7), attempt = CASE WHEN $8 THEN {greatest}(attempt - 1, 1) ELSE attempt END,
			progress = CASE WHEN $9 <> '' THEN $9 ELSE progress END
		WHERE id = $1 AND state = 'sending' AND node = $2 RETURNING COALESCE(run_id, ''), kind, channel, chat_id, maybe_sent`

	// partFailed: another part of the answer did not arrive, or may not have arrived.
	partFailed = `EXISTS (SELECT 1 FROM outbox f WHERE f.run_id = l.run_id AND f.kind <> 'notice' AND f.state IN ('failed', 'expired', 'maybe_sent'))`

	answerArrivedSQL = `UPDATE cron_run_logs AS l SET provider_message_id = $3,
			delivery = CASE WHEN ` + partFailed + ` THEN delivery ELSE 'delivered' END,
			delivery_error = CASE WHEN ` + partFailed + ` THEN delivery_error ELSE '' END
		WHERE id = $1 AND run_id = $2` + answerReturns
	answerLostSQL = `UPDATE cron_run_logs SET delivery = $3, delivery_error = $4 WHERE id = $1 AND run_id = $2` + answerReturns
	answerReturns = ` RETURNING job_id, COALESCE(started_at, 0), delivery, delivery_error`

	// enterSQL creates the session of a delivered message unless it exists, and allocates the
	// number of its entry. The session is locked before the row.
	enterSQL = `INSERT INTO sessions AS s (key, agent, principal, session_id, epoch, last_seq, taken_seq, done_seq, transcript_seq, created_at, updated_at)
		SELECT $1, $2, $3, $4, COALESCE(g.epoch, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), 1, c.now, c.now
		FROM (SELECT {now} AS now) c LEFT JOIN tombstones g ON g.key = $1 WHERE true
		ON CONFLICT (key) DO UPDATE SET transcript_seq = s.transcript_seq + 1, updated_at = {now}
		RETURNING session_id, transcript_seq, updated_at, principal`

	lockJobSQL = `SELECT 1 FROM cron_jobs WHERE id = $1 {lock}`

	lastDeliverySQL = `UPDATE cron_jobs SET last_delivery = $3, last_delivery_error = $4 WHERE id = $1 AND last_run_at = $2`

	pauseDeliverySQL = `UPDATE cron_jobs SET delivery_paused_at = {now}, delivery_paused_why = $3, delivery_paused_channel = $4, delivery_paused_chat = $5
		WHERE id = $1 AND revision = $2 AND NOT (delivery_paused_at IS NOT NULL AND delivery_paused_channel = $4 AND delivery_paused_chat = $5)`
)

// delivery is the state of an answer.
type delivery struct {
	status             cron.DeliveryStatus // "" = not yet decided
	providerID, reason string
}

// noteDelivery records the delivery of a row of a run in the ledger, and in the job when the run
// was its last one. Only replies and webhooks count: a notice is not an answer. One failed part
// makes the whole answer not delivered.
func noteDelivery(ctx context.Context, tx Tx, message, kind string, d delivery) error {
	id := cron.RunOfMessage(message)
	if id == "" || d.status == "" || kind == store.KindNotice {
		return nil
	}
	text, args := answerLostSQL, []any{id, message, string(d.status), d.reason}
	if d.status == cron.DeliveryDone {
		text, args = answerArrivedSQL, []any{id, message, d.providerID}
	}
	var (
		job, became, reason string
		startedAt           int64
	)
	found, err := one(ctx, tx, text, into(&job, &startedAt, &became, &reason), args...)
	if err != nil || !found {
		return err
	}
	return tx.Later(ctx, lastDeliverySQL, nil, job, startedAt, became, reason)
}

// entering is what a person has seen, on its way into the conversation at the address.
type entering struct {
	*store.Shown

	to        addition
	principal string
}

// enter locks the session of what a person has seen, and allocates the number of its entry. It runs
// before the row is changed, because jobs are locked first, then sessions, then the outbox. nil =
// nothing was seen.
func enter(ctx context.Context, tx Tx, id string, shown *store.Shown) (*entering, error) {
	if shown == nil {
		return nil, nil // no entry is not an error
	}
	if o := shown.Entry.Origin; o != nil && o.Job != "" {
		if err := tx.Later(ctx, lockJobSQL, nil, o.Job); err != nil {
			return nil, err
		}
	}
	first, err := newID()
	if err != nil {
		return nil, err
	}
	e := &entering{Shown: shown, to: addition{Session: shown.Session.String(), Reply: id}}
	_, err = one(ctx, tx, enterSQL, into(&e.to.Transcript, &e.to.After, &e.to.At, &e.principal), e.to.Session, shown.Session.Agent, shown.Principal, first)
	e.to.After--
	return e, err
}

// add adds the entry after the row was changed: a row that belongs to another process has its entry
// already, or will get it.
func (e *entering) add(ctx context.Context, tx Tx) (*store.ShownEntry, error) {
	if e == nil {
		return nil, nil // no entry is not an error
	}
	entries, err := insertEntries(ctx, tx, e.to, []chat.TranscriptEntry{e.Entry})
	if err != nil {
		return nil, err
	}
	return &store.ShownEntry{TranscriptEntry: entries[0], Session: e.Session, Principal: e.principal}, nil
}

// Delivered records that a message has arrived; see store.Store.
func (s Outbox) Delivered(ctx context.Context, p store.DeliveredParams) (*store.ShownEntry, error) {
	if p.ProviderID == "" {
		return nil, chat.Errorf(chat.CodeInvalid, "a delivered message needs the provider's id")
	}
	return result(ctx, s.db.Update, "note a delivery", func(ctx context.Context, tx Tx) (*store.ShownEntry, error) {
		entry, err := enter(ctx, tx, p.ID, p.Shown)
		if err != nil {
			return nil, err
		}
		var run, kind string
		leased, err := one(ctx, tx, deliveredSQL, into(&run, &kind), p.ID, p.Node, p.ProviderID)
		if err == nil && !leased {
			err = chat.ErrFenced
		}
		if err == nil {
			err = noteDelivery(ctx, tx, run, kind, delivery{status: cron.DeliveryDone, providerID: p.ProviderID})
		}
		if err == nil {
			err = addParts(ctx, tx, p.ID, p.Parts)
		}
		if err != nil {
			return nil, err
		}
		return entry.add(ctx, tx)
	})
}

// addParts records the messages that show a row.
func addParts(ctx context.Context, tx Tx, id string, parts []chat.Part) error {
	if len(parts) == 0 {
		return nil
	}
	rows := make(Set, len(parts))
	for i, p := range parts {
		rows[i] = []any{p.At.Channel, p.At.ChatID, p.Message, id, p.From, p.To}
	}
	return tx.Later(ctx, addPartsSQL, nil, rows)
}

// SentMessage finds the row that a message in a chat shows; see store.Store.
func (s Outbox) SentMessage(ctx context.Context, in chat.Target, message string) (out store.SentMessage, err error) {
	err = s.db.View(ctx, "find the row of a message", func(ctx context.Context, tx Tx) error {
		o := &out
		found, err := one(ctx, tx, sentMessageSQL, func(r Row) error {
			return r.Scan(&o.ID, &o.RunID, keyColumn{&o.Session}, &o.Kind, &o.Text, &o.TextMany, &o.Count, jsonColumn{&o.File}, jsonColumn{&o.Origin},
				&o.At.Channel, &o.At.ChatID, &o.Message, &o.From, &o.To, instant{&o.SentAt}, &o.FromOutside)
		}, in.Channel, in.ChatID, message)
		if err == nil && !found {
			err = chat.ErrNotFound
		}
		o.FromOutside = o.FromOutside || o.Origin != nil && o.Origin.Outside
		return err
	})
	return out, err
}

// RecordProgress stores what part of a row has arrived; see store.Store.
func (s Outbox) RecordProgress(ctx context.Context, nodeID, id, progress string, parts []chat.Part) error {
	return s.db.Update(ctx, "note the progress of a delivery", func(ctx context.Context, tx Tx) error {
		n, err := tx.Exec(ctx, `UPDATE outbox SET progress = $3 WHERE id = $1 AND state = 'sending' AND node = $2`, id, nodeID, progress)
		if err == nil && n == 0 {
			err = chat.ErrFenced
		}
		if err != nil {
			return err
		}
		return addParts(ctx, tx, id, parts)
	})
}

// Undelivered returns the row for a later attempt, or ends it; see store.Store.
func (s Outbox) Undelivered(ctx context.Context, p store.UndeliveredParams) (store.Gone, error) {
	return result(ctx, s.db.Update, "note a failed delivery", func(ctx context.Context, tx Tx) (out store.Gone, err error) {
		if p.Gone != nil { // jobs are locked first, as everywhere
			if err := tx.Later(ctx, lockJobSQL, nil, p.Gone.JobID); err != nil {
				return out, err
			}
		}
		entry, err := enter(ctx, tx, p.ID, p.Shown)
		if err != nil {
			return out, err
		}
		to, err := undelivered(ctx, tx, p)
		if err == nil {
			err = addParts(ctx, tx, p.ID, p.Parts)
		}
		if err != nil {
			return out, err
		}
		if out.Entry, err = entry.add(ctx, tx); err != nil || p.Gone == nil {
			return out, err
		}
		paused, err := tx.Exec(ctx, pauseDeliverySQL, p.Gone.JobID, p.Gone.Revision, p.Error, to.Channel, to.ChatID)
		if err != nil || paused == 0 {
			return out, err
		}
		if err := addOutgoing(ctx, tx, p.Gone.Outgoing); err != nil {
			return out, err
		}
		job, err := s.jobs.findJob(ctx, tx, p.Gone.JobID, "")
		out.Job = &job.Job
		return out, err
	})
}

// undelivered writes a failed attempt and returns the address of the row.
func undelivered(ctx context.Context, tx Tx, p store.UndeliveredParams) (to chat.Target, err error) {
	var (
		run, kind string
		maybe     bool
	)
	leased, err := one(ctx, tx, undeliveredSQL, into(&run, &kind, &to.Channel, &to.ChatID, &maybe),
		p.ID, p.Node, p.Error, span(p.RetryIn), p.State(), p.Permanent, p.MaybeSent, p.Uncounted, p.Progress)
	if err == nil && !leased {
		err = chat.ErrFenced
	}
	if err != nil || !p.Permanent {
		return to, err
	}
	d := delivery{status: cron.DeliveryNot, reason: p.Error}
	if maybe {
		d.status = cron.DeliveryUnknown
	}
	return to, noteDelivery(ctx, tx, run, kind, d)
}
