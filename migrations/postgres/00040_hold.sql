-- A row here holds the gateway: nothing is sent, received from channels or started by the clock. A backup has one. The table may exist: a backup of an
-- older schema made it.

-- +goose Up
CREATE TABLE IF NOT EXISTS hold (
    id     bigint NOT NULL PRIMARY KEY, -- always 1
    since  bigint NOT NULL, -- milliseconds
    who    text NOT NULL,
    reason text NOT NULL
);

-- +goose Down
DROP TABLE hold;
