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
ALTER TABLE cron_run_logs DROP COLUMN preview;
ALTER TABLE cron_run_logs DROP COLUMN transcript;
ALTER TABLE cron_run_logs DROP COLUMN entries;
ALTER TABLE cron_run_logs DROP COLUMN body;
ALTER TABLE cron_run_logs DROP COLUMN session_id;
ALTER TABLE cron_run_logs DROP COLUMN principal;
ALTER TABLE cron_run_logs DROP COLUMN compact;

-- +goose Down
ALTER TABLE cron_run_logs ADD COLUMN compact INTEGER NOT NULL DEFAULT 0;    -- 1: there are no other rows
ALTER TABLE cron_run_logs ADD COLUMN principal TEXT NOT NULL DEFAULT '';    -- of the message
ALTER TABLE cron_run_logs ADD COLUMN session_id TEXT NOT NULL DEFAULT '';   -- of the transcript
ALTER TABLE cron_run_logs ADD COLUMN body TEXT NOT NULL DEFAULT '';         -- of the message
ALTER TABLE cron_run_logs ADD COLUMN entries INTEGER NOT NULL DEFAULT 0;    -- of the transcript
ALTER TABLE cron_run_logs ADD COLUMN transcript TEXT NOT NULL DEFAULT '';   -- the elements of a JSON array
ALTER TABLE cron_run_logs ADD COLUMN preview TEXT NOT NULL DEFAULT '';

CREATE VIEW compact_sessions AS
SELECT id AS of, session_key AS key, agent, principal, session_id, lane, iif(finished_at IS NULL, node, NULL) AS owner, 1 AS epoch,
    1 AS last_seq, iif(state = 'queued', 0, 1) AS taken_seq, iif(finished_at IS NULL, 0, 1) AS done_seq, 0 AS stop_seq,
    iif(state = 'queued', 1, 0) AS waiting, 1 AS run_limit, '' AS mode, '{}' AS notes, 0 AS debounce_until, claimed_at AS created_at,
    coalesce(finished_at, started_at, claimed_at) AS updated_at, claimed_at AS last_message_at,
    iif(finished_at IS NULL, '', id) AS last_run_id, iif(finished_at IS NULL, '', 'ok') AS last_state, '' AS last_cause, '' AS last_error,
    preview, iif(finished_at IS NULL, 0, input_tokens + output_tokens) AS total_tokens, entries AS transcript_seq,
    state, finished_at
FROM cron_run_logs WHERE compact = 1;

CREATE VIEW compact_inbox AS
SELECT id AS of, session_key, 1 AS seq, id AS message_id, 'cron:' || id AS dedupe, '' AS params_hash, 'cron' AS channel, 0 AS external_id,
    principal, coalesce(body -> '$.sender', '{}') AS sender, body, lane,
    CASE WHEN finished_at IS NOT NULL THEN 'done' WHEN state = 'queued' THEN 'waiting' ELSE 'running' END AS state,
    iif(finished_at IS NULL, NULL, 'answered') AS outcome, '' AS reason, iif(started_at IS NULL, NULL, id) AS run_id, NULL AS merged_into,
    NULL AS notice_id, node, claimed_at AS accepted_at, finished_at AS ended_at
FROM cron_run_logs WHERE compact = 1;

CREATE VIEW compact_runs AS
SELECT id AS of, id, session_key, session_id, 1 AS seq_from, 1 AS seq_to, lane, node AS owner, 1 AS epoch, 1 AS attempt, 0 AS crashes,
    iif(finished_at IS NULL, 'running', 'ok') AS state, '' AS cause, '' AS error, '' AS detail, NULL AS stop_by, claimed_at AS queued_at, started_at,
    finished_at AS ended_at, input_tokens, output_tokens, model, provider
FROM cron_run_logs WHERE compact = 1 AND started_at IS NOT NULL;

CREATE VIEW compact_transcript AS
SELECT l.id AS of, l.session_key, l.session_id, e.key + 1 AS seq, e.value ->> '$.run' AS run_id, e.value ->> '$.role' AS role,
    e.value ->> '$.content' AS content, e.value ->> '$.sender' AS sender, e.value ->> '$.tokens' AS tokens,
    e.value ->> '$.reason' AS stop_reason, e.value ->> '$.command' AS command,
    iif(e.value ->> '$.answer', l.finished_at, l.started_at) AS at, 0 AS from_seq, 0 AS to_seq
FROM cron_run_logs l, json_each('[' || l.transcript || ']') e WHERE l.compact = 1;
