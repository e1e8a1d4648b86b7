-- What the deletion of a session has to find: the questions, the outgoing messages and the ledger rows of a session. Runs that have a session of their own
-- are found by their id. The gateways continue meanwhile; a step that was interrupted can be repeated.

-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE tool_questions ADD COLUMN IF NOT EXISTS session_key text NOT NULL DEFAULT ''; -- '' = asked before this column existed
DROP INDEX CONCURRENTLY IF EXISTS outbox_session;
CREATE INDEX CONCURRENTLY outbox_session ON outbox (session_key) WHERE session_key <> '';
DROP INDEX CONCURRENTLY IF EXISTS outbox_to_session;
CREATE INDEX CONCURRENTLY outbox_to_session ON outbox (chat_id) WHERE channel = 'web';
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_shared;
CREATE INDEX CONCURRENTLY cron_run_logs_shared ON cron_run_logs (session_key) WHERE session_key NOT LIKE '%:cron:%';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_shared;
DROP INDEX CONCURRENTLY IF EXISTS outbox_to_session;
DROP INDEX CONCURRENTLY IF EXISTS outbox_session;
UPDATE outbox SET state = 'expired' WHERE state = 'deleted';
ALTER TABLE tool_questions DROP COLUMN IF EXISTS session_key;
