-- The table of contents of conversations: what the sessions of an owner were about on a day (toc_parts), and summaries of those by week and by month
-- (toc_nodes). Entries of a session above toc_progress.upto belong to no part yet.

-- +goose Up
CREATE TABLE toc_progress (
    session_key text   NOT NULL PRIMARY KEY,
    upto        bigint NOT NULL -- the highest number of an entry that a part stands for
);
CREATE TABLE toc_parts (
    session_key text   NOT NULL,
    day         text   NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    owner       text   NOT NULL,
    week        text   NOT NULL, -- as in 2026-W11
    month       text   NOT NULL, -- of the Thursday of the week, as in 2026-03
    from_seq    bigint NOT NULL,
    to_seq      bigint NOT NULL,
    entries     bigint NOT NULL, -- how many it stands for
    text        text   NOT NULL,
    made        bigint NOT NULL, -- how many times it was made: more than once for a long day, and for entries that came late
    made_at     bigint NOT NULL,
    PRIMARY KEY (session_key, day)
);
CREATE INDEX toc_parts_day ON toc_parts (owner, day);
CREATE TABLE toc_nodes (
    owner   text   NOT NULL,
    level   text   NOT NULL, -- week, month
    period  text   NOT NULL,
    month   text   NOT NULL, -- of a week
    text    text   NOT NULL DEFAULT '',
    stale   bigint NOT NULL DEFAULT 1, -- it is to be made, or to be made again
    claim   text   NOT NULL DEFAULT '', -- of the last one that began to make it; '' = what it is made of has changed since
    claimed_at bigint NOT NULL DEFAULT 0,
    made    bigint NOT NULL DEFAULT 0,
    made_at bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, level, period)
);
CREATE INDEX toc_nodes_stale ON toc_nodes (level, period, owner) WHERE stale = 1;

-- +goose Down
DROP TABLE toc_nodes;
DROP TABLE toc_parts;
DROP TABLE toc_progress;
