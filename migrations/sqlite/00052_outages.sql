-- The times during which no process fired jobs, and what the log of changes has of one object.

-- +goose Up
ALTER TABLE nodes ADD COLUMN fires INTEGER NOT NULL DEFAULT 0; -- the process fires jobs
CREATE TABLE cron_outages (
    from_at  INTEGER NOT NULL PRIMARY KEY,
    until_at INTEGER -- NULL: it goes on
) STRICT;
CREATE INDEX audit_log_object ON audit_log (object, at);

-- +goose Down
DROP INDEX audit_log_object;
DROP TABLE cron_outages;
ALTER TABLE nodes DROP COLUMN fires;
