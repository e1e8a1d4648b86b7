-- The ledger by the planned time of its rows, which no update changes, so that the end of a run writes into fewer indexes. The claims of the day that a
-- budget counts are found by the planned time too, but for those that came more than an hour after it. What is searched by the time of an end or of a claim
-- (lists of sessions by their last change, processes of the release before) reads the ranges of a BRIN index. The gateways go on meanwhile; a step that was
-- interrupted can be repeated.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_planned;
CREATE INDEX CONCURRENTLY cron_run_logs_planned ON cron_run_logs (owner, scheduled_for DESC);
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_late;
CREATE INDEX CONCURRENTLY cron_run_logs_late ON cron_run_logs (owner, claimed_at) WHERE run_id IS NOT NULL AND claimed_at - scheduled_for > 3600000;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_times;
CREATE INDEX CONCURRENTLY cron_run_logs_times ON cron_run_logs USING brin (claimed_at, finished_at) WITH (pages_per_range = 32, autosummarize = on);
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_of_job;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_finished;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_budget;
ALTER TABLE cron_jobs SET (fillfactor = 50);
ALTER TABLE cron_run_logs SET (fillfactor = 40);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_of_job;
CREATE INDEX CONCURRENTLY cron_run_logs_of_job ON cron_run_logs (job_id, finished_at, id) WHERE finished_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_finished;
CREATE INDEX CONCURRENTLY cron_run_logs_finished ON cron_run_logs (finished_at, id) WHERE finished_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_budget;
CREATE INDEX CONCURRENTLY cron_run_logs_budget ON cron_run_logs (owner, claimed_at) WHERE run_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_times;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_late;
DROP INDEX CONCURRENTLY IF EXISTS cron_run_logs_planned;
ALTER TABLE cron_jobs SET (fillfactor = 70);
ALTER TABLE cron_run_logs SET (fillfactor = 50);
