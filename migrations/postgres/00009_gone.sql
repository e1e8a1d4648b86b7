-- A job whose chat does not exist any more records that its answers are kept and not sent.

-- +goose Up
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_at bigint; -- NULL = answers are sent
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_why text NOT NULL DEFAULT '';
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_channel text NOT NULL DEFAULT ''; -- the address, as it stands in the outbox
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_chat text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_chat;
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_channel;
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_why;
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_at;
