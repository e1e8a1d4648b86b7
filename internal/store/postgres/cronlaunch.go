package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	// lockSessionsSQL locks the existing ones of the named sessions, always in the same order.
	lockSessionsSQL = `SELECT 1 FROM sessions WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE`

	// placeSQL gives sessions numbers for $8 new messages each, makes those that are new, and takes those that no live node owns and that
	// have no unfinished messages. The rows of existing sessions are locked by an earlier statement.
	placeSQL = `
WITH t AS (
	SELECT c.now, CASE WHEN EXISTS (
		SELECT 1 FROM nodes n WHERE n.id = $2 AND n.lease_until > c.now AND NOT n.draining) THEN $2::text END AS taker
	FROM (SELECT ` + nowSQL + ` AS now) c
)
INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq,
	waiting, created_at, updated_at, last_message_at)
SELECT v.key, v.agent, v.principal, v.id, v.lane, t.taker, COALESCE(g.epoch, 0) + CASE WHEN t.taker IS NULL THEN 0 ELSE 1 END,
	COALESCE(g.last_seq, 0) + v.n, COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), v.n, t.now, t.now, t.now
FROM t, unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[]) AS v(key, agent, principal, id, lane, n)
LEFT JOIN tombstones g ON g.key = v.key
ON CONFLICT (key) DO UPDATE SET
	last_seq = s.last_seq + excluded.waiting,
	waiting = s.waiting + excluded.waiting,
	owner = CASE WHEN ` + takeIt + ` THEN excluded.owner ELSE s.owner END,
	epoch = s.epoch + CASE WHEN ` + takeIt + ` THEN 1 ELSE 0 END,
	lane = excluded.lane,
	updated_at = excluded.updated_at,
	last_message_at = excluded.updated_at
RETURNING s.key, s.last_seq, COALESCE(s.owner, ''), s.epoch, s.session_id, s.waiting`

	takeIt = `excluded.owner IS NOT NULL AND s.done_seq = s.last_seq
		AND (s.owner IS NULL OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.owner AND n.lease_until > excluded.updated_at))`

	// messagesSQL puts messages into the inbox under the numbers that placeSQL gave.
	messagesSQL = `
INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane, state, node, accepted_at)
SELECT v.session, v.seq, v.id, NULLIF(v.dedupe, ''), v.hash, v.channel, v.external, v.principal, v.sender, v.body, v.lane, 'waiting', $2, ` + nowSQL + `
FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[],
	$13::text[]) AS v(session, seq, id, dedupe, hash, channel, external, principal, sender, body, lane)`

	// takenNamesSQL finds messages whose name a run needs.
	takenNamesSQL = `SELECT message_id FROM inbox WHERE message_id = ANY($1::text[])
UNION ALL SELECT substr(dedupe, 6) FROM inbox WHERE dedupe = ANY($2::text[])`
)

// launching makes runs durable: their ledger rows and, for new runs, their messages.
type launching struct {
	s    *Store
	node string
	now  time.Time
	// checkNames checks first whether another message has the name of a message of a run; such a run is recorded as an error.
	checkNames bool

	launched []cron.Launched
	recorded []cron.Run
	existing []string
}

func (l *launching) run(ctx context.Context, tx pgx.Tx, launches []cron.Launch, rows []cron.Run) error {
	if len(launches)+len(rows) == 0 {
		return nil
	}
	for _, c := range launches {
		if c.Message.ID == "" || c.Message.Session.IsZero() {
			return chat.Errorf(chat.CodeInvalid, "the message of a run needs an id and a session")
		}
	}
	launches, refused, err := l.split(ctx, tx, launches)
	if err != nil {
		return err
	}
	rows = append(slices.Clone(rows), refused...)
	fresh := make([]loggedRun, 0, len(launches)+len(rows))
	for i := range launches {
		launches[i].Run = l.queued(&launches[i])
		fresh = append(fresh, loggedRun{Run: launches[i].Run, message: launches[i].Message.ID})
	}
	for _, r := range rows {
		fresh = append(fresh, loggedRun{Run: r})
	}
	var added []string
	b := &pgx.Batch{}
	l.s.record(b, l.node, fresh, &added)
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	return l.sort(ctx, tx, launches, rows, added)
}

// sort separates new runs from existing ones, and places the messages of the new ones.
func (l *launching) sort(ctx context.Context, tx pgx.Tx, launches []cron.Launch, rows []cron.Run, added []string) error {
	isNew := map[string]bool{}
	for _, id := range added {
		isNew[id] = true
	}
	var place []placed
	for i := range launches {
		c := &launches[i]
		if !isNew[c.Run.ID] {
			l.existing = append(l.existing, c.Run.ID)
			continue
		}
		delete(isNew, c.Run.ID) // a second one of the same name is not new
		place = append(place, placed{run: c.Run, message: c.Message})
	}
	for _, r := range rows {
		if isNew[r.ID] {
			l.recorded = append(l.recorded, l.over(r))
		}
	}
	launched, err := l.s.place(ctx, tx, l.node, place)
	l.launched = append(l.launched, launched...)
	return err
}

// queued is a run as the ledger has it after the launch.
func (l *launching) queued(c *cron.Launch) cron.Run {
	r := kept(c.Run)
	r.State, r.ClaimedAt, r.Node = cron.RunQueued, l.now, l.node
	r.SessionKey = cmp.Or(r.SessionKey, c.Message.Session.String())
	return r
}

func (l *launching) over(r cron.Run) cron.Run {
	r = kept(r)
	r.ClaimedAt, r.FinishedAt, r.Node = l.now, l.now, l.node
	return r
}

// kept is a run with the precision of the table.
func kept(r cron.Run) cron.Run {
	r.ScheduledFor, r.SlotUntil, r.FireAt = whole(r.ScheduledFor), whole(r.SlotUntil), whole(r.FireAt)
	r.SlotCount = max(r.SlotCount, 1)
	return r
}

// split removes the launches whose message would have a name that is in use.
func (l *launching) split(ctx context.Context, tx pgx.Tx, launches []cron.Launch) (free []cron.Launch, refused []cron.Run, err error) {
	if !l.checkNames {
		return launches, nil, nil
	}
	var names []string
	b := &pgx.Batch{}
	b.Queue(takenNamesSQL, column(launches, func(c cron.Launch) string { return c.Message.ID }),
		column(launches, func(c cron.Launch) string { return c.Message.Dedupe })).Query(collect(&names, scanText))
	if err := send(ctx, tx, b); err != nil {
		return nil, nil, err
	}
	for _, c := range launches {
		if slices.Contains(names, c.Message.ID) || slices.Contains(names, strings.TrimPrefix(c.Message.Dedupe, "cron:")) {
			c.Run.State, c.Run.ErrorClass = cron.RunError, "unknown"
			c.Run.Error = "another message has the name of this run: the run cannot use it"
			refused = append(refused, c.Run)
			continue
		}
		free = append(free, c)
	}
	return free, refused, nil
}

// placed is a message of a run with its number and session.
type placed struct {
	run     cron.Run
	message chat.Message
}

// sessionSlot is a session with the numbers for its new messages.
type sessionSlot struct {
	key, owner, sessionID string
	last, epoch, waiting  int64
	used, n               int64
}

// place puts messages into the inboxes of their sessions and returns who owns these.
func (s *Store) place(ctx context.Context, tx pgx.Tx, node string, list []placed) ([]cron.Launched, error) {
	if len(list) == 0 {
		return nil, nil
	}
	slots, err := s.sessionSlots(ctx, tx, node, list)
	if err != nil {
		return nil, err
	}
	out := make([]cron.Launched, 0, len(list))
	for _, p := range list {
		slot := slots[p.message.Session.String()]
		slot.used++
		out = append(out, cron.Launched{
			Run: p.run, Message: p.message, Seq: slot.last - slot.n + slot.used, Epoch: slot.epoch,
			Mine: slot.owner != "" && slot.owner == node, Owner: slot.owner,
			Behind: int(slot.waiting - slot.n + slot.used - 1), SessionID: slot.sessionID,
		})
	}
	args, err := s.messageArgs(node, out)
	if err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	b.Queue(messagesSQL, args...)
	if err := send(ctx, tx, b); err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) sessionSlots(ctx context.Context, tx pgx.Tx, node string, list []placed) (map[string]*sessionSlot, error) {
	slots := map[string]*sessionSlot{}
	var first []chat.Message // of each session
	for _, p := range list {
		key := p.message.Session.String()
		if slots[key] == nil {
			slots[key] = &sessionSlot{key: key}
			first = append(first, p.message)
		}
		slots[key].n++
	}
	slices.SortFunc(first, func(a, b chat.Message) int { return cmp.Compare(a.Session.String(), b.Session.String()) })
	ids := make([]string, len(first))
	for i := range ids {
		id, err := newID()
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	key := func(m chat.Message) string { return m.Session.String() }
	b := &pgx.Batch{}
	b.Queue(lockSessionsSQL, column(first, key))
	b.Queue(placeSQL, s.clock(), node, column(first, key), column(first, func(m chat.Message) string { return m.Session.Agent }),
		column(first, func(m chat.Message) string { return m.Principal }), ids, column(first, func(m chat.Message) string { return m.Lane }),
		column(first, func(m chat.Message) int64 { return slots[key(m)].n })).Query(func(rows pgx.Rows) error { return fillSlots(rows, slots) })
	return slots, send(ctx, tx, b)
}

func fillSlots(rows pgx.Rows, slots map[string]*sessionSlot) error {
	var v sessionSlot
	_, err := pgx.ForEachRow(rows, []any{&v.key, &v.last, &v.owner, &v.epoch, &v.sessionID, &v.waiting}, func() error {
		v.n = slots[v.key].n
		*slots[v.key] = v
		return nil
	})
	return err
}

func (s *Store) messageArgs(node string, list []cron.Launched) ([]any, error) {
	bodies := make([]string, len(list))
	for i, l := range list {
		body, err := encode(l.Message.Content)
		if err != nil {
			return nil, err
		}
		bodies[i] = body
	}
	text := func(of func(m chat.Message) string) []string {
		return column(list, func(l cron.Launched) string { return of(l.Message) })
	}
	return []any{
		s.clock(), node, text(func(m chat.Message) string { return m.Session.String() }),
		column(list, func(l cron.Launched) int64 { return l.Seq }), text(func(m chat.Message) string { return m.ID }),
		text(func(m chat.Message) string { return m.Dedupe }), text(func(m chat.Message) string { return m.ParamsHash }),
		text(func(m chat.Message) string { return m.Channel }), column(list, func(l cron.Launched) int64 { return l.Message.ExternalID }),
		text(func(m chat.Message) string { return m.Principal }), text(func(m chat.Message) string { return m.Content.Sender.ID }),
		bodies, text(func(m chat.Message) string { return m.Lane }),
	}, nil
}
