-- The table of contents of conversations: what the sessions of an owner were about on a day (toc_parts), and summaries of those by week and by month
-- (toc_nodes). Entries of a session above toc_progress.upto belong to no part yet.

-- +goose Up
CREATE TABLE toc_progress (
    session_key TEXT    NOT NULL PRIMARY KEY,
    upto        INTEGER NOT NULL -- the highest number of an entry that a part stands for
) STRICT, WITHOUT ROWID;
CREATE TABLE toc_parts (
    session_key TEXT    NOT NULL,
    day         TEXT    NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    owner       TEXT    NOT NULL,
    week        TEXT    NOT NULL, -- as in 2026-W11
    month       TEXT    NOT NULL, -- of the Thursday of the week, as in 2026-03
    from_seq    INTEGER NOT NULL,
    to_seq      INTEGER NOT NULL,
    entries     INTEGER NOT NULL, -- how many it stands for
    text        TEXT    NOT NULL,
    made        INTEGER NOT NULL, -- how many times it was made: more than once for a long day, and for entries that came late
    made_at     INTEGER NOT NULL,
    PRIMARY KEY (session_key, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX toc_parts_day ON toc_parts (owner, day);
CREATE TABLE toc_nodes (
    owner   TEXT    NOT NULL,
    level   TEXT    NOT NULL, -- week, month
    period  TEXT    NOT NULL,
    month   TEXT    NOT NULL, -- of a week
    text    TEXT    NOT NULL DEFAULT '',
    stale   INTEGER NOT NULL DEFAULT 1, -- it is to be made, or to be made again
    claim   TEXT    NOT NULL DEFAULT '', -- of the last one that began to make it; '' = what it is made of has changed since
    claimed_at INTEGER NOT NULL DEFAULT 0,
    made    INTEGER NOT NULL DEFAULT 0,
    made_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, level, period)
) STRICT, WITHOUT ROWID;
CREATE INDEX toc_nodes_stale ON toc_nodes (level, period, owner) WHERE stale = 1;

-- +goose Down
DROP TABLE toc_nodes;
DROP TABLE toc_parts;
DROP TABLE toc_progress;
