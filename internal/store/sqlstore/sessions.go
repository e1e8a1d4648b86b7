package sqlstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Sessions are conversations and their transcripts.
type Sessions struct{ db Engine }

const (
	selectSessions = `SELECT key, session_id, principal, lane, COALESCE(owner, ''), epoch, last_seq, taken_seq, done_seq, stop_seq, run_limit, waiting,
		mode, notes, created_at, updated_at, last_message_at, last_run_id, last_state, last_cause, last_error, preview, total_tokens
		FROM sessions WHERE key {in $1}`

	// $1 since when, $2 principal, $3 agent, $4 excludes the sessions of single runs and of
	// sub-turns. A session that a job has named has no time of change while nothing was said or set
	// in it, and is not listed.
	sessionsMatching = ` FROM sessions WHERE updated_at > 0 AND updated_at >= $1 AND ($2 = '' OR principal = $2) AND ($3 = '' OR agent = $3)
		AND NOT (CAST($4 AS boolean) AND (key LIKE 'agent:' || agent || ':cron:%:%' OR key LIKE 'agent:' || agent || ':task:%'))`
	// sessionBytes are the bytes of the text columns of a row that have no other bound.
	sessionBytes = `octet_length(notes) + octet_length(preview) + octet_length(last_error) AS page_size`

	// The keys that a client has chosen, see chat.SessionKey.Named; LIKE ignores the case on
	// SQLite.
	keyRest   = `substr(key, length(agent) + 8)`
	namedLike = ` AND ` + keyRest + ` <> 'main' AND ` + keyRest + ` NOT LIKE 'cron:%:%' AND ` + keyRest + ` NOT LIKE 'task:%' AND (` + keyRest + ` NOT LIKE 'api:%' OR ` + keyRest + ` LIKE 'api:%:%'` + orBranch
	namedGlob = ` AND ` + keyRest + ` <> 'main' AND ` + keyRest + ` NOT GLOB 'cron:*:*' AND ` + keyRest + ` NOT GLOB 'task:*' AND (` + keyRest + ` NOT GLOB 'api:*' OR ` + keyRest + ` GLOB 'api:*:*'` + orBranch
	orBranch  = ` OR EXISTS (SELECT 1 FROM branches b WHERE b.session_key = sessions.key))`
)

func scanSession(r Row) (v store.Session, err error) {
	err = r.Scan(keyColumn{&v.Key}, &v.SessionID, &v.Principal, &v.Lane, &v.Owner, &v.Epoch, &v.LastSeq, &v.TakenSeq, &v.DoneSeq, &v.StopSeq, &v.RunLimit, &v.Waiting,
		&v.Mode, jsonColumn{&v.Notes}, instant{&v.CreatedAt}, instant{&v.UpdatedAt}, instant{&v.LastMessageAt}, &v.LastRunID, &v.LastState, &v.LastCause,
		&v.LastError, &v.Preview, &v.TotalTokens)
	return v, err
}

// readSessions reads sessions with their active runs, in the order of the keys; missing sessions
// are skipped.
func readSessions(ctx context.Context, tx Tx, keys ...string) ([]store.Session, error) {
	found := make(map[string]*store.Session, len(keys))
	err := tx.Query(ctx, selectSessions, func(r Row) error {
		v, err := scanSession(r)
		found[v.Key.String()] = &v
		return err
	}, keys)
	if err != nil {
		return nil, err
	}
	var key, id string
	err = tx.Query(ctx, `SELECT session_key, id FROM runs {by runs_open} WHERE {running} AND session_key {in $1} ORDER BY session_key, seq_from`, func(r Row) error {
		err := r.Scan(&key, &id)
		if v := found[key]; v != nil {
			v.ActiveRuns = append(v.ActiveRuns, id)
		}
		return err
	}, keys)
	list := make([]store.Session, 0, len(found))
	for _, key := range keys {
		if v := found[key]; v != nil {
			list = append(list, *v)
		}
	}
	return list, err
}

// readSession reads one session; chat.ErrSessionNotFound.
func readSession(ctx context.Context, tx Tx, key chat.SessionKey) (store.Session, error) {
	list, err := readSessions(ctx, tx, key.String())
	if err == nil && len(list) == 0 {
		err = chat.ErrSessionNotFound
	}
	if err != nil {
		return store.Session{}, err
	}
	return list[0], nil
}

// Session reads one session that the principal may see; see store.Store.
func (s Sessions) Session(ctx context.Context, key chat.SessionKey, visible string) (v store.Session, err error) {
	err = s.db.View(ctx, "read a session", func(ctx context.Context, tx Tx) (err error) {
		v, err = readSession(ctx, tx, key)
		if err == nil && visible != "" && v.Principal != visible {
			v, err = store.Session{}, chat.ErrSessionNotFound
		}
		return err
	})
	return v, err
}

// ListSessions lists sessions and returns how many match the filter; see store.Store.
func (s Sessions) ListSessions(ctx context.Context, f store.SessionFilter) (list []store.Session, total int, err error) {
	err = s.db.List(ctx, "list sessions", func(ctx context.Context, tx Tx) (err error) {
		var keys []string
		if keys, total, err = matching(ctx, tx, &f); err != nil || len(keys) == 0 {
			return err
		}
		list, err = readSessions(ctx, tx, keys...)
		return err
	})
	return list, total, err
}

// matching finds the keys of one page, and how many sessions match. A search compares in Go, so
// that it folds the case of all letters on both engines; it holds only the keys that it returns.
func matching(ctx context.Context, tx Tx, f *store.SessionFilter) (keys []string, total int, err error) {
	order := ` ORDER BY updated_at DESC, key`
	if f.ByLastMessage {
		order = ` ORDER BY last_message_at DESC, key`
	}
	from, args := sessionsMatching, []any{millis(f.ActiveSince), f.Visible, f.Agent, f.NoRuns}
	if f.Named {
		from += tx.PerEngine(namedLike, namedGlob)
	}
	limit, offset, most := f.Bounds()
	if f.Search == "" {
		if total, err = countTo(ctx, tx, from, most, args...); err != nil {
			return nil, 0, err
		}
		p := page{columns: `key`, rows: `SELECT key, ` + sessionBytes + from + order + ` {limit $5} OFFSET $6`, args: append(args, limit, offset)}
		keys, err = readPage(ctx, tx, p, scanText)
		return keys, total, err
	}
	var (
		key, preview string
		size         int
		budget       = store.NewBudget(0)
		full         bool
		search       = strings.ToLower(f.Search)
	)
	err = tx.Query(ctx, `SELECT key, preview, `+sessionBytes+from+order, func(r Row) error {
		if err := r.Scan(&key, &preview, &size); err != nil || !strings.Contains(strings.ToLower(key+"\x00"+preview), search) {
			return err
		}
		total = min(total, most) + 1
		if full || total <= offset {
			return nil
		}
		if full = len(keys) >= limit || !budget.Take(size); !full {
			keys = append(keys, key)
		}
		return nil
	}, args...)
	return keys, total, err
}

// countTo counts rows as far as most; most + 1 means that there are more.
func countTo(ctx context.Context, tx Tx, from string, most int, args ...any) (n int, err error) {
	_, err = one(ctx, tx, `SELECT count(*) FROM (SELECT 1`+from+` {limit $`+strconv.Itoa(len(args)+1)+`}) n`, into(&n), append(slices.Clip(args), most+1)...)
	return n, err
}

func scanText(r Row) (text string, err error) {
	err = r.Scan(&text)
	return text, err
}

// SetSession changes the choices of persons for a session, which is created if needed; see
// store.Store.
func (s Sessions) SetSession(ctx context.Context, key chat.SessionKey, principal string, set store.SessionSettings) error {
	return s.db.Update(ctx, "change a session", func(ctx context.Context, tx Tx) error {
		if _, err := makeSession(ctx, tx, key, principal); err != nil {
			return err
		}
		var (
			mode  chat.QueueMode
			notes map[string]string
		)
		if _, err := one(ctx, tx, `SELECT mode, notes FROM sessions WHERE key = $1 {lock}`, into((*string)(&mode), jsonColumn{&notes}), key.String()); err != nil {
			return err
		}
		if set.Mode != nil {
			mode = *set.Mode
		}
		for name, value := range set.Notes {
			name, value = chat.CleanText(name), chat.CleanText(value)
			if notes[name] = value; value == "" {
				delete(notes, name)
			}
		}
		text, err := encode(notes)
		if err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE sessions SET mode = $2, notes = $3, updated_at = {now} WHERE key = $1`, nil, key.String(), string(mode), text)
	})
}

// GiveSession makes another principal the owner of a session; see store.Store.
func (s Sessions) GiveSession(ctx context.Context, key chat.SessionKey, from, to string) error {
	return s.db.Update(ctx, "give a session", func(ctx context.Context, tx Tx) error {
		n, err := tx.Exec(ctx, `UPDATE sessions SET principal = $3, updated_at = {now} WHERE key = $1 AND principal = $2`, key.String(), from, to)
		if err != nil || n == 0 {
			return err
		}
		return giveToc(ctx, tx, key.String(), to)
	})
}

// ResetSession archives the transcript and begins an empty one; see store.Store. The archive is
// every entry under another session_id.
func (s Sessions) ResetSession(ctx context.Context, p store.ResetParams) (store.Session, error) {
	if p.NewID == "" {
		return store.Session{}, chat.Errorf(chat.CodeInvalid, "a new transcript needs an id")
	}
	return result(ctx, s.db.Update, "reset a session", func(ctx context.Context, tx Tx) (out store.Session, err error) {
		id, err := idempotent(ctx, tx, p.IdempotencyKey, func() (string, error) {
			out, err = reset(ctx, tx, p)
			return out.SessionID, err
		})
		if out.SessionID == "" {
			out.Key, out.SessionID = p.Session, id
		}
		return out, err
	})
}

func reset(ctx context.Context, tx Tx, p store.ResetParams) (store.Session, error) {
	first, err := makeSession(ctx, tx, p.Session, p.Principal)
	if err != nil {
		return store.Session{}, err
	}
	before := ""
	if _, err := one(ctx, tx, `SELECT session_id FROM sessions WHERE key = $1 {lock}`, into(&before), p.Session.String()); err != nil {
		return store.Session{}, err
	}
	if before != p.NewID {
		if err := tx.Later(ctx, `UPDATE sessions SET session_id = $2, updated_at = {now} WHERE key = $1`, nil, p.Session.String(), p.NewID); err != nil {
			return store.Session{}, err
		}
		if before == first { // it was created by this call
			before = ""
		}
		if err := audit(ctx, tx, p.Audit.Between(before, p.NewID), p.Session.String()); err != nil {
			return store.Session{}, err
		}
	}
	return readSession(ctx, tx, p.Session)
}

// sessionRow has the columns of a session that operations on its messages need. They read it once,
// under its lock, change it in memory and write it back.
type sessionRow struct {
	key, id, principal, mode, lane string
	owner                          string
	ownerAlive                     bool
	epoch                          int64
	lastSeq, takenSeq, doneSeq     int64
	stopSeq, waiting, runLimit     int64
	debounceUntil, lastMessageAt   int64
	transcriptSeq                  int64
	notes                          map[string]string
}

const (
	// lockRowsSQL waits for locks, in one order. The rows are then read by a further statement,
	// which sees the current state of the nodes.
	lockRowsSQL = `SELECT key FROM sessions WHERE key {in $1} ORDER BY key {lock}`

	// rowsSQL and rowSQL lock the rows that they read. They skip rows that another transaction has
	// locked.
	readRows = `SELECT s.key, s.session_id, s.principal, s.mode, s.lane, COALESCE(s.owner, ''),
			COALESCE((SELECT n.lease_until > {now} FROM nodes n WHERE n.id = s.owner), false), s.epoch,
			s.last_seq, s.taken_seq, s.done_seq, s.stop_seq, s.waiting, s.run_limit, s.debounce_until, s.last_message_at, s.transcript_seq, s.notes, {now}
		FROM sessions s WHERE `
	rowsSQL = readRows + `s.key {in $1} {skip}`
	rowSQL  = readRows + `s.key = $1 {skip}`

	saveRowsSQL = `{set key text, lane text, owner text, epoch int, last int, taken int, done int, waiting int, runs int, hold int, message int, entry int}
		UPDATE sessions AS s SET lane = v.lane, owner = NULLIF(v.owner, ''), epoch = v.epoch, last_seq = v.last, taken_seq = v.taken, done_seq = v.done,
			waiting = v.waiting, run_limit = v.runs, debounce_until = v.hold, last_message_at = v.message, transcript_seq = v.entry, updated_at = {now}
		{from} WHERE s.key = v.key`

	endStoppingOfDeadSQL = `UPDATE runs SET state = 'stopped', ended_at = {now} WHERE ended_at IS NULL AND state IN ('running', 'stopping', 'yielded')
		AND state = 'stopping' AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = runs.owner AND n.lease_until > {now})`
)

// ErrAgain means that another transaction has changed a row on which this one relies. The engine
// runs it again.
var ErrAgain = errors.New("another transaction was faster")

// sessionRows are the rows of locked sessions, by key, and the clock.
type sessionRows struct {
	rows map[string]*sessionRow
	now  int64
}

// lockRows locks sessions and reads them; the rows are available after the next Query. With wait it
// waits for locks, else it skips rows that another transaction has locked.
func lockRows(ctx context.Context, tx Tx, keys []string, wait bool) (*sessionRows, error) {
	l := &sessionRows{rows: make(map[string]*sessionRow, len(keys))}
	if wait && tx.PerEngine("locks", "") != "" {
		if err := tx.Later(ctx, lockRowsSQL, nil, keys); err != nil {
			return nil, err
		}
	}
	text, arg := rowsSQL, any(keys)
	if len(keys) == 1 { // the usual case needs no list
		text, arg = rowSQL, keys[0]
	}
	return l, tx.Later(ctx, text, func(r Row) error {
		s := &sessionRow{}
		err := r.Scan(&s.key, &s.id, &s.principal, &s.mode, &s.lane, &s.owner, &s.ownerAlive, &s.epoch, &s.lastSeq, &s.takenSeq, &s.doneSeq,
			&s.stopSeq, &s.waiting, &s.runLimit, &s.debounceUntil, &s.lastMessageAt, &s.transcriptSeq, jsonColumn{&s.notes}, &l.now)
		l.rows[s.key] = s
		return err
	}, arg)
}

// heldBy returns the session of a claim; nil when the claim does not hold.
func (l *sessionRows) heldBy(c store.Claim) *sessionRow {
	r := l.rows[c.Session.String()]
	if r == nil || r.owner != c.Node || r.epoch != c.Epoch || !r.ownerAlive {
		return nil
	}
	return r
}

// idle reports that every message has an outcome.
func (r *sessionRow) idle() bool { return r.doneSeq == r.lastSeq }

// settle updates done_seq; oldest is the first message without an outcome, 0 when none exists.
func (r *sessionRow) settle(oldest int64) {
	r.doneSeq = r.lastSeq
	if oldest > 0 {
		r.doneSeq = oldest - 1
	}
	r.takenSeq = max(r.takenSeq, r.doneSeq)
}

// release ends the ownership of the session when no work is left: no message without an outcome,
// and no goroutine that may still write.
func (r *sessionRow) release(active int64) bool {
	if !r.idle() || active > 0 {
		return false
	}
	r.owner = ""
	return true
}

// values are the row for saveRowsSQL.
func (r *sessionRow) values() []any {
	return []any{
		r.key, r.lane, r.owner, r.epoch, r.lastSeq, r.takenSeq, r.doneSeq, r.waiting, r.runLimit, r.debounceUntil, r.lastMessageAt, r.transcriptSeq,
	}
}

func saveRows(ctx context.Context, tx Tx, rows ...*sessionRow) error {
	if len(rows) == 0 {
		return nil
	}
	set := make(Set, len(rows))
	for i, r := range rows {
		set[i] = r.values()
	}
	return tx.Later(ctx, saveRowsSQL, nil, set)
}

const (
	// restSQL is the remaining work of sessions besides a run: the oldest message without an
	// outcome that is not part of the run, and how many other runs are running or stopping.
	restSQL = `{set key text, run text}
		SELECT v.key, COALESCE((SELECT min(i.seq) FROM inbox i WHERE i.session_key = v.key AND i.ended_at IS NULL AND i.state <> 'done'
				AND NOT (i.state = 'running' AND COALESCE(i.run_id, '') = v.run)), 0),
			(SELECT count(*) FROM runs r WHERE r.session_key = v.key AND r.ended_at IS NULL AND r.state IN ('running', 'stopping', 'yielded') AND r.id <> v.run)
		{from}`
	restOnSQLite = `{set key text, run text}
		SELECT v.key, COALESCE((SELECT min(i.seq) FROM inbox i INDEXED BY inbox_unfinished WHERE i.session_key = v.key AND i.state <> 'done'
				AND NOT (i.state = 'running' AND COALESCE(i.run_id, '') = v.run)), 0),
			(SELECT count(*) FROM runs r INDEXED BY runs_open WHERE r.session_key = v.key AND r.state IN ('running', 'stopping', 'yielded') AND r.id <> v.run)
		{from}`
)

// rest is the remaining work of a session besides a run.
type rest struct{ oldest, active int64 }

// readRest reads the remaining work of sessions besides their runs; each row of the set is (key,
// run).
func readRest(ctx context.Context, tx Tx, of Set) (map[string]rest, error) {
	left := make(map[string]rest, len(of))
	return left, tx.Later(ctx, tx.PerEngine(restSQL, restOnSQLite), func(r Row) error {
		var (
			key string
			v   rest
		)
		err := r.Scan(&key, &v.oldest, &v.active)
		left[key] = v
		return err
	}, of)
}

// ending is the outcome of messages that wait.
type ending struct {
	outcome chat.Outcome
	reason  string
	notice  *store.Outgoing // nil when no notice is sent
}

const endMessagesSQL = `{set seq int} UPDATE inbox AS i SET state = 'done', outcome = $2, reason = $3, ended_at = {now}, notice_id = COALESCE(CAST($4 AS text), notice_id)
	{from} WHERE i.session_key = $1 AND i.seq = v.seq`

// endMessages gives waiting messages of a session their outcome, in the table and in the list, adds
// the notice, and ends the job runs that they belonged to. The session is locked.
func endMessages(ctx context.Context, tx Tx, session string, list []store.Waiting, e ending) error {
	if len(list) == 0 {
		return nil
	}
	notice, err := notify(ctx, tx, session, e.notice, len(list))
	if err != nil {
		return err
	}
	set := make(Set, len(list))
	for i := range list {
		m := &list[i]
		m.State, m.Outcome, m.Reason = store.StateDone, e.outcome, chat.CleanText(e.reason)
		set[i] = []any{m.Seq}
	}
	if err := tx.Later(ctx, endMessagesSQL, nil, session, string(e.outcome), e.reason, null(notice), set); err != nil {
		return err
	}
	return endRunsOf(ctx, tx, list)
}

// EndWaiting gives waiting messages an outcome; see store.Store.
func (s Inbox) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	if p.Outcome == "" {
		return nil, chat.Errorf(chat.CodeInvalid, "a message that ends needs an outcome")
	}
	return result(ctx, s.db.Update, "end waiting messages", func(ctx context.Context, tx Tx) ([]store.Waiting, error) {
		key := p.Session.String()
		if _, err := lockRows(ctx, tx, []string{key}, true); err != nil {
			return nil, err
		}
		list, err := all(ctx, tx, messagesSQL, scanMessage, key, p.Seqs)
		if err != nil {
			return nil, err
		}
		var before, ended []store.Waiting
		for _, m := range list {
			switch {
			case m.State == store.StateWaiting:
				ended = append(ended, m)
			case (p.Again || tx.Repeated()) && m.State == store.StateDone && m.Outcome == p.Outcome && m.Reason == chat.CleanText(p.Reason):
				before = append(before, m)
			}
		}
		if err := endRunsOf(ctx, tx, before); err != nil {
			return nil, err
		}
		if len(ended) == 0 {
			return before, nil
		}
		if err := endMessages(ctx, tx, key, ended, ending{p.Outcome, p.Reason, p.Notice}); err != nil {
			return nil, err
		}
		return slices.Concat(before, ended), settle(ctx, tx, []string{key})
	})
}

// AgentSessions are the sessions that agents keep of conversations.
type AgentSessions struct{ db Engine }

const agentSessionSQL = `SELECT a.agent_session, a.runs, a.seen, a.used_input, a.used_output, a.used_cached, a.dir, a.host, a.pid, a.pid_started
	FROM agent_sessions a JOIN sessions s ON s.key = a.session_key AND s.session_id = a.transcript WHERE a.session_key = $1`

// AgentSession reads a session of an agent; see store.Store.
func (s AgentSessions) AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error) {
	found, err := list(ctx, s.db, query{"read the session of an agent", agentSessionSQL, []any{key.String()}}, func(r Row) (a chat.AgentSession, err error) {
		var runs string
		err = r.Scan(&a.ID, &runs, &a.Seen, &a.Used.InputTokens, &a.Used.OutputTokens, &a.Used.CachedTokens, &a.Dir, &a.Host, &a.PID, &a.PIDStarted)
		a.Runs = strings.Fields(runs)
		return a, err
	})
	if err != nil || len(found) == 0 {
		return chat.AgentSession{}, err
	}
	return found[0], nil
}

const putAgentSessionSQL = `INSERT INTO agent_sessions (session_key, transcript, agent_session, runs, seen, used_input, used_output, used_cached, dir, host, pid, pid_started, updated_at)
	SELECT key, session_id, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {now} FROM sessions WHERE key = $1
	ON CONFLICT (session_key) DO UPDATE SET
		transcript = CASE WHEN agent_sessions.agent_session = excluded.agent_session THEN agent_sessions.transcript ELSE excluded.transcript END,
		agent_session = excluded.agent_session, runs = excluded.runs, seen = excluded.seen,
		used_input = excluded.used_input, used_output = excluded.used_output, used_cached = excluded.used_cached, dir = excluded.dir,
		host = excluded.host, pid = excluded.pid, pid_started = excluded.pid_started, updated_at = excluded.updated_at`

// PutAgentSession stores a session of an agent; see store.Store.
func (s AgentSessions) PutAgentSession(ctx context.Context, key chat.SessionKey, a chat.AgentSession) error {
	return s.db.Update(ctx, "keep the session of an agent", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, putAgentSessionSQL, key.String(), a.ID, strings.Join(a.Runs, " "), a.Seen, a.Used.InputTokens, a.Used.OutputTokens, a.Used.CachedTokens,
			a.Dir, a.Host, a.PID, a.PIDStarted)
		return err
	})
}
