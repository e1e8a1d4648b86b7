-- A row here holds the gateway: nothing is sent, received from channels or started by the clock. A backup has one. The table may exist: a backup of an
-- older schema made it.

-- +goose Up
CREATE TABLE IF NOT EXISTS hold (
    id     INTEGER NOT NULL PRIMARY KEY, -- always 1
    since  INTEGER NOT NULL, -- milliseconds
    who    TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

-- +goose Down
DROP TABLE hold;
