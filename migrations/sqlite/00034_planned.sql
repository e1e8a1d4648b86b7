-- The ledger by the planned time of its rows, which no update changes. A job's rows have that order in the index of its slots. The claims of the day that a
-- budget counts are found by the planned time too, but for those that came more than an hour after it.

-- +goose Up
CREATE INDEX cron_runs_planned ON cron_run_logs (scheduled_for, id);
CREATE INDEX cron_runs_planned_of_owner ON cron_run_logs (owner, scheduled_for, id);
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE claimed_at - scheduled_for > 3600000;
DROP INDEX cron_runs_of_job;
DROP INDEX cron_runs_of_owner;

-- +goose Down
CREATE INDEX cron_runs_of_job ON cron_run_logs (job_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX cron_runs_of_owner ON cron_run_logs (owner, finished_at) WHERE finished_at IS NOT NULL;
DROP INDEX cron_runs_late;
DROP INDEX cron_runs_planned_of_owner;
DROP INDEX cron_runs_planned;
