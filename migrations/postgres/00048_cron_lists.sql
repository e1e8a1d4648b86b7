-- A list of jobs knows by the sum of a column that it has changed. The message of a run is '' where it has none, as on SQLite.

-- +goose Up
ALTER TABLE cron_jobs ADD COLUMN list_mark bigint NOT NULL DEFAULT 0; -- a number of the job and its changes; see sqlstore
CREATE INDEX cron_jobs_listed ON cron_jobs (owner, list_mark);
DROP INDEX cron_run_logs_late;
UPDATE cron_run_logs SET run_id = '' WHERE run_id IS NULL;
ALTER TABLE cron_run_logs ALTER COLUMN run_id SET DEFAULT '';
ALTER TABLE cron_run_logs ALTER COLUMN run_id SET NOT NULL;
CREATE INDEX cron_run_logs_late ON cron_run_logs (owner, claimed_at) WHERE run_id <> '' AND claimed_at - scheduled_for > 3600000;

-- +goose Down
DROP INDEX cron_run_logs_late;
ALTER TABLE cron_run_logs ALTER COLUMN run_id DROP NOT NULL;
ALTER TABLE cron_run_logs ALTER COLUMN run_id DROP DEFAULT;
UPDATE cron_run_logs SET run_id = NULL WHERE run_id = '';
CREATE INDEX cron_run_logs_late ON cron_run_logs (owner, claimed_at) WHERE run_id IS NOT NULL AND claimed_at - scheduled_for > 3600000;
DROP INDEX cron_jobs_listed;
ALTER TABLE cron_jobs DROP COLUMN list_mark;
