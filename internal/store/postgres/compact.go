package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Compact runs, see store.Compactable. An operation locks the rows of the ledger first and leaves their ids in a setting of the transaction, from which
// expandSQL takes them: a statement that begins behind the locks reads the rows as they are. No text of a run's id has a line feed.
const (
	lockCompact = `WITH l AS (SELECT id FROM cron_run_logs l WHERE l.compact = 1 AND `
	keepCompact = `) SELECT set_config('laneway.compact', COALESCE(string_agg(id, chr(10)), ''), true) FROM l`

	// expandRunsSQL chooses the runs $1.
	expandRunsSQL = lockCompact + `l.id = ANY($1::text[]) ORDER BY l.id FOR UPDATE` + keepCompact

	// expandOfDeadSQL chooses the oldest runs of dead nodes; $2 is how many. It passes over those that another process expands.
	expandOfDeadSQL = lockCompact + `l.finished_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = l.node AND n.lease_until > ` + nowSQL + `)
		ORDER BY l.claimed_at, l.id LIMIT $2 FOR UPDATE SKIP LOCKED` + keepCompact

	// expandOfNodeSQL chooses the runs of the node $1 that are not over.
	expandOfNodeSQL = lockCompact + `l.finished_at IS NULL AND l.node = $1 ORDER BY l.id FOR UPDATE` + keepCompact

	chosenRuns = `(SELECT string_to_array(current_setting('laneway.compact'), chr(10)))::text[]`

	// expandSQL writes the rows of the chosen runs.
	expandSQL = `
WITH s AS (
	INSERT INTO sessions (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at,
		last_message_at, last_run_id, last_state, preview, total_tokens, transcript_seq)
	SELECT key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at,
		last_message_at, last_run_id, last_state, preview, total_tokens, transcript_seq FROM compact_sessions WHERE of = ANY (` + chosenRuns + `)
), i AS (
	INSERT INTO inbox (session_key, seq, message_id, dedupe, channel, principal, sender, body, lane, state, outcome, run_id, node, accepted_at, ended_at)
	SELECT session_key, seq, message_id, dedupe, channel, principal, sender, body, lane, state, outcome, run_id, node, accepted_at, ended_at
	FROM compact_inbox WHERE of = ANY (` + chosenRuns + `)
), r AS (
	INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, ended_at,
		input_tokens, output_tokens, model, provider)
	SELECT id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, ended_at,
		input_tokens, output_tokens, model, provider FROM compact_runs WHERE of = ANY (` + chosenRuns + `)
), t AS (
	INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at)
	SELECT session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at
	FROM compact_transcript WHERE of = ANY (` + chosenRuns + `)
)
UPDATE cron_run_logs SET compact = 0, body = '', transcript = '', preview = '' WHERE id = ANY (` + chosenRuns + `) AND compact = 1`

	// shareJobSQL keeps claims of a job out until the end of the transaction: a claim must not make a compact run for a session that is being made.
	shareJobSQL = `SELECT 1 FROM cron_jobs WHERE id = $1 FOR SHARE`

	// compactFreeSQL returns which runs a claim can make compact: their names and sessions are not in use and were not, the node may own sessions, and
	// every live node knows such rows. Rows are counted so that each lookup is one in an index. Parameters: $1 clock, $2 node, $3 runs, $4 sessions.
	compactFreeSQL = `
SELECT v.id FROM unnest($3::text[], $4::text[]) AS v(id, key)
WHERE (SELECT count(*) FROM nodes WHERE id = $2 AND lease_until > ` + nowSQL + ` AND NOT draining) = 1
	AND (SELECT count(*) FROM nodes WHERE lease_until > ` + nowSQL + ` AND compact = 0) = 0
	AND (SELECT count(*) FROM sessions s WHERE s.key = v.key) = 0 AND (SELECT count(*) FROM graves g WHERE g.key = v.key) = 0
	AND (SELECT count(*) FROM inbox i WHERE i.message_id = v.id) = 0 AND (SELECT count(*) FROM inbox i WHERE i.dedupe = 'cron:' || v.id) = 0`
)

// expandNow expands the run of a session in a transaction of its own, before an operation that does not know compact runs.
func (s *Store) expandNow(ctx context.Context, to sender, key chat.SessionKey) error {
	b := &pgx.Batch{}
	expandRuns(b, store.CompactRunOf(key))
	if b.Len() == 0 {
		return nil
	}
	return send(ctx, to, b)
}

// expandRuns queues the expansion of runs; "" is none.
func expandRuns(b *pgx.Batch, ids ...string) {
	var list []string
	for _, id := range ids {
		if id != "" {
			list = append(list, id)
		}
	}
	if len(list) > 0 {
		b.Queue(expandRunsSQL, list)
		b.Queue(expandSQL)
	}
}

// expandSession queues what must come before a session is made or changed: its compact run is expanded, and no claim makes one.
func expandSession(b *pgx.Batch, key chat.SessionKey) {
	id := store.CompactRunOf(key)
	if id == "" {
		return
	}
	if _, job, _, err := cron.ParseRunID(id); err == nil {
		b.Queue(shareJobSQL, job)
	}
	expandRuns(b, id)
}

// namesCompact reports whether a message is in a session of a run or has the name of a message of one.
func namesCompact(m *chat.Message) bool {
	return store.CompactRunOf(m.Session) != "" || store.CompactRunOfMessage(m.ID) != "" || store.CompactRunOfMessage(m.Dedupe) != ""
}

// compactFree marks the runs of a claim that can be compact.
func (l *launching) compactFree(ctx context.Context, tx pgx.Tx, launches []cron.Launch) (map[string]bool, error) {
	var ids, keys, found []string
	for i := range launches {
		if r := &launches[i].Run; store.Compactable(r, &launches[i].Message) {
			ids, keys = append(ids, r.ID), append(keys, r.SessionKey)
		}
	}
	if len(ids) == 0 || l.checkNames {
		return nil, nil
	}
	b := &pgx.Batch{}
	b.Queue(compactFreeSQL, l.s.clock(), l.node, ids, keys).Query(collect(&found, scanText))
	if err := send(ctx, tx, b); err != nil {
		return nil, err
	}
	free := make(map[string]bool, len(found))
	for _, id := range found {
		free[id] = true
	}
	return free, nil
}

// newCompact is the row of a compact run.
func newCompact(r cron.Run, m *chat.Message) (newRow, error) {
	n := newRow{run: r, message: m.ID, compact: true, principal: m.Principal}
	var err error
	if n.body, err = encode(m.Content); err != nil {
		return n, err
	}
	n.sessionID, err = newID()
	return n, err
}

// launchedCompact is the result for a compact run.
func (l *launching) launchedCompact(c *cron.Launch, sessionID string) cron.Launched {
	return cron.Launched{
		Run: c.Run, Message: c.Message, Seq: 1, Epoch: store.CompactEpoch, Mine: true, Owner: l.node, SessionID: sessionID,
	}
}

// startCompactSQL starts the compact runs whose claim holds. It passes over rows that another transaction has locked. Parameters: $1 clock, $2 runs,
// $3 nodes, $4 lanes, $5 entries of the transcript, $6 how many.
const startCompactSQL = `
WITH v AS MATERIALIZED (
	SELECT i, ($2::text[])[i] AS id, ($3::text[])[i] AS node, ($4::text[])[i] AS lane, ($5::text[])[i] AS opening, ($6::bigint[])[i] AS n FROM ` + numbersSQL + `
), b AS (
	SELECT v.*, l.place FROM v CROSS JOIN LATERAL (
		SELECT ctid AS place FROM cron_run_logs
		WHERE id = v.id AND compact = 1 AND state = 'queued' AND node = v.node AND lane = v.lane FOR UPDATE SKIP LOCKED
	) l
	WHERE EXISTS (SELECT 1 FROM nodes n WHERE n.id = v.node AND n.lease_until > ` + nowSQL + `)
)
UPDATE cron_run_logs l SET state = 'running', attempt = 1, started_at = ` + nowSQL + `, transcript = b.opening, entries = b.n,
	attempts = '[{"attempt":1,"startedAtMs":' || ` + nowSQL + ` || ',"node":' || to_json(b.node) || '}]'
FROM b WHERE l.ctid = b.place AND l.compact = 1
RETURNING b.i, l.principal, l.session_id, ` + logColumns

// startCompactGroup is one transaction for compact runs: those whose claim is remembered, and the others. A second one is for runs that have changed since
// their claim, or whose job has.
func (s *Store) startCompactGroup(ctx context.Context, list []*startOp) ([]bool, error) {
	var claimed, read []int
	for i, g := range list {
		if g.claimed = s.claims.take(g.p.RunID); g.claimed != nil {
			claimed = append(claimed, i)
		} else {
			read = append(read, i)
		}
	}
	done, b := make([]bool, len(list)), &pgx.Batch{}
	if len(claimed) > 0 {
		s.queueClaimed(b, list, claimed, done)
	}
	if len(read) > 0 {
		s.queueCompactStarts(b, list, read, done)
	}
	err := send(ctx, s.turns, b)
	if changed := slices.DeleteFunc(claimed, func(i int) bool { return done[i] }); err == nil && len(changed) > 0 {
		s.startChanged(ctx, list, changed, done)
	}
	for i, g := range list {
		if done[i] && g.out.Job != nil {
			g.out.Begun = g.begun
		}
	}
	return done, err
}

// startChanged starts runs that are not as their claim has written them. The others of the group have started: an error leaves these to be tried by themselves.
func (s *Store) startChanged(ctx context.Context, list []*startOp, places []int, done []bool) {
	b := &pgx.Batch{}
	s.queueCompactStarts(b, list, places, done)
	if err := send(ctx, s.turns, b); err != nil {
		s.log.DebugContext(ctx, "runs that have changed since their claim are started by themselves", "runs", len(places), "err", translate(err))
		for _, i := range places {
			done[i] = false
		}
	}
}

// queueCompactStarts queues the starts of the runs at some places of a group, and the read of their jobs.
func (s *Store) queueCompactStarts(b *pgx.Batch, all []*startOp, places []int, done []bool) {
	list := make([]*startOp, len(places))
	for k, i := range places {
		list[k] = all[i]
	}
	b.Queue(startCompactSQL, s.clock(), column(list, func(g *startOp) string { return g.p.RunID }), column(list, func(g *startOp) string { return g.p.Node }),
		column(list, func(g *startOp) string { return g.p.Lane }), column(list, func(g *startOp) string { return g.opening }),
		column(list, func(g *startOp) int64 { return int64(len(g.p.Transcript)) })).
		Query(func(rows pgx.Rows) error { return scanCompact(rows, list, places, done) })
	s.readJobs(b, list)
}

// scanCompact reads the runs that have started.
func scanCompact(rows pgx.Rows, list []*startOp, places []int, done []bool) error {
	var (
		i                    int
		principal, sessionID string
		v                    logRow
	)
	at := time.Now() //nolint:forbidigo // only to measure how much time passes until the end
	targets := append([]any{&i, &principal, &sessionID}, v.targets()...)
	for rows.Next() {
		v = logRow{}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		r, err := v.logged()
		if err != nil {
			return err
		}
		g, n := list[i-1], int64(len(list[i-1].p.Transcript))
		g.out = store.Started{
			Seqs: g.p.Seqs, Attempt: 1, StartedAt: r.StartedAt, Notes: map[string]string{}, Principal: principal, SessionID: sessionID,
			Entries: numbered(g.p.Transcript, n, r.StartedAt),
		}
		g.begun, done[places[i-1]] = &begun{run: r.Run, entries: n, at: at}, true
	}
	return rows.Err()
}

// startCompact starts a compact run; grouped when it has. After any other result the run is expanded.
func (g *startOp) startCompact(ctx context.Context) (how commitResult, err error) {
	if !store.CompactStart(&g.p) {
		return single, g.s.do(ctx, "expanding a run", func(ctx context.Context) error { return g.s.expandNow(ctx, g.s.turns, g.p.Session) })
	}
	if g.opening, err = store.EncodeCompact(cleaned(g.p.Transcript), false); err != nil {
		return single, err
	}
	if len(g.opening) <= maxGroupedBytes {
		if how, err = g.s.compactStarts.do(ctx, g); err != nil || how == grouped {
			return how, err
		}
	}
	g.out = store.Started{}
	return how, g.s.do(ctx, "expanding a run", func(ctx context.Context) error { return g.s.expandNow(ctx, g.s.turns, g.p.Session) })
}

// cleaned are entries as they can be stored.
func cleaned(list []chat.TranscriptEntry) []chat.TranscriptEntry {
	out := make([]chat.TranscriptEntry, len(list))
	for i, e := range list {
		e.Text, e.StopReason = clean(e.Text), clean(e.StopReason)
		out[i] = e
	}
	return out
}
