package sqlstore

import (
	"context"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// Inbox is the life of messages from their acceptance to their outcome.
type Inbox struct {
	db   Engine
	cron Cron

	accepts  *together[*acceptOp]
	starts   *together[*startOp]
	finishes *together[*finishOp]
}

func newInbox(db Engine, jobs Cron) Inbox {
	s := Inbox{db: db, cron: jobs}
	s.accepts = newTogether(db, "accept a message", s.acceptAll)
	s.starts = newTogether(db, "start a run", s.startAll)
	s.finishes = newTogether(db, "finish a run", s.finishAll)
	return s
}

// EndGroups waits for the shared transactions and prevents new ones.
func (s Inbox) EndGroups() {
	s.accepts.close()
	s.starts.close()
	s.finishes.close()
}

const (
	// messageColumns are the columns that scanMessage reads.
	messageColumns = `session_key, seq, COALESCE(message_id, ''), state, COALESCE(outcome, ''), reason, COALESCE(run_id, ''),
		COALESCE(merged_into, 0), lane, principal, channel, external_id, body, accepted_at`

	messagesSQL = `SELECT ` + messageColumns + ` FROM inbox WHERE session_key = $1 AND seq {ints $2} ORDER BY seq`

	// queuedFrom are the waiting messages of a session $1.
	queuedFrom = ` FROM inbox WHERE session_key = $1 AND {open} AND state <> 'running'`

	// queuedRowsSQL reads what a decision about them needs. The bound of the numbers is what ended
	// before: PostgreSQL would otherwise read its dead entries in the index. $2 done_seq.
	queuedRowsSQL = `SELECT seq, COALESCE(run_id, ''), sender, thread, lane, mode, flags, size, accepted_at, CASE WHEN flags < 0 THEN body ELSE '{}' END` +
		queuedFrom + ` AND seq > $2 ORDER BY seq`
	turnsNowSQL = `SELECT count(*) FROM runs {by runs_open} WHERE session_key = $1 AND {running}`

	// filesOfRunsSQL reads the messages in the range of the runs. $1 session, $2 runs, $3
	// joinedAhead.
	filesOfRunsSQL = `WITH named AS MATERIALIZED (SELECT id, seq_from, seq_to FROM runs WHERE session_key = $1 AND id {in $2})
		SELECT run_id, {json body} ->> 'attachments' FROM inbox
		WHERE session_key = $1 AND seq BETWEEN (SELECT min(seq_from) FROM named) AND (SELECT max(seq_to) FROM named) + $3
			AND run_id IN (SELECT id FROM named) AND {json body} ->> 'attachments' IS NOT NULL
		ORDER BY seq`

	// runColumns are the columns that scanRun reads.
	runColumns = `id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, crashes, state, cause, error, detail, COALESCE(stop_by, ''), preview,
		outside, program, queued_at, started_at, ended_at, input_tokens, output_tokens, model, provider`
)

func scanMessage(r Row) (m store.Waiting, err error) {
	err = r.Scan(messageTargets(&m)...)
	return m, err
}

// messageTargets are the scan targets for messageColumns.
func messageTargets(m *store.Waiting) []any {
	return []any{
		keyColumn{&m.Session},
		&m.Seq, &m.MessageID, &m.State, (*string)(&m.Outcome), &m.Reason, &m.RunID, &m.MergedInto, &m.Lane, &m.Principal, &m.Channel,
		&m.ExternalID,
		jsonColumn{&m.Content},
		instant{&m.AcceptedAt},
	}
}

// runRow is a run with the transcript to which it writes.
type runRow struct {
	store.Run

	transcript string
}

func scanRun(r Row) (u runRow, err error) {
	err = r.Scan(&u.ID, keyColumn{&u.Session}, &u.transcript, &u.SeqFrom, &u.SeqTo, &u.Lane, &u.Owner, &u.Epoch, &u.Attempt, &u.Crashes,
		&u.State, &u.Cause, &u.Error, &u.Detail, &u.StopBy, &u.Preview, &u.Outside, jsonColumn{&u.Program}, instant{&u.QueuedAt}, instant{&u.StartedAt}, instant{&u.EndedAt},
		&u.Usage.InputTokens, &u.Usage.OutputTokens, &u.Usage.Model, &u.Usage.Provider)
	return u, err
}

// first reads the first row of a query; chat.ErrNotFound when the query has no rows.
func first[T any](ctx context.Context, db Engine, q query, scan func(Row) (T, error)) (v T, err error) {
	err = db.View(ctx, q.doing, func(ctx context.Context, tx Tx) error {
		found, err := one(ctx, tx, q.text, func(r Row) (err error) { v, err = scan(r); return err }, q.args...)
		if err == nil && !found {
			err = chat.ErrNotFound
		}
		return err
	})
	return v, err
}

// MessageByID finds a message by its id; chat.ErrNotFound.
func (s Inbox) MessageByID(ctx context.Context, id string) (store.Waiting, error) {
	return first(ctx, s.db, query{"find a message", `SELECT ` + messageColumns + ` FROM inbox WHERE message_id = $1`, []any{id}}, scanMessage)
}

// RunByID reads a run; chat.ErrNotFound.
func (s Inbox) RunByID(ctx context.Context, id string) (store.Run, error) {
	u, err := first(ctx, s.db, query{"find a run", `SELECT ` + runColumns + ` FROM runs WHERE id = $1`, []any{id}}, scanRun)
	return u.Run, err
}

// FilesOfRuns lists the files of the messages of runs; see store.Store.
func (s Inbox) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (found map[string][]chat.Attachment, err error) {
	err = s.db.List(ctx, "list files of messages", func(ctx context.Context, tx Tx) error {
		found = make(map[string][]chat.Attachment, len(runs))
		return tx.Query(ctx, filesOfRunsSQL, func(r Row) error {
			var (
				run   string
				files []chat.Attachment
			)
			err := r.Scan(&run, jsonColumn{&files})
			found[run] = append(found[run], files...)
			return err
		}, key.String(), runs, joinedAhead)
	})
	return found, err
}

// PendingInputs lists the waiting messages of a session, oldest first, and counts them as far as
// chat.Counted.
func (s Inbox) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) (list []store.Waiting, total int, err error) {
	err = s.db.List(ctx, "list waiting messages", func(ctx context.Context, tx Tx) (err error) {
		if total, err = countTo(ctx, tx, queuedFrom, chat.Counted, key.String()); err != nil {
			return err
		}
		list, err = readPage(ctx, tx, page{
			columns: messageColumns, rows: `SELECT *, octet_length(body) AS page_size` + queuedFrom + ` AND seq > $2 ORDER BY seq {limit $3}`,
			args: []any{key.String(), after, max(limit, 0)},
		}, scanMessage)
		return err
	})
	return list, total, err
}

// WaitingOf counts the messages of a principal that wait in sessions of a node.
func (s Inbox) WaitingOf(ctx context.Context, nodeID, principal string, most int) (n int, err error) {
	err = s.db.List(ctx, "count waiting messages", func(ctx context.Context, tx Tx) (err error) {
		n, err = countTo(ctx, tx, waitingOfFrom, most, principal, nodeID)
		return err
	})
	return n, err
}

const (
	// waitingOfFrom are the waiting messages of a principal $1 in sessions of a node $2.
	waitingOfFrom = ` FROM inbox i {by inbox_principal} JOIN sessions s ON s.key = i.session_key
		WHERE i.principal = $1 AND {open i} AND i.state <> 'running' AND s.owner = $2`

	// makeRowsSQL creates sessions that do not exist, unless the message was accepted before: a
	// duplicate whose session was deleted must not create a new session. A session whose
	// predecessor was deleted continues with its numbers, so that no message, claim or run from
	// before the deletion matches the new session.
	makeRowsSQL = `{set key text, agent text, principal text, id text, lane text, message text, dedupe text}
		INSERT INTO sessions (key, agent, principal, session_id, lane, epoch, last_seq, taken_seq, done_seq, created_at, updated_at)
		SELECT v.key, v.agent, v.principal, v.id, v.lane, COALESCE(g.epoch, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), o.now, o.now
		FROM (SELECT {now} AS now) o {and} LEFT JOIN tombstones g ON g.key = v.key
		WHERE NOT EXISTS (SELECT 1 FROM inbox d WHERE d.message_id = v.message) AND NOT EXISTS (SELECT 1 FROM inbox d WHERE d.dedupe = v.dedupe)
			AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.key = v.key)
		ON CONFLICT (key) DO NOTHING`

	acceptedSQL = `SELECT i.session_key, i.seq, COALESCE(i.message_id, ''), i.state, COALESCE(i.outcome, ''), i.reason, COALESCE(i.run_id, ''),
			COALESCE(i.merged_into, 0), i.lane, i.principal, i.channel, i.external_id, i.body, i.accepted_at,
			COALESCE(i.dedupe, ''), i.params_hash, i.node, COALESCE(s.owner, ''), COALESCE(s.epoch, 0), COALESCE(s.session_id, ''), COALESCE(s.principal, ''),
			COALESCE(s.mode, '')
		FROM inbox i LEFT JOIN sessions s ON s.key = i.session_key WHERE i.message_id {in $1} OR i.dedupe {in $2}`

	ownSQL = `{set key text, principal text} UPDATE sessions AS s SET principal = v.principal {from} WHERE s.key = v.key`

	// takersSQL are the nodes that may take sessions of their agents.
	takersSQL = `SELECT id, agents FROM nodes WHERE id {in $1} AND lease_until > {now} AND NOT draining`

	addMessagesSQL = `{set key text, seq int, id text, dedupe text, hash text, channel text, external int, principal text, sender text, body text, lane text,
			thread text, mode text, flags int, size int, state text, outcome text, reason text, node text, done bool}
		INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane,
			thread, mode, flags, size, state, outcome, reason, node, accepted_at, ended_at)
		SELECT v.key, v.seq, v.id, NULLIF(v.dedupe, ''), v.hash, v.channel, v.external, v.principal, v.sender, v.body, v.lane,
			v.thread, v.mode, v.flags, v.size, v.state, NULLIF(v.outcome, ''), v.reason, v.node, {now}, CASE WHEN v.done THEN {now} END {from} WHERE true`
)

// Accept makes a message durable; see store.Store.
func (s Inbox) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	o, err := newAcceptOp(p)
	if err != nil {
		return store.Accepted{}, err
	}
	if err := s.accepts.do(ctx, o, len(o.body)); err != nil {
		return store.Accepted{}, err
	}
	return o.out, nil
}

// The bits of the column flags.
const (
	flagTyped = 1 << iota
	flagAlone
	flagGathers
)

// flagsOf is the column flags of a message.
func flagsOf(r *scheduler.Row) (flags int64) {
	if r.Typed {
		flags |= flagTyped
	}
	if r.Alone {
		flags |= flagAlone
	}
	if r.Gathers {
		flags |= flagGathers
	}
	return flags
}

// scanQueued reads a row of queuedRowsSQL after other columns. That of an older version has its
// columns in the body.
func scanQueued(r Row, before ...any) (m scheduler.Row, err error) {
	var (
		flags int64
		body  chat.Content
	)
	err = r.Scan(append(before, &m.Seq, &m.RunID, &m.Sender, &m.Thread, &m.Lane, (*string)(&m.Mode), &flags, &m.Size, instant{&m.Accepted}, jsonColumn{&body})...)
	if flags < 0 {
		w := store.Waiting{Seq: m.Seq, RunID: m.RunID, Lane: m.Lane, AcceptedAt: m.Accepted, Content: body}
		return w.Row(), err
	}
	m.Typed, m.Alone, m.Gathers = flags&flagTyped != 0, flags&flagAlone != 0, flags&flagGathers != 0
	return m, err
}

// acceptOp is one Accept in progress.
type acceptOp struct {
	p         store.AcceptParams
	row       scheduler.Row
	body      string
	sessionID string // of the session if it is new
	out       store.Accepted
}

func newAcceptOp(p store.AcceptParams) (o *acceptOp, err error) {
	if p.Message.ID == "" || p.Message.Session.IsZero() {
		return nil, chat.Errorf(chat.CodeInvalid, "a message needs an id and a session")
	}
	if p.Unqueued {
		p.Take, p.Queue = false, scheduler.Settings{}
	}
	o = &acceptOp{p: p, row: store.RowOf(&p.Message.Content, p.Message.Lane)}
	if o.body, err = encode(p.Message.Content); err != nil {
		return nil, err
	}
	o.sessionID, err = newID()
	return o, err
}

// Name implements operation.
func (o *acceptOp) Name() string { return o.p.Message.Session.String() }

// AcceptOn is Accept in a transaction.
func (s Inbox) AcceptOn(ctx context.Context, tx Tx, p store.AcceptParams) (store.Accepted, error) {
	o, err := newAcceptOp(p)
	if err != nil {
		return store.Accepted{}, err
	}
	_, err = s.acceptAll(ctx, tx, []*acceptOp{o}, true)
	return o.out, err
}

// accepting is one transaction of accepts.
type accepting struct {
	tx       Tx
	alone    bool
	sessions *sessionRows
	known    []knownMessage
	takers   map[string]chat.NodeStatus

	messages Set
	changed  []*sessionRow
	owned    Set  // sessions that get an owner, with it
	dead     bool // the owner of a session is dead
}

// knownMessage is a message that was accepted before, with the current state of its session.
type knownMessage struct {
	store.Accepted

	dedupe, hash, node string
}

func (s Inbox) acceptAll(ctx context.Context, tx Tx, ops []*acceptOp, alone bool) (done []bool, err error) {
	a := &accepting{tx: tx, alone: alone, takers: map[string]chat.NodeStatus{}}
	if err := a.read(ctx, ops); err != nil {
		return nil, err
	}
	done = make([]bool, len(ops))
	for i, o := range ops {
		o.out = store.Accepted{}
		if done[i], err = a.accept(ctx, o); err != nil {
			return nil, err
		}
	}
	return done, a.write(ctx)
}

// read creates and locks the sessions and reads what the decisions need, in one round trip.
func (a *accepting) read(ctx context.Context, ops []*acceptOp) (err error) {
	var (
		keys, ids, dedupes, nodes []string
		rows                      Set
	)
	for _, o := range ops {
		m := &o.p.Message
		keys, ids = append(keys, o.Name()), append(ids, m.ID)
		if m.Dedupe != "" {
			dedupes = append(dedupes, m.Dedupe)
		}
		if o.p.Take {
			nodes = append(nodes, o.p.Node)
		}
		if m.Branch == nil || a.alone { // a branch may be refused, and its session must then not remain: it is created in a transaction of its own
			rows = append(rows, []any{o.Name(), m.Session.Agent, m.Owner(), o.sessionID, m.Lane, m.ID, m.Dedupe})
		}
	}
	// Sorted, because two transactions that create the same sessions in different orders would
	// deadlock.
	slices.SortFunc(rows, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) }) //nolint:forcetypeassert,errcheck // the keys
	if len(rows) > 0 {
		if err := a.tx.Later(ctx, makeRowsSQL, nil, rows); err != nil {
			return err
		}
	}
	if a.sessions, err = lockRows(ctx, a.tx, keys, a.alone); err != nil {
		return err
	}
	if len(nodes) > 0 {
		err := a.tx.Later(ctx, takersSQL, func(r Row) error {
			var n chat.NodeStatus
			err := r.Scan(&n.ID, jsonColumn{&n.Agents})
			a.takers[n.ID] = n
			return err
		}, nodes)
		if err != nil {
			return err
		}
	}
	a.known, err = all(ctx, a.tx, acceptedSQL, scanKnown, ids, dedupes)
	return err
}

func scanKnown(r Row) (k knownMessage, err error) {
	old := &k.Existing
	err = r.Scan(append(messageTargets(old), &k.dedupe, &k.hash, &k.node, &k.Owner, &k.Epoch, &k.SessionID, &k.Principal, (*string)(&k.Mode))...)
	k.Duplicate, k.Seq, k.AcceptedAt = true, old.Seq, old.AcceptedAt
	return k, err
}

// duplicateOf finds the message that was accepted before; the dedupe key takes precedence over the
// id.
func (a *accepting) duplicateOf(m *chat.Message) *knownMessage {
	var same *knownMessage
	for i := range a.known {
		switch k := &a.known[i]; {
		case m.Dedupe != "" && k.dedupe == m.Dedupe:
			return k
		case k.Existing.MessageID == m.ID:
			same = k
		}
	}
	return same
}

// duplicate is the result for a message that was accepted before. When a repeated transaction finds
// the message of its own call, it is not a duplicate: the caller has not received a result yet.
func (a *accepting) duplicate(o *acceptOp, k *knownMessage) error {
	m := &o.p.Message
	if k.dedupe != m.Dedupe || k.hash != "" && m.ParamsHash != "" && k.hash != m.ParamsHash {
		return chat.ErrKeyReused
	}
	o.out = k.Accepted
	o.out.Mine = k.Owner != "" && k.Owner == o.p.Node
	if a.tx.Repeated() && k.Existing.MessageID == m.ID && k.node == o.p.Node {
		o.out.Duplicate, o.out.Existing = false, store.Waiting{}
	}
	return nil
}

// accept decides about one message. Among several, it leaves unusual ones to a transaction of their
// own.
func (a *accepting) accept(ctx context.Context, o *acceptOp) (done bool, err error) {
	p := &o.p
	if k := a.duplicateOf(&p.Message); k != nil {
		err := a.duplicate(o, k)
		if err != nil && !a.alone {
			return false, nil
		}
		return err == nil, err
	}
	r := a.sessions.rows[o.Name()]
	own := r != nil && (r.principal == p.Message.Principal || !p.Own && !p.Named)
	if a.alone && !own && r != nil && !p.Own {
		var names takenNames
		names.ask(p.Message.Session, p.Message.Principal, p.Message.Principal)
		if err := names.read(ctx, a.tx); err != nil {
			return false, err
		}
		own = !names.has(p.Message.Session, p.Message.Principal)
	}
	displaces := r != nil && !p.Unqueued && p.Queue.MayDisplace(&o.row, scheduler.QueueMode(r.mode), r.waiting)
	switch {
	case !a.alone && (!own || displaces):
		return false, nil
	case r == nil: // it was deleted between the statements
		return false, ErrAgain
	case !own:
		return false, chat.ErrSessionNotFound
	}
	o.out.Created, o.out.Behind = r.id == o.sessionID, int(r.waiting)
	if at := p.Message.Branch; at != nil && o.out.Created {
		if err := branch(ctx, a.tx, r, at); err != nil {
			return false, err
		}
	}
	if displaces {
		if err := a.makeRoom(ctx, o, r); err != nil {
			return false, err
		}
	}
	a.admit(o, r)
	return true, nil
}

// makeRoom refuses the new message, or ends the messages that it displaces.
func (a *accepting) makeRoom(ctx context.Context, o *acceptOp, r *sessionRow) error {
	st := scheduler.SessionState{Mode: scheduler.QueueMode(r.mode)}
	if err := a.tx.Later(ctx, turnsNowSQL, into(&st.Running), r.key); err != nil {
		return err
	}
	waiting, err := all(ctx, a.tx, queuedRowsSQL, func(r Row) (scheduler.Row, error) { return scanQueued(r) }, r.key, r.doneSeq)
	if err != nil {
		return err
	}
	m := o.row
	m.Seq, m.Accepted = r.lastSeq+1, fromMillis(a.sessions.now)
	d := scheduler.Admit(waiting, &m, o.p.Queue, st)
	switch {
	case d.Refused:
		return chat.ErrQueueFull
	case len(d.Ended) == 0:
		return nil
	}
	ended, err := all(ctx, a.tx, messagesSQL, scanMessage, r.key, d.Ended)
	if err != nil {
		return err
	}
	e := ending{outcome: chat.OutcomeDropped, reason: string(chat.FailQueueFull), notice: o.p.DropNotice}
	if d.Superseded {
		e = ending{outcome: chat.OutcomeSuperseded, reason: store.ReasonSuperseded}
	}
	if err := endMessages(ctx, a.tx, r.key, ended, e); err != nil {
		return err
	}
	if d.Superseded {
		o.out.Superseded = ended
	} else {
		o.out.Dropped = ended
	}
	r.waiting -= int64(len(ended))
	var oldest int64
	_, err = one(ctx, a.tx, `SELECT COALESCE(min(seq), 0) FROM inbox WHERE session_key = $1 AND {open}`, into(&oldest), r.key)
	r.settle(oldest)
	return err
}

// admit adds the message to the session. The accepting node becomes the owner of a session of one
// of its agents that no live node owns. A session with older unfinished messages is left to the
// sweep, which alone moves all of them and the runs that have begun to the new owner.
func (a *accepting) admit(o *acceptOp, r *sessionRow) {
	p, m, now := &o.p, &o.p.Message, a.sessions.now
	state, outcome, reason := store.StateWaiting, "", ""
	switch idle := r.idle(); {
	case p.Unqueued:
		state, outcome, reason = store.StateDone, string(chat.OutcomeAnswered), store.ReasonCommand
		if idle {
			r.doneSeq++
			r.takenSeq = max(r.takenSeq, r.doneSeq)
		}
	default:
		if taker, ok := a.takers[p.Node]; ok && p.Take && idle && !r.ownerAlive && taker.Has(m.Session.Agent) {
			a.dead = a.dead || r.owner != ""
			r.owner, r.ownerAlive = p.Node, true
			r.epoch++
		}
		r.waiting++
		r.runLimit = int64(max(p.Queue.MaxConcurrent, 1))
		if o.row.Typed && p.Queue.Debounce > 0 {
			r.debounceUntil = max(r.debounceUntil, now+span(p.Queue.Debounce))
		}
	}
	if r.principal == "" && r.lastSeq == 0 { // a delivery has created it: its first writer owns it
		r.principal, a.owned = m.Principal, append(a.owned, []any{r.key, m.Principal})
	}
	r.lastSeq++
	r.lane, r.lastMessageAt = m.Lane, now
	a.messages = append(a.messages, []any{
		r.key, r.lastSeq, m.ID, m.Dedupe, m.ParamsHash, m.Channel, m.ExternalID, m.Principal, o.row.Sender, o.body, m.Lane,
		o.row.Thread, string(o.row.Mode), flagsOf(&o.row), o.row.Size, state, outcome, reason, p.Node, p.Unqueued,
	})
	a.changed = append(a.changed, r)
	out := &o.out
	out.Seq, out.AcceptedAt = r.lastSeq, fromMillis(now)
	out.Owner, out.Epoch, out.Mine = r.owner, r.epoch, r.owner != "" && r.owner == p.Node
	out.SessionID, out.Principal, out.Mode = r.id, r.principal, chat.QueueMode(r.mode)
}

func (a *accepting) write(ctx context.Context) error {
	if len(a.messages) == 0 {
		return nil
	}
	if a.dead { // a run that a dead owner was stopping no longer has a goroutine
		if err := a.tx.Later(ctx, endStoppingOfDeadSQL, nil); err != nil {
			return err
		}
	}
	if err := a.tx.Later(ctx, addMessagesSQL, nil, a.messages); err != nil {
		return err
	}
	if len(a.owned) > 0 {
		if err := a.tx.Later(ctx, ownSQL, nil, a.owned); err != nil {
			return err
		}
	}
	return saveRows(ctx, a.tx, a.changed...)
}
