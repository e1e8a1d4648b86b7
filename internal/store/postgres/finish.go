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

// A run ends with everything that belongs to it, or, when it is not under way under this claim, by a division by zero. The
// session's row is locked already, so that "nothing is left" is decided on what was committed before, and an accept that waits for
// the lock will find the session free. Parameters: $1 clock, $2 session, $3 run, $4 node, $5 epoch, $6 outgoing messages, $7
// number of transcript entries, $8 the entries, $9 state of the run row, $10 cause, $11 error, $12-$15 usage, $16 whether the
// goroutine still runs.
const (
	endRun = `
WITH r AS (
	UPDATE runs SET state = $9, cause = $10, error = $11,
		input_tokens = $12, output_tokens = $13, model = $14, provider = $15,
		ended_at = CASE WHEN $16::boolean THEN NULL ELSE ` + nowSQL + ` END
	WHERE id = $3 AND (session_key = $2) IS TRUE AND owner = $4 AND epoch = $5 AND state = 'running'
	RETURNING session_id
), lead AS (
	SELECT COALESCE(max(seq) FILTER (WHERE message_id = $3), max(seq)) AS seq, count(*) AS n FROM inbox
	WHERE session_key = $2 AND ended_at IS NULL AND state = 'running' AND run_id = $3
), sent AS (
	INSERT INTO outbox (` + outgoingColumns + `)
	SELECT o.id, $3, o.n, o.session, o.channel, o.chat, o.thread, o.kind, o.payload, o.many, o.count, o.word, $5,
		` + nowSQL + ` + o.delay, o.expires, ` + nowSQL + `
	FROM ` + outgoingFrom + `($6::json)` + outgoingAs + `
	ON CONFLICT DO NOTHING
)`

	saidAndDone = `, said AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT $2, r.session_id, s.transcript_seq - $7::bigint + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now
	FROM s, r, ` + entriesFrom + `($8::json)` + entriesAs + `
)
SELECT 1 / (SELECT count(*) FROM r), s.released, s.transcript_seq, s.now, s.n FROM s`

	// finishSQL gives the messages their outcomes. $17 outcome, $18 preview, $19 state to remember, $20 id of the notice or NULL, $21 its n.
	finishSQL = endRun + `, i AS (
	UPDATE inbox SET state = 'done', reason = $10, ended_at = ` + nowSQL + `,
		outcome = CASE WHEN inbox.seq <> lead.seq AND $17 = 'answered' THEN 'merged' ELSE $17 END,
		merged_into = CASE WHEN inbox.seq <> lead.seq AND $17 = 'answered' THEN lead.seq END,
		notice_id = CASE WHEN $20::text IS NULL THEN notice_id
			ELSE COALESCE(notice_id, (SELECT id FROM outbox WHERE run_id = $3 AND n = $21::bigint), $20::text) END
	FROM lead
	WHERE session_key = $2 AND ended_at IS NULL AND state = 'running' AND run_id = $3
), rest AS (
	SELECT min(seq) AS first FROM inbox WHERE session_key = $2 AND ended_at IS NULL AND (state <> 'running' OR run_id <> $3)
), s AS (
	UPDATE sessions s SET
		done_seq = COALESCE(rest.first - 1, s.last_seq),
		taken_seq = GREATEST(s.taken_seq, COALESCE(rest.first - 1, s.last_seq)),
		owner = CASE WHEN rest.first IS NOT NULL OR $16::boolean OR EXISTS (
			SELECT 1 FROM runs b WHERE b.session_key = $2 AND b.ended_at IS NULL AND b.id <> $3) THEN s.owner END,
		last_run_id = $3, last_state = $19, last_cause = $10, last_error = $11,
		preview = CASE WHEN $18 = '' THEN s.preview ELSE $18 END,
		total_tokens = s.total_tokens + $12::bigint + $13::bigint,
		transcript_seq = s.transcript_seq + $7::bigint,
		updated_at = ` + nowSQL + `
	FROM rest, lead
	WHERE s.key = $2
	RETURNING s.owner IS NULL AS released, s.transcript_seq, s.updated_at AS now, lead.n
)` + saidAndDone

	// requeueSQL lets the messages wait again. They are held, because they have their place; the session keeps its owner, because there is something left.
	requeueSQL = endRun + `, i AS (
	UPDATE inbox SET state = 'held'
	WHERE session_key = $2 AND ended_at IS NULL AND state = 'running' AND run_id = $3
), s AS (
	UPDATE sessions s SET waiting = s.waiting + lead.n, transcript_seq = s.transcript_seq + $7::bigint, updated_at = ` + nowSQL + `
	FROM lead
	WHERE s.key = $2
	RETURNING false AS released, s.transcript_seq, s.updated_at AS now, lead.n
)` + saidAndDone
)

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

// statement is the SQL and its parameters.
func (e *ending) statement() (string, []any) {
	p := e.p
	args := []any{
		e.s.clock(), p.Session.String(), p.RunID, p.Node, p.Epoch, e.outgoing, len(p.Transcript), e.transcript,
		e.endState(), clean(p.Cause), clean(p.Error),
		p.Usage.InputTokens, p.Usage.OutputTokens, clean(p.Usage.Model), clean(p.Usage.Provider), p.StillRunning,
	}
	if p.Requeue {
		return requeueSQL, args
	}
	return finishSQL, append(args, string(p.Outcome), chat.Cut(clean(p.Preview), previewBytes), p.State, e.notice, e.noticeN)
}

func (e *ending) finish(ctx context.Context) error {
	e.out = store.Finished{}
	var messages int
	b := &pgx.Batch{}
	e.s.fence(b, e.p.Claim)
	sql, args := e.statement()
	b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
		var lastEntry, now int64
		if err := row.Scan(nil, &e.out.Released, &lastEntry, &now, &messages); err != nil {
			return err
		}
		e.out.EndedAt = fromMillis(now)
		e.out.Entries = numbered(e.p.Transcript, lastEntry, e.out.EndedAt)
		return nil
	})
	err := send(ctx, e.s.pool, b)
	if err != nil || messages < 2 || e.p.Requeue || e.p.Outcome != chat.OutcomeAnswered {
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
