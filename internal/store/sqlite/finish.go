package sqlite

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// previewBytes is how much of an answer a list shows.
const previewBytes = 200

// Finish ends a run; see the port.
func (s *Store) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if p.Outcome == "" && !p.Requeue {
		return store.Finished{}, chat.Errorf(chat.CodeInvalid, "a run that ends needs an outcome")
	}
	return result(ctx, s.write, ordinary("finish a run"), func(ctx context.Context, t *tx) (store.Finished, error) {
		return t.finish(ctx, s.Cron, &p)
	})
}

func (t *tx) finish(ctx context.Context, jobs sqlstore.Cron, p *store.FinishParams) (out store.Finished, err error) {
	r, transcript, err := t.holdRun(ctx, p.Claim, p.RunID)
	if errors.Is(err, chat.ErrFenced) {
		return t.finishedBefore(ctx, p)
	}
	if err != nil {
		return out, err
	}
	notice, err := t.sendOf(ctx, p)
	if err != nil {
		return out, err
	}
	if p.Requeue {
		err = t.requeue(ctx, r, p.RunID)
	} else {
		out.Merged, err = t.endRun(ctx, r, p, notice)
	}
	if err != nil {
		return out, err
	}
	if err := t.closeRun(ctx, p); err != nil {
		return out, err
	}
	if p.Journal && !p.Requeue {
		if err := sqlstore.EndJournal(ctx, t.shared(), p.RunID); err != nil {
			return out, err
		}
	}
	if err := t.ledger(ctx, jobs, p); err != nil {
		return out, err
	}
	if out.Entries, err = t.append(ctx, r, transcript, p.Transcript); err != nil {
		return out, err
	}
	active, err := t.settle(ctx, r)
	if err != nil {
		return out, err
	}
	out.Released, out.EndedAt = r.release(active), instant(t.now)
	if p.Requeue {
		err = t.save(ctx, r)
	} else {
		err = t.remember(ctx, r, p)
	}
	return out, err
}

// finishedBefore returns the result of an earlier Finish with the same parameters; chat.ErrFenced when there was none.
func (t *tx) finishedBefore(ctx context.Context, p *store.FinishParams) (out store.Finished, err error) {
	u, known, err := t.findRun(ctx, p.RunID)
	if err != nil {
		return out, err
	}
	if !known {
		return out, chat.ErrFenced
	}
	e := store.EndedRun{Run: u.Run}
	err = t.one(ctx, `SELECT coalesce(owner, ''), epoch FROM sessions WHERE key = ?`, u.Session.String()).Scan(&e.Owner, &e.Epoch)
	if err != nil && !none(err) {
		return out, err
	}
	if e.Entries, err = sqlstore.RunEntries(ctx, t.shared(), u.Session.String(), u.ID, len(p.Transcript)); err != nil {
		return out, err
	}
	rows, err := t.query(ctx, `
		SELECT `+messageColumns+` FROM inbox WHERE session_key = ? AND seq >= ? AND run_id = ? AND outcome = 'merged' ORDER BY seq`,
		u.Session.String(), u.SeqFrom, u.ID)
	if e.Merged, err = collect(rows, err, scanMessage); err != nil {
		return out, err
	}
	out, ok := p.Repeats(e, instant(t.now))
	if !ok {
		return out, chat.ErrFenced
	}
	return out, nil
}

// ledger writes the end into the ledger of cron, when the run was an attempt of a cron run.
func (t *tx) ledger(ctx context.Context, jobs sqlstore.Cron, p *store.FinishParams) error {
	switch {
	case p.Cron != nil:
		return jobs.EndAttempt(ctx, t.shared(), p.Cron, p.Node)
	case p.Requeue:
		return sqlstore.WaitAgain(ctx, t.shared(), []string{p.RunID})
	default:
		return nil
	}
}

// sendOf writes the outgoing rows of a run under its epoch and returns the id of its notice, "" = none.
func (t *tx) sendOf(ctx context.Context, p *store.FinishParams) (notice string, err error) {
	for i := range p.Outgoing {
		o := p.Outgoing[i]
		o.RunID, o.Epoch = p.RunID, p.Epoch
		id, err := t.send(ctx, &o)
		if err != nil {
			return "", err
		}
		if o.Kind == store.KindNotice {
			notice = id
		}
	}
	return notice, nil
}

// member is what endRun needs of a message of a run.
type member struct {
	seq int64
	id  string
}

// endRun gives the messages of a run their outcomes, and returns those that were merged into the leading one.
func (t *tx) endRun(ctx context.Context, r *row, p *store.FinishParams, notice string) ([]store.Waiting, error) {
	rows, err := t.query(ctx, `
		SELECT seq, coalesce(message_id, '') FROM inbox
		WHERE session_key = ? AND state <> 'done' AND state = 'running' AND run_id = ? ORDER BY seq`, r.key, p.RunID)
	list, err := collect(rows, err, func(row scanner) (m member, err error) {
		err = row.Scan(&m.seq, &m.id)
		return m, err
	})
	if err != nil {
		return nil, err
	}
	lead := leader(list, p.RunID)
	var merged []store.Waiting
	for _, m := range list {
		outcome, into := p.Outcome, int64(0)
		if m.seq != lead && outcome == chat.OutcomeAnswered {
			outcome, into = chat.OutcomeMerged, lead
		}
		_, err := t.exec(ctx, `
			UPDATE inbox SET state = 'done', outcome = ?, reason = ?, merged_into = ?, ended_at = ?, notice_id = coalesce(notice_id, ?)
			WHERE session_key = ? AND seq = ?`, string(outcome), p.Cause, zero(into), t.now, null(notice), r.key, m.seq)
		if err != nil {
			return nil, err
		}
		if into == 0 {
			continue
		}
		w, err := scanMessage(t.one(ctx, `SELECT `+messageColumns+` FROM inbox WHERE session_key = ? AND seq = ?`, r.key, m.seq))
		if err != nil {
			return nil, err
		}
		merged = append(merged, w)
	}
	return merged, nil
}

// leader is the number of the message that gave the run its id, else of the newest.
func leader(list []member, runID string) (seq int64) {
	for _, m := range list {
		if seq = m.seq; m.id == runID {
			break
		}
	}
	return seq
}

// requeue lets the messages of a run wait again. They are held, not waiting: they have the place of a running turn.
func (t *tx) requeue(ctx context.Context, r *row, runID string) error {
	n, err := t.exec(ctx, `
		UPDATE inbox SET state = 'held' WHERE session_key = ? AND state <> 'done' AND state = 'running' AND run_id = ?`, r.key, runID)
	r.waiting += n
	return err
}

// remember is save with the columns of the run that ended last, which lists show. One statement, because every turn ends with it.
func (t *tx) remember(ctx context.Context, r *row, p *store.FinishParams) error {
	_, err := t.exec(ctx, `
		UPDATE sessions SET owner = ?, taken_seq = ?, done_seq = ?, waiting = ?, transcript_seq = ?, updated_at = ?,
			last_run_id = ?, last_state = ?, last_cause = ?, last_error = ?, total_tokens = total_tokens + ?, preview = coalesce(?, preview)
		WHERE key = ?`,
		null(r.owner), r.takenSeq, r.doneSeq, r.waiting, r.transcriptSeq, t.now,
		p.RunID, p.State, p.Cause, p.Error, p.Usage.InputTokens+p.Usage.OutputTokens, null(chat.Cut(p.Preview, previewBytes)), r.key)
	return err
}

// closeRun writes the end into the run row; a run whose goroutine has not returned is stopping and has no end yet.
func (t *tx) closeRun(ctx context.Context, p *store.FinishParams) error {
	state, endedAt := p.State, t.now
	if p.StillRunning {
		state, endedAt = store.RunStopping, 0
	}
	_, err := t.exec(ctx, `
		UPDATE runs SET state = ?, cause = ?, error = ?, detail = ?, ended_at = ?, input_tokens = ?, output_tokens = ?, model = ?, provider = ? WHERE id = ?`,
		state, p.Cause, p.Error, p.Detail, zero(endedAt), p.Usage.InputTokens, p.Usage.OutputTokens, p.Usage.Model, p.Usage.Provider, p.RunID)
	return err
}

// EndStopping ends a run whose goroutine has returned at last. A run that is not stopping is left alone.
func (s *Store) EndStopping(ctx context.Context, c store.Claim, runID string) error {
	return s.write.do(ctx, ordinary("end a stopped run"), func(ctx context.Context, t *tx) error {
		u, known, err := t.findRun(ctx, runID)
		if err != nil || !known || u.Session != c.Session || u.State != store.RunStopping {
			return err
		}
		r, err := t.hold(ctx, c)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE runs SET state = 'stopped', ended_at = ? WHERE id = ?`, t.now, runID); err != nil {
			return err
		}
		active, err := t.settle(ctx, r)
		if err != nil {
			return err
		}
		r.release(active)
		return t.save(ctx, r)
	})
}
