-- Sub-turns by the time of their acceptance, for lists that begin with the newest.

-- +goose Up
CREATE INDEX inbox_task_times ON inbox (accepted_at DESC, message_id) WHERE parent IS NOT NULL;

-- +goose Down
DROP INDEX inbox_task_times;
