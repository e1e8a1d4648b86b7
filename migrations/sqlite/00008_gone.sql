-- A job whose chat does not exist any more records that its answers are kept and not sent.

-- +goose Up
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_at INTEGER; -- NULL = answers are sent
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_why TEXT NOT NULL DEFAULT '';
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_channel TEXT NOT NULL DEFAULT ''; -- the address, as it stands in the outbox
ALTER TABLE cron_jobs ADD COLUMN delivery_paused_chat TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_chat;
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_channel;
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_why;
ALTER TABLE cron_jobs DROP COLUMN delivery_paused_at;
