package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// previewBytes is how much of an answer a list shows.
const previewBytes = 200

// finishSQL ends a run with everything that belongs to it, and divides by zero when the run is not under way under this
// claim. The session's row is locked already, so that "nothing is left" is decided on what was committed before, and an
// accept that waits for the lock will find the session free. Parameters: $1 clock, $2 session, $3 run, $4 node, $5 epoch, $6 outgoing
// messages, $7 number of transcript entries, $8 the entries, $9 state, $10 outcome, $11 cause, $12 error, $13 requeue, $14 still running,
// $15 preview, $16-$19 usage, $20 id of the notice or NULL, $21 its n.
const finishSQL = `
WITH r AS (
	UPDATE runs SET
		state = CASE WHEN $14::boolean THEN 'stopping' ELSE $9 END, cause = $11, error = $12,
		input_tokens = $16, output_tokens = $17, model = $18, provider = $19,
		ended_at = CASE WHEN $14::boolean THEN NULL ELSE ` + nowSQL + ` END
	WHERE id = $3 AND session_key = $2 AND owner = $4 AND epoch = $5 AND state = 'running'
	RETURNING session_id
), m AS (
	SELECT seq, message_id FROM inbox WHERE session_key = $2 AND ended_at IS NULL AND state = 'running' AND run_id = $3
), lead AS (
	SELECT COALESCE(max(seq) FILTER (WHERE message_id = $3), max(seq)) AS seq, count(*) AS n FROM m
), sent AS (
	INSERT INTO outbox (` + outgoingColumns + `)
	SELECT o.id, $3, o.n, o.session, o.channel, o.chat, o.thread, o.kind, o.payload, o.many, o.count, o.word, $5,
		` + nowSQL + ` + o.delay, o.expires, ` + nowSQL + `
	FROM ` + outgoingFrom + `($6::json)` + outgoingAs + ` ORDER BY o.i
	ON CONFLICT DO NOTHING
), i AS (
	UPDATE inbox SET
		state = CASE WHEN $13::boolean THEN 'waiting' ELSE 'done' END,
		outcome = CASE WHEN $13::boolean THEN NULL WHEN inbox.seq <> lead.seq AND $10 = 'answered' THEN 'merged' ELSE $10 END,
		merged_into = CASE WHEN NOT $13::boolean AND inbox.seq <> lead.seq AND $10 = 'answered' THEN lead.seq END,
		reason = CASE WHEN $13::boolean THEN reason ELSE $11 END,
		notice_id = CASE WHEN $13::boolean OR $20::text IS NULL THEN notice_id
			ELSE COALESCE(notice_id, (SELECT id FROM outbox WHERE run_id = $3 AND n = $21::bigint), $20::text) END,
		ended_at = CASE WHEN NOT $13::boolean THEN ` + nowSQL + ` END
	FROM lead
	WHERE session_key = $2 AND inbox.seq IN (SELECT m.seq FROM m)
	RETURNING inbox.*
), rest AS (
	SELECT min(seq) AS first FROM inbox
	WHERE session_key = $2 AND ended_at IS NULL AND ($13::boolean OR state <> 'running' OR run_id <> $3)
), s AS (
	UPDATE sessions s SET
		done_seq = COALESCE(rest.first - 1, s.last_seq),
		taken_seq = GREATEST(s.taken_seq, COALESCE(rest.first - 1, s.last_seq)),
		waiting = s.waiting + CASE WHEN $13::boolean THEN lead.n ELSE 0 END,
		owner = CASE WHEN rest.first IS NOT NULL OR $14::boolean OR EXISTS (
			SELECT 1 FROM runs b WHERE b.session_key = $2 AND b.ended_at IS NULL AND b.id <> $3) THEN s.owner END,
		last_run_id = CASE WHEN $13::boolean THEN s.last_run_id ELSE $3 END,
		last_state = CASE WHEN $13::boolean THEN s.last_state ELSE $9 END,
		last_cause = CASE WHEN $13::boolean THEN s.last_cause ELSE $11 END,
		last_error = CASE WHEN $13::boolean THEN s.last_error ELSE $12 END,
		preview = CASE WHEN $13::boolean OR $15 = '' THEN s.preview ELSE $15 END,
		total_tokens = s.total_tokens + CASE WHEN $13::boolean THEN 0 ELSE $16::bigint + $17::bigint END,
		transcript_seq = s.transcript_seq + $7::bigint,
		updated_at = ` + nowSQL + `
	FROM rest, lead
	WHERE s.key = $2
	RETURNING s.owner IS NULL AS released, s.transcript_seq, s.updated_at AS now
), said AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT $2, r.session_id, s.transcript_seq - $7::bigint + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now
	FROM s, r, ` + entriesFrom + `($8::json)` + entriesAs + `
)
SELECT 1 / (SELECT count(*) FROM r), s.released, s.transcript_seq, s.now,
	(SELECT count(*) FROM i WHERE i.outcome = 'merged')
FROM s`

// mergedSQL reads the messages of a run that ended merged.
const mergedSQL = `
SELECT ` + waitingColumns + ` FROM inbox i
WHERE i.session_key = $1 AND i.run_id = $2 AND i.outcome = 'merged' AND i.seq >= (SELECT seq_from FROM runs WHERE id = $2)
ORDER BY i.seq`

// Finish ends a run, see store.Inbox. One round trip; a second one reads the merged messages if there are any.
func (s *Store) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if p.Outcome == "" && !p.Requeue {
		return store.Finished{}, chat.Errorf(chat.CodeInvalid, "a run that ends needs an outcome")
	}
	e, err := s.newEnding(p)
	if err != nil {
		return store.Finished{}, err
	}
	tries := 0
	err = s.do(ctx, "finishing a run", func(ctx context.Context) error {
		tries++
		err := e.finish(ctx)
		if tries > 1 && errors.Is(translate(err), chat.ErrFenced) {
			return e.finishedBefore(ctx, err)
		}
		return err
	})
	return e.out, err
}

// ending is one run on its way out.
type ending struct {
	s          *Store
	p          store.FinishParams
	outgoing   string
	transcript string
	notice     any // id of the last notice, or nil
	noticeN    any
	out        store.Finished
}

func (s *Store) newEnding(p store.FinishParams) (*ending, error) {
	e := &ending{s: s, p: p}
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
			e.notice, e.noticeN = o.ID, o.N
		}
		rows = append(rows, o)
	}
	var err error
	if e.outgoing, err = encodeOutgoing(rows); err != nil {
		return nil, err
	}
	e.transcript, err = encodeEntries(p.Transcript)
	return e, err
}

func (e *ending) args() []any {
	p := e.p
	return []any{
		e.s.clock(), p.Session.String(), p.RunID, p.Node, p.Epoch, e.outgoing, len(p.Transcript), e.transcript,
		p.State, string(p.Outcome), clean(p.Cause), clean(p.Error), p.Requeue, p.StillRunning, chat.Cut(clean(p.Preview), previewBytes),
		p.Usage.InputTokens, p.Usage.OutputTokens, clean(p.Usage.Model), clean(p.Usage.Provider), e.notice, e.noticeN,
	}
}

func (e *ending) finish(ctx context.Context) error {
	e.out = store.Finished{}
	var merged int
	b := &pgx.Batch{}
	e.s.fence(b, e.p.Claim)
	b.Queue(finishSQL, e.args()...).QueryRow(func(row pgx.Row) error {
		var lastEntry, now int64
		if err := row.Scan(nil, &e.out.Released, &lastEntry, &now, &merged); err != nil {
			return err
		}
		e.out.EndedAt = fromMillis(now)
		e.out.Entries = numbered(e.p.Transcript, lastEntry, e.out.EndedAt)
		return nil
	})
	if err := send(ctx, e.s.pool, b); err != nil || merged == 0 {
		return err
	}
	return e.readMerged(ctx)
}

func (e *ending) readMerged(ctx context.Context) error {
	rows, err := e.s.pool.Query(ctx, mergedSQL, e.p.Session.String(), e.p.RunID)
	if err != nil {
		return err
	}
	e.out.Merged, err = pgx.CollectRows(rows, scanWaiting)
	return err
}

// finishedBefore looks whether an earlier try of this very call was committed although its answer was lost.
func (e *ending) finishedBefore(ctx context.Context, fenced error) error {
	rows, err := e.s.pool.Query(ctx, `SELECT `+runColumns+` FROM runs r WHERE r.id = $1`, e.p.RunID)
	if err != nil {
		return err
	}
	run, err := pgx.CollectExactlyOneRow(rows, scanRun)
	if err != nil {
		return fenced
	}
	ours := run.Owner == e.p.Node && run.Epoch == e.p.Epoch && run.State == e.endState() && run.Cause == e.p.Cause
	if !ours {
		return fenced
	}
	e.out = store.Finished{EndedAt: run.EndedAt}
	if e.out.Entries, err = e.s.runEntries(ctx, e.p.Session, e.p.RunID, len(e.p.Transcript)); err != nil {
		return err
	}
	return e.readMerged(ctx)
}

func (e *ending) endState() string {
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

// stillStopping makes a refusal a success when there was nothing to do: the run has ended, or never was.
func (s *Store) stillStopping(ctx context.Context, c store.Claim, runID string, fenced error) error {
	var stopping bool
	err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM runs WHERE id = $1 AND session_key = $2 AND state = 'stopping')`,
		runID, c.Session.String()).Scan(&stopping)
	if err == nil && stopping {
		return fenced
	}
	return err
}
