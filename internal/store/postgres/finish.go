package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// previewBytes is how much of an answer a list shows.
const previewBytes = 200

// mergedSQL reads the messages of a run that ended merged.
const mergedSQL = `
SELECT ` + waitingColumns + ` FROM inbox i
WHERE i.session_key = $1 AND i.run_id = $2 AND i.outcome = 'merged' AND i.seq >= (SELECT seq_from FROM runs WHERE id = $2)
ORDER BY i.seq`

// Finish ends a run, see store.Inbox. It takes one round trip, which concurrent finishes share; two for an attempt of a cron run, and one
// more when messages ended merged.
func (s *Store) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if p.Outcome == "" && !p.Requeue {
		return store.Finished{}, chat.Errorf(chat.CodeInvalid, "a run that ends needs an outcome")
	}
	e, err := s.newFinishOp(p)
	if err != nil {
		return store.Finished{}, err
	}
	how := sqlstore.Single
	if !p.Requeue && !p.Journal && e.fitsGroup() {
		together := s.finishes
		if p.Cron != nil {
			together = s.cronFinishes
		}
		if how, err = together.Do(ctx, e); err != nil {
			return store.Finished{}, fmt.Errorf("finishing a run: %w", err)
		}
	}
	if how == sqlstore.Grouped {
		err = s.do(ctx, "reading merged messages", e.readMerged)
		return e.out, err
	}
	err = s.do(ctx, "finishing a run", func(ctx context.Context) error {
		err := e.finish(ctx)
		if errors.Is(translate(err), chat.ErrFenced) {
			return e.finishedBefore(ctx, err)
		}
		return err
	})
	return e.out, err
}

// finishOp is one Finish under way.
type finishOp struct {
	s          *Store
	p          store.FinishParams
	outgoing   string
	transcript string
	notice     string // id of the last notice, or ""
	noticeN    int64
	messages   int
	out        store.Finished
}

func (s *Store) newFinishOp(p store.FinishParams) (*finishOp, error) {
	e := &finishOp{s: s, p: p}
	rows := make([]store.Outgoing, 0, len(p.Outgoing))
	for _, o := range p.Outgoing {
		o.RunID, o.Epoch = p.RunID, p.Epoch
		if o.ID == "" {
			id, err := newID()
			if err != nil {
				return nil, err
			}
			o.ID = id
		}
		if o.Kind == store.KindNotice {
			e.notice, e.noticeN = o.ID, int64(o.N)
		}
		rows = append(rows, o)
	}
	var err error
	if e.outgoing, err = encodeOutgoing(rows); err != nil {
		return e, err
	}
	e.transcript, err = encodeEntries(p.Transcript, p.RunID)
	return e, err
}

func (e *finishOp) Name() string { return e.p.Session.String() }

// finishGroup is one transaction for runs of different sessions.
func (s *Store) finishGroup(ctx context.Context, list []*finishOp) ([]bool, error) {
	sql, done := finishManySQL, make([]bool, len(list))
	if len(list) == 1 {
		sql = finishOneSQL
	}
	b := &pgx.Batch{}
	s.hold(b, column(list, func(e *finishOp) store.Claim { return e.p.Claim }))
	b.Queue(sql, s.finishArgs(list)...).Query(func(rows pgx.Rows) error {
		return scanResults(rows, list, done, (*finishOp).scan)
	})
	return done, send(ctx, s.turns, b)
}

func (s *Store) finishArgs(list []*finishOp) []any {
	args := columns(s.clock(), list, (*finishOp).row)
	return append(args, joined(list, func(e *finishOp) string { return e.outgoing }), joined(list, func(e *finishOp) string { return e.transcript }))
}

// row is the run as the columns of p.
func (e *finishOp) row() []any {
	p := e.p
	return []any{
		e.Name(), p.RunID, p.Node, p.Epoch, e.endState(), clean(p.Cause), clean(p.Error),
		int64(p.Usage.InputTokens), int64(p.Usage.OutputTokens), clean(p.Usage.Model), clean(p.Usage.Provider),
		flag(p.StillRunning), int64(len(p.Transcript)), string(p.Outcome), chat.Cut(clean(p.Preview), previewBytes), p.State,
		e.notice, e.noticeN, clean(p.Detail),
	}
}

// finish is one try of a run in a transaction of its own.
func (e *finishOp) finish(ctx context.Context) error {
	e.out, e.messages = store.Finished{}, 0
	if err := e.write(ctx); err != nil {
		return err
	}
	return e.readMerged(ctx)
}

// write is one transaction. That of a cron run reads its row and its job before it writes them.
func (e *finishOp) write(ctx context.Context) error {
	switch {
	case e.p.Cron != nil:
		return e.attempt(ctx)
	case e.p.Requeue && cron.RunOfMessage(e.p.RunID) != "":
		return pgx.BeginFunc(ctx, e.s.turns, func(tx pgx.Tx) error { return e.requeueAttempt(ctx, tx) })
	}
	b := &pgx.Batch{}
	e.s.fence(b, e.p.Claim)
	e.queue(b)
	return send(ctx, e.s.turns, b)
}

func (e *finishOp) queue(b *pgx.Batch) {
	sql := finishOneSQL
	switch {
	case e.p.Requeue:
		sql = requeueSQL
	case e.p.Journal:
		b.Queue(`DELETE FROM turn_rounds WHERE run_id = $1`, e.p.RunID)
	}
	b.Queue(sql, e.s.finishArgs([]*finishOp{e})...).QueryRow(e.scan)
}

func (e *finishOp) scan(row pgx.Row) error {
	var (
		i              int
		lastEntry, now int64
	)
	if err := row.Scan(&i, &e.out.Released, &lastEntry, &now, &e.messages); err != nil {
		return err
	}
	e.out.EndedAt = fromMillis(now)
	e.out.Entries = numbered(e.p.Transcript, lastEntry, e.out.EndedAt)
	return nil
}

// readMerged reads the messages that ended merged, if there can be any.
func (e *finishOp) readMerged(ctx context.Context) error {
	if e.messages < 2 || e.p.Requeue || e.p.Outcome != chat.OutcomeAnswered {
		return nil
	}
	return e.merged(ctx)
}

func (e *finishOp) merged(ctx context.Context) error {
	rows, err := e.s.turns.Query(ctx, mergedSQL, e.p.Session.String(), e.p.RunID)
	if err != nil {
		return err
	}
	e.out.Merged, err = pgx.CollectRows(rows, scanWaiting)
	return err
}

// endedSQL reads the session of a run that has ended, and the clock. $1 clock, $2 session.
const endedSQL = `SELECT COALESCE(max(owner), ''), COALESCE(max(epoch), 0), ` + nowSQL + ` FROM sessions WHERE key = $2`

// finishedBefore returns the result of an earlier Finish with the same parameters, else the refusal.
func (e *finishOp) finishedBefore(ctx context.Context, refusal error) error {
	run, err := one(ctx, e.s, scanRun, `SELECT `+runColumns+` FROM runs r WHERE r.id = $1`, e.p.RunID)
	if errors.Is(err, pgx.ErrNoRows) {
		return refusal
	}
	if err != nil {
		return err
	}
	ended := store.EndedRun{Run: run}
	var now int64
	if err := e.s.pool.QueryRow(ctx, endedSQL, e.s.clock(), e.Name()).Scan(&ended.Owner, &ended.Epoch, &now); err != nil {
		return err
	}
	if ended.Entries, err = e.s.runEntries(ctx, e.p.Session, e.p.RunID, len(e.p.Transcript)); err != nil {
		return err
	}
	if err := e.merged(ctx); err != nil {
		return err
	}
	ended.Merged = e.out.Merged
	p := e.p
	p.Cause, p.Transcript = clean(p.Cause), slices.Clone(p.Transcript)
	for i := range p.Transcript {
		p.Transcript[i].Text = clean(p.Transcript[i].Text)
	}
	out, ok := p.Repeats(ended, fromMillis(now))
	if !ok {
		return refusal
	}
	e.out = out
	return nil
}

func (e *finishOp) endState() string {
	if e.p.StillRunning {
		return store.RunStopping
	}
	return e.p.State
}

// endStoppingSQL ends a stopping run and releases the session if nothing is left. The session's row is locked already.
const endStoppingSQL = `
WITH r AS (
	UPDATE runs SET state = 'stopped', ended_at = ` + nowSQL + `
	WHERE id = $3 AND session_key = $2 AND state = 'stopping'
	RETURNING id
)
UPDATE sessions s SET
	updated_at = ` + nowSQL + `,
	owner = CASE WHEN s.done_seq < s.last_seq OR EXISTS (
		SELECT 1 FROM runs b WHERE b.session_key = $2 AND b.ended_at IS NULL AND b.id <> $3) THEN s.owner END
WHERE s.key = $2 AND EXISTS (SELECT 1 FROM r)`

// EndStopping ends a run whose goroutine has returned, see store.Inbox.
func (s *Store) EndStopping(ctx context.Context, c store.Claim, runID string) error {
	return s.do(ctx, "ending a stopped run", func(ctx context.Context) error {
		b := &pgx.Batch{}
		s.fence(b, c)
		b.Queue(endStoppingSQL, s.clock(), c.Session.String(), runID)
		err := send(ctx, s.pool, b)
		if !errors.Is(translate(err), chat.ErrFenced) {
			return err
		}
		return s.stillStopping(ctx, c, runID, err)
	})
}

// stillStopping turns a refusal into success when there was nothing to do: the run has ended, or never existed.
func (s *Store) stillStopping(ctx context.Context, c store.Claim, runID string, fenced error) error {
	var stopping bool
	err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM runs WHERE id = $1 AND session_key = $2 AND state = 'stopping')`,
		runID, c.Session.String()).Scan(&stopping)
	if err == nil && stopping {
		return fenced
	}
	return err
}
