-- What the deletion of a session has to find: the questions, the outgoing messages and the ledger rows of a session. Runs that have a session of their own
-- are found by their id.

-- +goose Up
ALTER TABLE tool_questions ADD COLUMN session_key TEXT NOT NULL DEFAULT ''; -- '' = asked before this column existed
CREATE INDEX outbox_session ON outbox (session_key) WHERE session_key <> '';
CREATE INDEX outbox_to_session ON outbox (chat_id) WHERE channel = 'web';
CREATE INDEX cron_runs_shared ON cron_run_logs (session_key) WHERE session_key NOT LIKE '%:cron:%';

-- +goose Down
DROP INDEX cron_runs_shared;
DROP INDEX outbox_to_session;
DROP INDEX outbox_session;
UPDATE outbox SET state = 'expired' WHERE state = 'deleted';
ALTER TABLE tool_questions DROP COLUMN session_key;
