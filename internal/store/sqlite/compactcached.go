package sqlite

import (
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// The start and the end of a compact run whose job and row are cached read nothing: a start is one statement, an end is two. The statement on the row is the
// fence: it changes the row that was cached, while it is compact and in its state and its node is alive. When it changes nothing, the caller goes on as if
// nothing were cached.

// aliveNode is the condition that the node of a run is alive; the parameter is the time.
const aliveNode = ` AND EXISTS (SELECT 1 FROM nodes WHERE id = cron_run_logs.node AND lease_until > ?)`

// startCached starts a compact run whose row is cached; started is false when it is not cached or the claim does not hold.
func (t *tx) startCached(ctx context.Context, p *startOp) (out store.Started, started bool, err error) {
	j, r := t.cachedRun(p.RunID, p.job, cron.RunQueued)
	if r == nil || r.row.run.Lane != p.Lane || r.row.run.Node != p.Node {
		return out, false, nil
	}
	at := instant(t.now)
	list := []cron.Attempt{{Number: 1, StartedAt: at, Node: p.Node}}
	attempts, err := cron.EncodeAttempts(list)
	if err != nil {
		return out, false, err
	}
	n, err := t.execKept(ctx, `UPDATE cron_run_logs SET state = 'running', attempt = 1, attempts = ?, started_at = ?, transcript = ?, entries = ?
		WHERE id = ? AND session_id = ? AND compact = 1 AND state = 'queued'`+aliveNode,
		attempts, t.now, p.opening, len(p.Transcript), p.RunID, r.row.transcript, t.now)
	if err != nil {
		return out, false, err
	}
	if n == 0 {
		t.wrote = false
		return out, false, nil
	}
	r.state, r.startedAt, r.row.entries = cron.RunRunning, at, int64(len(p.Transcript))
	r.row.run.State, r.row.run.StartedAt, r.row.run.Attempt, r.row.run.Attempts = cron.RunRunning, at, 1, list
	return store.Started{
		Seqs: p.Seqs, Attempt: 1, StartedAt: at, Notes: map[string]string{}, Principal: r.row.principal, SessionID: r.row.transcript,
		Entries: store.Numbered(p.Transcript, 0, at), Job: j.withRuns(),
	}, true, nil
}

// finishCached ends a compact run that has succeeded and whose row is cached; finished is false when it is not cached or the claim does not hold.
func (t *tx) finishCached(ctx context.Context, p *finishOp) (out store.Finished, finished bool, err error) {
	j, cached := t.cachedRun(p.RunID, p.job, cron.RunRunning)
	if cached == nil || cached.row.run.Node != p.Node {
		return out, false, nil
	}
	opened, transcript := cached.row.entries, cached.row.transcript
	r := &ledgerRow{Run: cached.row.run, message: p.RunID}
	r.Attempts = slices.Clone(r.Attempts)
	t.apply(r, &p.FinishParams)
	if r.Error != "" || r.ErrorClass != "" || r.Reason != "" || r.DeliveryError != "" || r.SuppressedBy != "" {
		return out, false, nil // the statement leaves these columns as they are, empty
	}
	attempts, err := cron.EncodeAttempts(r.Attempts)
	if err != nil {
		return out, false, err
	}
	n, err := t.execKept(ctx, `UPDATE cron_run_logs SET state = 'ok', finished_at = ?, duration_ms = ?, attempts = ?, summary = ?, model = ?, provider = ?,
			input_tokens = ?, output_tokens = ?, delivery = ?, entries = entries + ?, transcript = transcript || ?, preview = ?
		WHERE id = ? AND session_id = ? AND compact = 1 AND state = 'running'`+aliveNode,
		t.now, r.Duration.Milliseconds(), attempts, summaryOf(r.Summary), r.Model, r.Provider, r.InputTokens, r.OutputTokens, string(r.Delivery),
		len(p.Transcript), appended(opened, p.answer), chat.Cut(p.Preview, previewBytes), p.RunID, transcript, t.now)
	if err != nil {
		return out, false, err
	}
	if n == 0 {
		t.wrote = false
		return out, false, nil
	}
	j.ended(p.RunID)
	t.noteEnd(&r.Run)
	if _, err := t.sendOf(ctx, &p.FinishParams); err != nil {
		return out, false, err
	}
	at := instant(t.now)
	return store.Finished{EndedAt: at, Released: true, Entries: store.Numbered(p.Transcript, opened, at)}, true, t.countEnd(ctx, p.Cron, &r.Run, j)
}

// appended is the text of an answer behind the entries that a transcript has.
func appended(opened int64, answer string) string {
	if opened > 0 && answer != "" {
		return "," + answer
	}
	return answer
}

// countEnd changes a cached job by the end of its run.
func (t *tx) countEnd(ctx context.Context, e *cron.AttemptEnd, r *cron.Run, j *cachedJob) error {
	if e.Job == nil {
		return nil
	}
	next := e.Job(cloneJob(&j.Job), *r, instant(t.now))
	switch {
	case next == nil:
		return t.removeJob(ctx, j.ID)
	case !cron.SameBesidesCounters(&j.Job, next):
		t.jobs.drop(j.ID)
		_, err := t.replaceJob(ctx, j.storedJob, next)
		return err
	}
	return t.storeCounters(ctx, j, &next.State)
}

// storeCounters writes the columns of a cached job that the end of a run changes; those that most ends leave alone, only when they differ.
func (t *tx) storeCounters(ctx context.Context, j *cachedJob, s *cron.JobState) error {
	was := &j.State
	usual := s.ErrorCount == was.ErrorCount && s.LastError == was.LastError && s.LastErrorClass == was.LastErrorClass &&
		s.LastDelivery == was.LastDelivery && s.LastDeliveryError == was.LastDeliveryError && s.LastAlertAt.Equal(was.LastAlertAt) &&
		s.ConsecutiveErrors == was.ConsecutiveErrors && s.ConsecutiveSkipped == was.ConsecutiveSkipped
	if !usual {
		if err := t.storeJobState(ctx, j.ID, s); err != nil {
			return err
		}
		setCounters(was, s)
		t.jobs.add(j)
		return nil
	}
	_, err := t.execKept(ctx, `UPDATE cron_jobs SET run_count = ?, last_run_at = ?, last_state = ?, last_duration_ms = ? WHERE id = ?`,
		s.RunCount, zero(millis(s.LastRunAt)), string(s.LastState), s.LastDuration.Milliseconds(), j.ID)
	setCounters(was, s)
	return err
}

// setCounters takes over the members that storeJobState writes, as they are read back.
func setCounters(to, from *cron.JobState) {
	to.RunCount, to.ErrorCount, to.LastRunAt, to.LastState = from.RunCount, from.ErrorCount, instant(millis(from.LastRunAt)), from.LastState
	to.LastError, to.LastErrorClass, to.LastDuration = from.LastError, from.LastErrorClass, span(from.LastDuration.Milliseconds())
	to.LastDelivery, to.LastDeliveryError, to.LastAlertAt = from.LastDelivery, from.LastDeliveryError, instant(millis(from.LastAlertAt))
	to.ConsecutiveErrors, to.ConsecutiveSkipped = from.ConsecutiveErrors, from.ConsecutiveSkipped
}
