-- What a message offers to choose from travels with it through the outbox, and a press that comes again says what it said before.

-- +goose Up
ALTER TABLE outbox ADD COLUMN choice text NOT NULL DEFAULT ''; -- JSON, '' = nothing
ALTER TABLE buttons ADD COLUMN used_by bigint; -- the press that used the button up; the others of its message are gone

-- +goose Down
ALTER TABLE buttons DROP COLUMN used_by;
ALTER TABLE outbox DROP COLUMN choice;
