package sqlite

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// expandStatements write the rows of a compact run, see store.Compactable. The parameter is the run.
func expandStatements() []string {
	return []string{
		`INSERT INTO sessions (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at,
			last_message_at, last_run_id, last_state, preview, total_tokens, transcript_seq)
		SELECT key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at,
			last_message_at, last_run_id, last_state, preview, total_tokens, transcript_seq FROM compact_sessions WHERE of = ?`,
		`INSERT INTO inbox (session_key, seq, message_id, dedupe, channel, principal, sender, body, lane, state, outcome, run_id, node, accepted_at, ended_at)
		SELECT session_key, seq, message_id, dedupe, channel, principal, sender, body, lane, state, outcome, run_id, node, accepted_at, ended_at
			FROM compact_inbox WHERE of = ?`,
		`INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, ended_at,
			input_tokens, output_tokens, model, provider)
		SELECT id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, ended_at,
			input_tokens, output_tokens, model, provider FROM compact_runs WHERE of = ?`,
		`INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at)
		SELECT session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at FROM compact_transcript WHERE of = ?`,
		`UPDATE cron_run_logs SET compact = 0, body = '', transcript = '', preview = '' WHERE id = ?`,
	}
}

// expand writes the rows of a compact run. It does nothing for any other id, and reports whether it wrote.
func (t *tx) expand(ctx context.Context, runID string) (bool, error) {
	if runID == "" {
		return false, nil
	}
	var compact bool
	err := t.one(ctx, `SELECT compact FROM cron_run_logs WHERE id = ?`, runID).Scan(&compact)
	if none(err) || err == nil && !compact {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, statement := range expandStatements() {
		if _, err := t.execOf(ctx, jobOfRun(runID), statement, runID); err != nil {
			return false, err
		}
	}
	return true, nil
}

// expandOfDead expands the compact runs of dead nodes, the oldest first, so that the sweep finds their sessions.
func (t *tx) expandOfDead(ctx context.Context, limit int) error {
	rows, err := t.query(ctx, `SELECT id FROM cron_run_logs WHERE `+runsActive+` AND compact = 1
		AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = cron_run_logs.node AND n.lease_until > ?) ORDER BY claimed_at, id LIMIT +?`, t.now, limit)
	ids, err := collect(rows, err, text)
	for _, id := range ids {
		if _, err := t.expand(ctx, id); err != nil {
			return err
		}
	}
	return err
}

// startOp is a start with what its caller computes, so that the writer need not.
type startOp struct {
	store.StartParams

	job     string // of a start that may be that of a compact run, see store.CompactStart; "" = it is none
	opening string // the entries of the transcript as the row of a compact run has them
}

func newStart(p *store.StartParams) (o *startOp, err error) {
	o = &startOp{StartParams: *p}
	if store.CompactStart(p) {
		o.job = jobOfRun(p.RunID)
		o.opening, err = store.EncodeCompact(p.Transcript, false)
	}
	return o, err
}

// finishOp is an end with what its caller computes.
type finishOp struct {
	store.FinishParams

	job    string // of an end that may be that of a compact run, see store.CompactFinish; "" = it is none
	answer string // the entries of the transcript as the row of a compact run has them
}

func newFinish(p *store.FinishParams) (o *finishOp, err error) {
	o = &finishOp{FinishParams: *p}
	if store.CompactFinish(p) {
		o.job = jobOfRun(p.RunID)
		o.answer, err = store.EncodeCompact(p.Transcript, true)
	}
	return o, err
}

// startCompact starts a compact run; started is false when the run is none, or the claim does not hold.
func (t *tx) startCompact(ctx context.Context, p *startOp) (out store.Started, started bool, err error) {
	if p.job == "" {
		return out, false, nil
	}
	if out, started, err := t.startCached(ctx, p); started || err != nil {
		return out, started, err
	}
	out = store.Started{Seqs: p.Seqs, Attempt: 1, StartedAt: instant(t.now), Notes: map[string]string{}}
	attempts, err := cron.EncodeAttempts([]cron.Attempt{{Number: 1, StartedAt: out.StartedAt, Node: p.Node}})
	if err != nil {
		return out, false, err
	}
	err = t.changeOf(ctx, p.job, `
		UPDATE cron_run_logs SET state = 'running', attempt = 1, attempts = ?, started_at = ?, transcript = ?, entries = ?
		WHERE id = ? AND compact = 1 AND state = 'queued' AND lane = ? AND node = ?`+aliveNode+`
		RETURNING principal, session_id`,
		attempts, t.now, p.opening, len(p.Transcript), p.RunID, p.Lane, p.Node, t.now).Scan(&out.Principal, &out.SessionID)
	if none(err) {
		t.wrote = false
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	out.Entries = store.Numbered(p.Transcript, 0, out.StartedAt)
	out.Job, err = t.jobOf(ctx, p.job)
	return out, err == nil, err
}

// jobOf reads the job of a run; nil = there is none any more. It is read here, because a transaction of its own costs more than the statement.
func (t *tx) jobOf(ctx context.Context, id string) (*cron.Job, error) {
	j, err := findJob(ctx, t, id, "")
	if errors.Is(err, chat.ErrNotFound) || err == nil && j.unreadable {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &j.Job, nil
}

// finishCompact ends a compact run that has succeeded; finished is false when the run is none, or the claim does not hold.
func (t *tx) finishCompact(ctx context.Context, p *finishOp) (out store.Finished, finished bool, err error) {
	if p.job == "" {
		return out, false, nil
	}
	if out, finished, err := t.finishCached(ctx, p); finished || err != nil {
		return out, finished, err
	}
	r, opened, j, err := t.runningCompact(ctx, &p.FinishParams)
	if r == nil || err != nil {
		return out, false, err
	}
	if _, err := t.sendOf(ctx, &p.FinishParams); err != nil {
		return out, false, err
	}
	t.apply(r, &p.FinishParams)
	if err := t.storeCompact(ctx, r, opened, p); err != nil {
		return out, false, err
	}
	if err := t.changeEnded(ctx, &p.FinishParams, r, j); err != nil {
		return out, false, err
	}
	out = store.Finished{EndedAt: instant(t.now), Released: true, Entries: store.Numbered(p.Transcript, opened, instant(t.now))}
	return out, true, nil
}

// runningCompact reads in one statement the row of a compact run that runs under its claim, how many entries its transcript has, and its job; nil = there is
// none. A statement costs more than its columns.
func (t *tx) runningCompact(ctx context.Context, p *store.FinishParams) (r *ledgerRow, opened int64, j *storedJob, err error) {
	var row array
	var job *string
	err = t.one(ctx, `SELECT `+asOne+ledgerColumns+`, entries`+column+`, (SELECT `+asOne+`id, `+jobColumns+column+` FROM cron_jobs WHERE id = cron_run_logs.job_id)
		FROM cron_run_logs WHERE id = ? AND compact = 1 AND state = 'running' AND node = ?`+aliveNode, p.RunID, p.Node, t.now).Scan(&row, &job)
	if none(err) {
		return nil, 0, nil, nil
	}
	if err != nil {
		return nil, 0, nil, err
	}
	r = &ledgerRow{}
	if err = row.Scan(append(r.fields(), &opened)...); err == nil {
		err = r.decode()
	}
	if err == nil && job != nil {
		j, err = t.scanDue(array(*job))
	}
	return r, opened, j, err
}

// storeCompact writes the columns that the end of a compact run changes; opened is how many entries its transcript has.
func (t *tx) storeCompact(ctx context.Context, r *ledgerRow, opened int64, p *finishOp) error {
	attempts, err := cron.EncodeAttempts(r.Attempts)
	if err != nil {
		return err
	}
	_, err = t.execOf(ctx, r.JobID, `
		UPDATE cron_run_logs SET state = 'ok', finished_at = ?, duration_ms = ?, attempts = ?, summary = ?, model = ?, provider = ?,
			input_tokens = ?, output_tokens = ?, delivery = ?, delivery_error = ?, suppressed_by = ?, error = ?, error_class = ?, reason = ?,
			entries = entries + ?, transcript = transcript || ?, preview = ?
		WHERE id = ?`,
		millis(r.FinishedAt), r.Duration.Milliseconds(), attempts, summaryOf(r.Summary), r.Model, r.Provider, r.InputTokens, r.OutputTokens,
		string(r.Delivery), r.DeliveryError, r.SuppressedBy, chat.CleanText(r.Error), r.ErrorClass, null(string(r.Reason)),
		len(p.Transcript), appended(opened, p.answer), chat.Cut(p.Preview, previewBytes), p.RunID)
	if err == nil {
		t.noteEnd(&r.Run)
	}
	return err
}

// readCompact reads the session of a compact run with the ids of its active runs; chat.ErrSessionNotFound.
func readCompact(ctx context.Context, q querier, key chat.SessionKey) (store.Session, error) {
	id := store.CompactRunOf(key)
	if id == "" {
		return store.Session{}, chat.ErrSessionNotFound
	}
	s, err := scanSession(q.one(ctx, `SELECT `+sessionColumns+` FROM compact_sessions WHERE of = ? AND key = ?`, id, key.String()))
	if none(err) {
		return store.Session{}, chat.ErrSessionNotFound
	}
	if err != nil {
		return store.Session{}, err
	}
	rows, err := q.query(ctx, `SELECT id FROM compact_runs WHERE of = ? AND state = 'running'`, id)
	s.ActiveRuns, err = collect(rows, err, text)
	return s, err
}

// sourceOf is the run whose row has the transcript of a session, and the id of that transcript; "" = the session has rows of its own, or there is none.
func sourceOf(ctx context.Context, q querier, key chat.SessionKey) (runID, transcript string, err error) {
	id := store.CompactRunOf(key)
	if id == "" {
		return "", "", nil
	}
	err = q.one(ctx, `SELECT session_id FROM cron_run_logs WHERE id = ? AND session_key = ? AND compact = 1`, id, key.String()).Scan(&transcript)
	if none(err) {
		return "", "", nil
	}
	return id, transcript, err
}

// entriesOf is where the entries of a transcript are read: its rows, or those of a compact run. ?7 is what sourceOf returns.
func entriesOf(runID string) string {
	if runID == "" {
		return ` FROM transcript WHERE ?7 = '' AND `
	}
	return ` FROM compact_transcript WHERE of = ?7 AND `
}
