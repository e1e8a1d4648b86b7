-- A list of jobs knows by the sum of a column that it has changed, so the counter of all changes goes. Active runs are those without an end, as on
-- PostgreSQL: the begin of a run then writes into no index.

-- +goose Up
ALTER TABLE cron_jobs ADD COLUMN list_mark INTEGER NOT NULL DEFAULT 0; -- a number of the job and its changes; see sqlstore
CREATE INDEX cron_jobs_listed ON cron_jobs (owner, list_mark);
DROP TABLE cron_changes;
DROP INDEX cron_runs_active;
CREATE INDEX cron_runs_active ON cron_run_logs (job_id, owner, claimed_at) WHERE finished_at IS NULL;
DROP INDEX cron_runs_retry;
CREATE INDEX cron_runs_retry ON cron_run_logs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
DROP INDEX cron_runs_late;
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE run_id <> '' AND claimed_at - scheduled_for > 3600000;

-- +goose Down
DROP INDEX cron_runs_late;
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE claimed_at - scheduled_for > 3600000;
DROP INDEX cron_runs_retry;
CREATE INDEX cron_runs_retry ON cron_run_logs (next_attempt_at) WHERE state = 'retrying';
DROP INDEX cron_runs_active;
CREATE INDEX cron_runs_active ON cron_run_logs (job_id, owner, claimed_at) WHERE state IN ('queued', 'running', 'retrying');
CREATE TABLE cron_changes (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    n  INTEGER NOT NULL
) STRICT;
INSERT INTO cron_changes (id, n) VALUES (1, 0);
DROP INDEX cron_jobs_listed;
ALTER TABLE cron_jobs DROP COLUMN list_mark;
