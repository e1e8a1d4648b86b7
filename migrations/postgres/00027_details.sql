-- What the service behind an agent wrote about a run that failed, without secrets. Only administrators read it.

-- +goose Up
ALTER TABLE runs ADD COLUMN detail text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE runs DROP COLUMN detail;
