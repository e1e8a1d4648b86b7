-- An outbox row has the choices that its message offers. A repeated press of a button gets the result of the first.

-- +goose Up
ALTER TABLE outbox ADD COLUMN choice text NOT NULL DEFAULT ''; -- JSON, '' = nothing
ALTER TABLE buttons ADD COLUMN used_by bigint; -- the press that used the button; the other buttons of its message are deleted

-- +goose Down
ALTER TABLE buttons DROP COLUMN used_by;
ALTER TABLE outbox DROP COLUMN choice;
