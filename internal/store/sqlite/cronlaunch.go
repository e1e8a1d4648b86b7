package sqlite

import (
	"context"
	"errors"
	"strconv"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// launching is a run whose message is to be stored. row is its ledger row when it has one: a further attempt.
type launching struct {
	run     cron.Run
	message chat.Message
	row     *ledgerRow
	key     string // of the session
}

// launcher makes messages of runs, for one node, within one operation.
type launcher struct {
	*tx
	node string
	// free: the node is alive and not draining, so it may own sessions that have no live owner.
	free bool
	// sessions that exist or existed; all others need no statement
	sessions map[string]bool
}

// newLauncher looks up all sessions of a list with one statement: usually every run has a session of its own, which is new.
func (t *tx) newLauncher(ctx context.Context, node string, list []*launching) (*launcher, error) {
	l := &launcher{tx: t, node: node, sessions: map[string]bool{}}
	err := t.one(ctx, `SELECT count(*) FROM nodes WHERE id = ? AND lease_until > ? AND draining = 0`, node, t.now).Scan(&l.free)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(list))
	for _, it := range list {
		it.key = it.message.Session.String()
		keys = append(keys, it.key)
	}
	names, err := encode(keys)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `
		SELECT key FROM sessions WHERE key IN (SELECT value FROM json_each(?1))
		UNION ALL SELECT key FROM tombstones WHERE key IN (SELECT value FROM json_each(?1))`, names)
	found, err := collect(rows, err, text)
	for _, key := range found {
		l.sessions[key] = true
	}
	return l, err
}

// launchAll makes ledger rows and messages of the runs that do not exist yet.
func (t *tx) launchAll(ctx context.Context, node string, list []*launching) ([]cron.Launched, error) {
	list, err := t.unmade(ctx, list)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	l, err := t.newLauncher(ctx, node, list)
	if err != nil {
		return nil, err
	}
	out := make([]cron.Launched, 0, len(list))
	for _, it := range list {
		launched, ok, err := l.launch(ctx, it)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, launched)
		}
	}
	return out, nil
}

// unmade leaves out the runs that the ledger has. Further attempts have a row already.
func (t *tx) unmade(ctx context.Context, list []*launching) ([]*launching, error) {
	if len(list) == 0 {
		return nil, nil
	}
	ids := make([]string, 0, len(list))
	for _, it := range list {
		if it.row == nil {
			ids = append(ids, it.run.ID)
		}
	}
	names, err := encode(ids)
	if err != nil {
		return nil, err
	}
	rows, err := t.query(ctx, `SELECT id FROM cron_run_logs WHERE id IN (SELECT value FROM json_each(?))`, names)
	existing, err := collect(rows, err, text)
	if err != nil {
		return nil, err
	}
	var rest []*launching
	made := make(map[string]bool, len(list))
	for _, id := range existing {
		made[id] = true
	}
	for _, it := range list {
		if it.row == nil && made[it.run.ID] {
			continue
		}
		made[it.run.ID] = true
		rest = append(rest, it)
	}
	return rest, nil
}

// launch puts the message of one run into the inbox and writes the ledger. When another message has the id or key of the run's message, the
// run can never execute: it ends with an error that names the reason, and the other runs are launched.
func (l *launcher) launch(ctx context.Context, it *launching) (out cron.Launched, ok bool, err error) {
	m := &it.message
	switch {
	case m.Session.IsZero() || l.sessions[it.key]:
		out, ok, err = l.intoExisting(ctx, m)
	default:
		out, ok, err = l.intoNew(ctx, m)
	}
	if err != nil {
		return out, false, err
	}
	l.sessions[it.key] = true
	it.run.SessionKey, it.run.ClaimedAt, it.run.State = it.key, instant(l.now), cron.RunQueued
	it.run.Node = l.node
	if !ok {
		at := instant(l.now)
		it.run.State, it.run.Error, it.run.ErrorClass = cron.RunError, "the message "+m.ID+" cannot be stored: its id or key belongs to another message", "unknown"
		it.run.FinishedAt = at
	}
	out.Run, out.Message = it.run, *m
	return out, ok, l.note(ctx, it)
}

// note writes the ledger: a new row, or the next attempt of an existing one.
func (l *launcher) note(ctx context.Context, it *launching) error {
	switch {
	case it.row == nil && it.run.State == cron.RunQueued:
		return l.insertQueued(ctx, &it.run, it.message.ID)
	case it.row == nil:
		_, err := l.insertRun(ctx, &it.run, it.message.ID)
		return err
	}
	it.run.ClaimedAt = it.row.ClaimedAt
	it.row.Run, it.row.message = it.run, it.message.ID
	return l.storeRun(ctx, it.row)
}

// intoNew makes a session for one message: two rows, each written once with all its columns.
func (l *launcher) intoNew(ctx context.Context, m *chat.Message) (out cron.Launched, ok bool, err error) {
	in := incoming{AcceptParams: store.AcceptParams{Node: l.node, Message: *m}}
	if err := in.encode(); err != nil {
		return out, false, err
	}
	key := m.Session.String()
	fresh, err := l.insert(ctx, &in, &row{key: key})
	if err != nil || !fresh {
		return out, false, err
	}
	out = cron.Launched{Seq: 1, SessionID: newID()}
	if l.free {
		out.Owner, out.Epoch, out.Mine = l.node, 1, true
	}
	_, err = l.exec(ctx, `
		INSERT INTO sessions (key, agent, principal, session_id, lane, owner, epoch, last_seq, waiting, created_at, updated_at, last_message_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, 1, 1, ?, ?, ?)`,
		key, m.Session.Agent, m.Principal, out.SessionID, m.Lane, null(out.Owner), out.Epoch, l.now, l.now, l.now)
	return out, true, err
}

// intoExisting accepts the message as Accept does, without a bound of the queue.
func (l *launcher) intoExisting(ctx context.Context, m *chat.Message) (out cron.Launched, ok bool, err error) {
	if m.ID == "" || m.Session.IsZero() {
		return out, false, nil
	}
	in := incoming{AcceptParams: store.AcceptParams{Node: l.node, Take: l.free, Message: *m}, keepSettings: true}
	if err := in.encode(); err != nil {
		return out, false, err
	}
	a, err := l.accept(ctx, &in)
	if errors.Is(err, chat.ErrKeyReused) || err == nil && a.Duplicate {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	return cron.Launched{Seq: a.Seq, Epoch: a.Epoch, Mine: a.Mine, Owner: a.Owner, Behind: a.Behind, SessionID: a.SessionID}, true, nil
}

// prepared is a launch as it is stored, with defaults for what the caller left out.
func prepared(j *cron.Job, l *cron.Launch) *launching {
	it := &launching{run: l.Run, message: l.Message}
	complete(&it.run, j)
	m := &it.message
	fill(&m.ID, it.run.ID)
	fill(&m.Dedupe, dedupeOf(m.ID))
	fill(&m.Lane, it.run.Lane)
	fill(&m.Principal, it.run.Owner)
	return it
}

func dedupeOf(messageID string) string { return "cron:" + messageID }

// attemptID is the message id of a further attempt.
func attemptID(runID string, attempt int) string { return runID + "/" + strconv.Itoa(attempt) }
