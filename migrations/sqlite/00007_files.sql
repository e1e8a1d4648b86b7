-- A file that an agent made travels through the outbox in a row of its own; the row names it, the bytes are in the directory for attachments.

-- +goose Up
ALTER TABLE outbox ADD COLUMN file TEXT NOT NULL DEFAULT ''; -- JSON, '' = none

-- +goose Down
ALTER TABLE outbox DROP COLUMN file;
