-- Messages that running turns have asked for. No index names the column state: it changes with every turn, and such a change stays within its page.

-- +goose Up
ALTER TABLE inbox ADD COLUMN parent text; -- run whose agent asked for the message; NULL = none did
ALTER TABLE inbox ADD COLUMN root text; -- run at the root of its tree; NULL = it is in none
ALTER TABLE inbox ADD COLUMN announce bigint NOT NULL DEFAULT 0; -- 1 = its end is to be announced in the session of the parent
CREATE INDEX inbox_parent ON inbox (parent) WHERE parent IS NOT NULL;
CREATE INDEX inbox_root ON inbox (root) WHERE root IS NOT NULL;
CREATE INDEX inbox_tasks ON inbox (parent) WHERE parent IS NOT NULL AND (ended_at IS NULL OR announce = 1);

-- +goose Down
DROP INDEX inbox_tasks;
DROP INDEX inbox_root;
DROP INDEX inbox_parent;
ALTER TABLE inbox DROP COLUMN announce;
ALTER TABLE inbox DROP COLUMN root;
ALTER TABLE inbox DROP COLUMN parent;
