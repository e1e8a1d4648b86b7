package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// launching stores runs for a node: the rows of the ledger and their messages.
type launching struct {
	node string
	now  int64
	// each makes it check which runs are new, and whether another message has the id of a run's
	// message; such a run is recorded as an error. Without each, all runs are assumed to be new,
	// see errNotNew.
	each bool

	launched          []cron.Launched
	recorded, refused []cron.Run
	existing          []string
}

// run stores new runs and the rows of slots that do not run.
func (l *launching) run(ctx context.Context, tx Tx, launches []cron.Launch, rows []cron.Run) error {
	for _, c := range launches {
		if c.Message.ID == "" || c.Message.Session.IsZero() {
			return chat.Errorf(chat.CodeInvalid, "the message of a run needs an id and a session")
		}
	}
	taken, err := l.takenIDs(ctx, tx, launches)
	if err != nil {
		return err
	}
	var names takenNames
	for i := range launches {
		names.ask(launches[i].Message.Session, launches[i].Run.Owner, launches[i].Run.JobID)
	}
	if err := names.read(ctx, tx); err != nil {
		return err
	}
	now := fromMillis(l.now)
	fresh := make([]loggedRun, 0, len(launches)+len(rows))
	for i := range launches {
		c := &launches[i]
		if taken[c.Message.ID] {
			fresh = append(fresh, loggedRun{Run: c.Run.Refused().Recorded(l.node, now)})
			continue
		}
		if names.has(c.Message.Session, c.Run.JobID) {
			fresh = append(fresh, loggedRun{Run: c.Run.Taken().Recorded(l.node, now)})
			continue
		}
		c.Run = c.Run.Launched(l.node, c.Message.Session, now)
		fresh = append(fresh, loggedRun{Run: c.Run, message: c.Message.ID})
	}
	for i := range rows {
		fresh = append(fresh, loggedRun{Run: rows[i].Recorded(l.node, now)})
	}
	isNew, err := addRuns(ctx, tx, fresh, l.each)
	if err != nil {
		return err
	}
	return l.sort(ctx, tx, launches, fresh, isNew)
}

// takenIDs are the ids of runs' messages that other messages already have.
func (l *launching) takenIDs(ctx context.Context, tx Tx, launches []cron.Launch) (map[string]bool, error) {
	if !l.each {
		return nil, nil
	}
	ids := make([]string, len(launches))
	for i, c := range launches {
		ids[i] = c.Message.ID
	}
	taken := map[string]bool{}
	err := tx.Query(ctx, `SELECT message_id FROM inbox WHERE message_id {in $1}`, func(r Row) error {
		var id string
		err := r.Scan(&id)
		taken[id] = true
		return err
	}, ids)
	return taken, err
}

// sort separates new runs from existing ones, and places the messages of the new ones.
func (l *launching) sort(ctx context.Context, tx Tx, launches []cron.Launch, fresh []loggedRun, isNew map[string]bool) error {
	place := make([]cron.Launched, 0, len(launches))
	for i, r := range fresh {
		if !isNew[r.ID] {
			if i < len(launches) {
				l.existing = append(l.existing, r.ID)
			}
			continue
		}
		delete(isNew, r.ID) // a second run with the same id is not new
		switch {
		case i >= len(launches):
			l.recorded = append(l.recorded, r.Run)
		case r.message == "":
			l.refused = append(l.refused, r.Run)
		default:
			place = append(place, cron.Launched{Run: r.Run, Message: launches[i].Message})
		}
	}
	return l.place(ctx, tx, place)
}

const (
	mayOwnSQL = `SELECT 1 FROM nodes WHERE id = $1 AND lease_until > {now} AND NOT draining`

	// seatsSQL reserves numbers for n new messages in each session. It creates missing sessions,
	// and takes over sessions that no live node owns and that have no unfinished messages. A
	// session whose predecessor was deleted continues with its numbers. An existing session keeps
	// its lane and its limit of runs. $1 is the node, if it may own sessions.
	seatsSQL = `{set key text, agent text, principal text, id text, lane text, n int}
		INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at, last_message_at)
		SELECT v.key, v.agent, v.principal, v.id, v.lane, NULLIF($1, ''), COALESCE(g.epoch, 0) + CASE WHEN $1 = '' THEN 0 ELSE 1 END,
			COALESCE(g.last_seq, 0) + v.n, COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), v.n, {now}, {now}, {now}
		FROM (SELECT 1 AS one) o {and} LEFT JOIN tombstones g ON g.key = v.key WHERE true
		ON CONFLICT (key) DO UPDATE SET last_seq = s.last_seq + excluded.waiting, waiting = s.waiting + excluded.waiting,
			owner = CASE WHEN ` + takeIt + ` THEN excluded.owner ELSE s.owner END, epoch = s.epoch + CASE WHEN ` + takeIt + ` THEN 1 ELSE 0 END,
			updated_at = excluded.updated_at, last_message_at = excluded.updated_at
		RETURNING key, last_seq, COALESCE(owner, ''), epoch, session_id, waiting`
	takeIt = `excluded.owner IS NOT NULL AND s.done_seq = s.last_seq
			AND (s.owner IS NULL OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = s.owner AND n.lease_until > excluded.updated_at))`

	// putMessagesSQL puts messages into the inbox under these numbers.
	putMessagesSQL = `{set session text, seq int, id text, hash text, channel text, external int, principal text, sender text, body text, lane text,
			thread text, mode text, flags int, size int}
		INSERT INTO inbox (session_key, seq, message_id, params_hash, channel, external_id, principal, sender, body, lane,
			thread, mode, flags, size, state, node, accepted_at)
		SELECT v.session, v.seq, v.id, v.hash, v.channel, v.external, v.principal, v.sender, v.body, v.lane,
			v.thread, v.mode, v.flags, v.size, 'waiting', $1, {now}
		{from} WHERE true ON CONFLICT DO NOTHING`
)

// seat is a session with the numbers for its new messages.
type seat struct {
	owner, sessionID     string
	last, epoch, waiting int64
	used, n              int64
}

// place puts messages into the inboxes of their sessions and fills in the owners of these.
func (l *launching) place(ctx context.Context, tx Tx, list []cron.Launched) error {
	if len(list) == 0 {
		return nil
	}
	seats, err := l.seats(ctx, tx, list)
	if err != nil {
		return err
	}
	messages := make(Set, len(list))
	for i := range list {
		p := &list[i]
		m := &p.Message
		s := seats[m.Session.String()]
		s.used++
		p.Seq, p.Epoch, p.Owner, p.SessionID = s.last-s.n+s.used, s.epoch, s.owner, s.sessionID
		p.Mine, p.Behind = s.owner != "" && s.owner == l.node, int(s.waiting-s.n+s.used-1)
		body, err := encode(m.Content)
		if err != nil {
			return err
		}
		row := store.RowOf(&m.Content, m.Lane)
		messages[i] = []any{
			m.Session.String(), p.Seq, m.ID, m.ParamsHash, m.Channel, m.ExternalID, m.Principal, row.Sender, body, m.Lane,
			row.Thread, string(row.Mode), flagsOf(&row), row.Size,
		}
	}
	n, err := tx.Exec(ctx, putMessagesSQL, l.node, messages)
	if err == nil && int(n) != len(list) {
		err = errNotNew
	}
	l.launched = append(l.launched, list...)
	return err
}

func (l *launching) seats(ctx context.Context, tx Tx, list []cron.Launched) (map[string]*seat, error) {
	seats := map[string]*seat{}
	var (
		keys []string
		set  Set
	)
	for i := range list {
		m := &list[i].Message
		key := m.Session.String()
		if s := seats[key]; s != nil {
			s.n++
			continue
		}
		id, err := newID()
		if err != nil {
			return nil, err
		}
		seats[key] = &seat{n: 1}
		keys = append(keys, key)
		set = append(set, []any{key, m.Session.Agent, m.Principal, id, m.Lane, int64(0)})
	}
	for _, row := range set {
		row[5] = seats[row[0].(string)].n //nolint:forcetypeassert,errcheck // as above
	}
	// Sorted, so that two transactions cannot deadlock.
	slices.SortFunc(set, func(a, b []any) int { return cmp.Compare(a[0].(string), b[0].(string)) }) //nolint:forcetypeassert,errcheck // as above
	if tx.PerEngine("locks", "") != "" {
		if err := tx.Later(ctx, lockSessionsSQL, nil, keys); err != nil {
			return nil, err
		}
	}
	owner := ""
	if _, err := one(ctx, tx, mayOwnSQL, func(Row) error { owner = l.node; return nil }, l.node); err != nil {
		return nil, err
	}
	return seats, tx.Query(ctx, seatsSQL, func(r Row) error {
		var (
			key string
			s   seat
		)
		err := r.Scan(&key, &s.last, &s.owner, &s.epoch, &s.sessionID, &s.waiting)
		if err == nil {
			s.n = seats[key].n
			*seats[key] = s
		}
		return err
	}, owner, set)
}

// unknownLaunches are launches whose commit is unknown. If they were committed, this process owns
// their sessions and must submit them: the next claim returns them. If the process ends first, the
// sweep of another process finds them.
type unknownLaunches struct {
	mu   sync.Mutex
	list map[string]cron.Launched // by message
}

func (u *unknownLaunches) add(list []cron.Launched) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range list {
		u.list[l.Message.ID] = l
	}
}

// remove drops launches that the caller has received, or that need no further check.
func (u *unknownLaunches) remove(list []cron.Launched) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range list {
		delete(u.list, l.Message.ID)
	}
}

func (u *unknownLaunches) all() []cron.Launched {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]cron.Launched, 0, len(u.list))
	for _, l := range u.list {
		list = append(list, l)
	}
	return list
}

// committed separates launches whose messages wait for a node from the rest.
func committed(ctx context.Context, tx Tx, node string, list []cron.Launched) (found, gone []cron.Launched, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	ids := make([]string, len(list))
	for i, l := range list {
		ids[i] = l.Message.ID
	}
	waiting := map[string]cron.Launched{}
	err = tx.Query(ctx, `SELECT i.message_id, i.seq, s.epoch FROM inbox i JOIN sessions s ON s.key = i.session_key
		WHERE i.message_id {in $1} AND i.state = 'waiting' AND s.owner = $2`, func(r Row) error {
		var (
			id string
			l  cron.Launched
		)
		err := r.Scan(&id, &l.Seq, &l.Epoch)
		waiting[id] = l
		return err
	}, ids, node)
	for _, l := range list {
		if now, ok := waiting[l.Message.ID]; ok {
			l.Seq, l.Epoch, l.Owner, l.Mine = now.Seq, now.Epoch, node, true
			found = append(found, l)
		} else {
			gone = append(gone, l)
		}
	}
	return found, gone, err
}
