-- Messages that running turns have asked for, and runs that wait for them. The new index of runs stands beside the old one, which programs of older
-- versions name in their statements.

-- +goose Up
ALTER TABLE inbox ADD COLUMN parent TEXT; -- run whose agent asked for the message; NULL = none did
ALTER TABLE inbox ADD COLUMN root TEXT; -- run at the root of its tree; NULL = it is in none
ALTER TABLE inbox ADD COLUMN announce INTEGER NOT NULL DEFAULT 0; -- 1 = its end is to be announced in the session of the parent
CREATE INDEX inbox_parent ON inbox (parent) WHERE parent IS NOT NULL;
CREATE INDEX inbox_root ON inbox (root) WHERE root IS NOT NULL;
CREATE INDEX inbox_tasks ON inbox (parent) WHERE parent IS NOT NULL AND (state <> 'done' OR announce = 1);
CREATE INDEX runs_open ON runs (session_key) WHERE state IN ('running', 'stopping', 'yielded');

-- +goose Down
DROP INDEX runs_open;
DROP INDEX inbox_tasks;
DROP INDEX inbox_root;
DROP INDEX inbox_parent;
ALTER TABLE inbox DROP COLUMN announce;
ALTER TABLE inbox DROP COLUMN root;
ALTER TABLE inbox DROP COLUMN parent;
