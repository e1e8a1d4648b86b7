-- How many calls each principal has left in this minute, for all replicas together. It is lost with a crash of the server, which costs
-- each principal at most a minute's allowance; so the table is unlogged.

-- +goose Up
CREATE UNLOGGED TABLE allowances (
    name   text             NOT NULL PRIMARY KEY,
    tokens double precision NOT NULL,
    got    bigint           NOT NULL, -- by the last call
    at     bigint           NOT NULL
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE allowances;
