-- A run of a job is a message in every case. The rows of runs that were one row of the ledger are written from it, and its columns for them go.

-- +goose Up
INSERT INTO sessions (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at,
    last_message_at, last_run_id, last_state, preview, total_tokens, transcript_seq)
SELECT key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq, waiting, created_at, updated_at,
    last_message_at, last_run_id, last_state, preview, total_tokens, transcript_seq FROM compact_sessions;
INSERT INTO inbox (session_key, seq, message_id, dedupe, channel, principal, sender, body, lane, state, outcome, run_id, node, accepted_at, ended_at)
SELECT session_key, seq, message_id, dedupe, channel, principal, sender, body, lane, state, outcome, run_id, node, accepted_at, ended_at FROM compact_inbox;
INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, ended_at,
    input_tokens, output_tokens, model, provider)
SELECT id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at, ended_at,
    input_tokens, output_tokens, model, provider FROM compact_runs;
INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at)
SELECT session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at FROM compact_transcript;
DROP VIEW compact_transcript;
DROP VIEW compact_runs;
DROP VIEW compact_inbox;
DROP VIEW compact_sessions;
ALTER TABLE cron_run_logs DROP COLUMN preview, DROP COLUMN transcript, DROP COLUMN entries, DROP COLUMN body, DROP COLUMN session_id,
    DROP COLUMN principal, DROP COLUMN compact;
ALTER TABLE nodes DROP COLUMN compact;

-- +goose Down
ALTER TABLE nodes ADD COLUMN compact smallint NOT NULL DEFAULT 0;
ALTER TABLE cron_run_logs
    ADD COLUMN compact smallint NOT NULL DEFAULT 0,   -- 1: there are no other rows
    ADD COLUMN principal text NOT NULL DEFAULT '',    -- of the message
    ADD COLUMN session_id text NOT NULL DEFAULT '',   -- of the transcript
    ADD COLUMN body text NOT NULL DEFAULT '',         -- of the message
    ADD COLUMN entries bigint NOT NULL DEFAULT 0,     -- of the transcript
    ADD COLUMN transcript text NOT NULL DEFAULT '',   -- the elements of a JSON array
    ADD COLUMN preview text NOT NULL DEFAULT '';

CREATE VIEW compact_sessions AS
SELECT id AS of, session_key AS key, agent, principal, session_id, lane, CASE WHEN finished_at IS NULL THEN node END AS owner, 1::bigint AS epoch,
    1::bigint AS last_seq, CASE WHEN state = 'queued' THEN 0 ELSE 1 END::bigint AS taken_seq,
    CASE WHEN finished_at IS NULL THEN 0 ELSE 1 END::bigint AS done_seq, 0::bigint AS stop_seq,
    CASE WHEN state = 'queued' THEN 1 ELSE 0 END::bigint AS waiting, 1::bigint AS run_limit, ''::text AS mode, '{}'::text AS notes,
    claimed_at AS created_at, COALESCE(finished_at, started_at, claimed_at) AS updated_at, claimed_at AS last_message_at,
    CASE WHEN finished_at IS NULL THEN '' ELSE id::text END AS last_run_id, CASE WHEN finished_at IS NULL THEN '' ELSE 'ok' END::text AS last_state,
    ''::text AS last_cause, ''::text AS last_error, preview,
    CASE WHEN finished_at IS NULL THEN 0 ELSE input_tokens + output_tokens END AS total_tokens, entries AS transcript_seq,
    finished_at
FROM cron_run_logs WHERE compact = 1;

CREATE VIEW compact_inbox AS
SELECT id AS of, session_key, 1::bigint AS seq, id::text AS message_id, 'cron:' || id AS dedupe, ''::text AS params_hash, 'cron'::text AS channel,
    0::bigint AS external_id, principal, COALESCE(body::json -> 'sender' ->> 'id', '') AS sender, body, lane,
    CASE WHEN finished_at IS NOT NULL THEN 'done' WHEN state = 'queued' THEN 'waiting' ELSE 'running' END::text AS state,
    CASE WHEN finished_at IS NOT NULL THEN 'answered' END::text AS outcome, ''::text AS reason,
    CASE WHEN started_at IS NOT NULL THEN id::text END AS run_id, NULL::bigint AS merged_into, node, claimed_at AS accepted_at, finished_at AS ended_at
FROM cron_run_logs WHERE compact = 1;

CREATE VIEW compact_runs AS
SELECT id AS of, id::text AS id, session_key, session_id, 1::bigint AS seq_from, 1::bigint AS seq_to, lane, node AS owner, 1::bigint AS epoch,
    1::bigint AS attempt, 0::bigint AS crashes, CASE WHEN finished_at IS NULL THEN 'running' ELSE 'ok' END::text AS state, ''::text AS cause,
    ''::text AS error, ''::text AS detail, ''::text AS stop_by, claimed_at AS queued_at, started_at, finished_at AS ended_at, input_tokens, output_tokens, model, provider
FROM cron_run_logs WHERE compact = 1 AND started_at IS NOT NULL;

CREATE VIEW compact_transcript AS
SELECT l.id AS of, l.session_key, l.session_id, e.n AS seq, e.v ->> 'run' AS run_id, e.v ->> 'role' AS role, e.v ->> 'content' AS content,
    e.v ->> 'sender' AS sender, (e.v ->> 'tokens')::bigint AS tokens, e.v ->> 'reason' AS stop_reason, (e.v ->> 'command')::boolean AS command,
    CASE WHEN (e.v ->> 'answer')::boolean THEN l.finished_at ELSE l.started_at END AS at,
    0::bigint AS from_seq, 0::bigint AS to_seq
FROM cron_run_logs l CROSS JOIN LATERAL json_array_elements(('[' || l.transcript || ']')::json) WITH ORDINALITY AS e(v, n) WHERE l.compact = 1;
