package postgres

// The end of runs writes everything that belongs to a run, or nothing when the run is not running under its claim. The fence comes before:
// the session's row is locked already, so "nothing is left" is decided on committed rows, and an accept that waits for the lock finds the
// session without an owner. In a transaction of its own such a run divides by zero, which undoes the following statements. Parameters: $1
// clock, then the columns of p, each of which is an array for several runs; $21 the outgoing messages, $22 the transcript entries.
const (
	finishOneSQL  = endOne + endRun + outcomes + appendEntries + orNothing
	finishManySQL = endMany + endRun + outcomes + appendEntries
	requeueSQL    = endOne + endRun + waitAgain + appendEntries + orNothing

	endOne = `
WITH p AS (
	SELECT 1 AS i, $2::text AS key, $3::text AS run, $4::text AS node, $5::bigint AS epoch, $6::text AS state,
		$7::text AS cause, $8::text AS error, $9::bigint AS input, $10::bigint AS output,
		$11::text AS model, $12::text AS provider, $13::bigint AS still, $14::bigint AS entries,
		$15::text AS outcome, $16::text AS preview, $17::text AS remember,
		NULLIF($18::text, '') AS notice, $19::bigint AS notice_n, $20::text AS detail
)`

	endMany = `
WITH p AS MATERIALIZED (
	SELECT i, ($2::text[])[i] AS key, ($3::text[])[i] AS run, ($4::text[])[i] AS node, ($5::bigint[])[i] AS epoch, ($6::text[])[i] AS state,
		($7::text[])[i] AS cause, ($8::text[])[i] AS error, ($9::bigint[])[i] AS input, ($10::bigint[])[i] AS output,
		($11::text[])[i] AS model, ($12::text[])[i] AS provider, ($13::bigint[])[i] AS still, ($14::bigint[])[i] AS entries,
		($15::text[])[i] AS outcome, ($16::text[])[i] AS preview, ($17::text[])[i] AS remember,
		NULLIF(($18::text[])[i], '') AS notice, ($19::bigint[])[i] AS notice_n, ($20::text[])[i] AS detail
	FROM ` + numbersSQL + ` WHERE i = ANY (` + heldSQL + `)
)`

	endRun = `, r AS (
	UPDATE runs r SET state = p.state, cause = p.cause, error = p.error, detail = p.detail,
		input_tokens = p.input, output_tokens = p.output, model = p.model, provider = p.provider,
		ended_at = CASE WHEN p.still = 1 THEN NULL ELSE ` + nowSQL + ` END
	FROM p
	WHERE r.id = p.run AND (r.session_key = p.key) IS TRUE AND r.owner = p.node AND r.epoch = p.epoch AND r.state IN ('running', 'yielded')
	RETURNING p.*, r.session_id
), q AS (
	SELECT r.*, l.lead, l.n, l.rest FROM r CROSS JOIN LATERAL (
		SELECT COALESCE(max(b.seq) FILTER (WHERE b.mine AND b.message_id = r.run), max(b.seq) FILTER (WHERE b.mine)) AS lead,
			count(*) FILTER (WHERE b.mine) AS n, min(b.seq) FILTER (WHERE NOT b.mine) AS rest
		FROM (
			SELECT seq, message_id, state = 'running' AND run_id = r.run AS mine FROM inbox WHERE session_key = r.key AND ended_at IS NULL
		) b
	) l
), m AS (
	SELECT q.*, b.place FROM q CROSS JOIN LATERAL (
		SELECT ctid AS place FROM inbox WHERE session_key = q.key AND ended_at IS NULL AND state = 'running' AND run_id = q.run OFFSET 0
	) b
), sent AS (
	INSERT INTO outbox (` + outgoingColumns + `)
	SELECT o.id, r.run, o.n, o.session, o.channel, o.chat, o.thread, o.kind, o.payload, o.many, o.count, o.word, r.epoch,
		` + nowSQL + ` + o.delay, o.expires, ` + nowSQL + `, ` + partsSQL + `
	FROM r JOIN ` + outgoingFrom + `($21::json)` + outgoingAs + ` ON o.run = r.run
	ORDER BY r.i, o.i
	ON CONFLICT DO NOTHING
)`

	// outcomes gives the messages their outcomes.
	outcomes = `, done AS (
	UPDATE inbox b SET state = 'done', reason = m.cause, ended_at = ` + nowSQL + `,
		outcome = CASE WHEN b.seq <> m.lead AND m.outcome = 'answered' THEN 'merged' ELSE m.outcome END,
		merged_into = CASE WHEN b.seq <> m.lead AND m.outcome = 'answered' THEN m.lead END,
		notice_id = CASE WHEN m.notice IS NULL THEN b.notice_id
			ELSE COALESCE(b.notice_id, (SELECT id FROM outbox WHERE run_id = m.run AND n = m.notice_n), m.notice) END
	FROM m WHERE b.ctid = m.place AND b.ended_at IS NULL
), s AS (
	UPDATE sessions s SET
		done_seq = COALESCE(q.rest - 1, s.last_seq),
		taken_seq = GREATEST(s.taken_seq, COALESCE(q.rest - 1, s.last_seq)),
		owner = CASE WHEN q.rest IS NOT NULL OR q.still = 1 OR EXISTS (
			SELECT 1 FROM runs b WHERE b.session_key = q.key AND b.ended_at IS NULL AND b.id <> q.run) THEN s.owner END,
		last_run_id = q.run, last_state = q.remember, last_cause = q.cause, last_error = q.error,
		preview = CASE WHEN q.preview = '' THEN s.preview ELSE q.preview END,
		total_tokens = s.total_tokens + q.input + q.output,
		transcript_seq = s.transcript_seq + q.entries,
		updated_at = ` + nowSQL + `
	FROM q
	WHERE s.key = q.key
	RETURNING q.i, q.key, q.run, q.session_id, q.entries, q.n, s.owner IS NULL AS released, s.transcript_seq, s.updated_at AS now
)`

	// waitAgain lets the messages wait again. They are held, because they have a place already; the session keeps its owner, because it has
	// unfinished messages.
	waitAgain = `, again AS (
	UPDATE inbox b SET state = 'held'
	FROM m WHERE b.ctid = m.place AND b.ended_at IS NULL
), s AS (
	UPDATE sessions s SET waiting = s.waiting + q.n, transcript_seq = s.transcript_seq + q.entries, updated_at = ` + nowSQL + `
	FROM q
	WHERE s.key = q.key
	RETURNING q.i, q.key, q.run, q.session_id, q.entries, q.n, false AS released, s.transcript_seq, s.updated_at AS now
)`

	appendEntries = `, said AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT s.key, s.session_id, s.transcript_seq - s.entries + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now
	FROM s JOIN ` + entriesFrom + `($22::json)` + entriesAs + ` ON e.of = s.run
)
SELECT s.i, s.released, s.transcript_seq, s.now, s.n FROM s`

	orNothing = ` RIGHT JOIN (SELECT 1 / count(*) AS ended FROM r) one ON one.ended > 0`
)
