-- Times are integer milliseconds since the epoch. Text that is absent is NULL where a query asks for its absence, else ''.
-- There are no foreign keys: one writer keeps the tables together, and rows of a deleted session stay as history.

-- +goose Up
CREATE TABLE nodes (
    id             TEXT    NOT NULL PRIMARY KEY, -- incarnation: new at every start of a process
    started_at     INTEGER NOT NULL,
    lease_until    INTEGER NOT NULL,
    lease_ms       INTEGER NOT NULL DEFAULT 15000,
    addr           TEXT    NOT NULL DEFAULT '',
    version        TEXT    NOT NULL DEFAULT '',
    draining       INTEGER NOT NULL DEFAULT 0,
    draining_since INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    name        TEXT    NOT NULL PRIMARY KEY,
    owner       TEXT,
    epoch       INTEGER NOT NULL DEFAULT 0,
    next_offset INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    key             TEXT    NOT NULL PRIMARY KEY,
    agent           TEXT    NOT NULL DEFAULT '',
    principal       TEXT    NOT NULL DEFAULT '',
    session_id      TEXT    NOT NULL DEFAULT '', -- of the current transcript
    lane            TEXT    NOT NULL DEFAULT 'main',
    owner           TEXT,
    epoch           INTEGER NOT NULL DEFAULT 0,
    last_seq        INTEGER NOT NULL DEFAULT 0,  -- given to a message
    taken_seq       INTEGER NOT NULL DEFAULT 0,  -- given to a run or ended
    done_seq        INTEGER NOT NULL DEFAULT 0,  -- everything up to it has an outcome
    stop_seq        INTEGER NOT NULL DEFAULT 0,
    waiting         INTEGER NOT NULL DEFAULT 0,  -- held and waiting messages
    run_limit       INTEGER NOT NULL DEFAULT 1,
    mode            TEXT    NOT NULL DEFAULT '',
    notes           TEXT    NOT NULL DEFAULT '{}',
    debounce_until  INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL DEFAULT 0,
    updated_at      INTEGER NOT NULL DEFAULT 0,
    last_message_at INTEGER NOT NULL DEFAULT 0,
    last_run_id     TEXT    NOT NULL DEFAULT '',
    last_state      TEXT    NOT NULL DEFAULT '',
    last_cause      TEXT    NOT NULL DEFAULT '',
    last_error      TEXT    NOT NULL DEFAULT '',
    preview         TEXT    NOT NULL DEFAULT '',
    total_tokens    INTEGER NOT NULL DEFAULT 0,
    transcript_seq  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The tombstone of a deleted session: a new session of the same key must reuse neither its sequence numbers nor its epochs.
CREATE TABLE deleted_sessions (
    key      TEXT    NOT NULL PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    epoch    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    session_key TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    message_id  TEXT,
    dedupe      TEXT,
    params_hash TEXT    NOT NULL DEFAULT '',
    channel     TEXT    NOT NULL DEFAULT '',
    external_id INTEGER NOT NULL DEFAULT 0,
    principal   TEXT    NOT NULL DEFAULT '',
    sender      TEXT    NOT NULL DEFAULT '',
    body        TEXT    NOT NULL DEFAULT '{}',
    lane        TEXT    NOT NULL DEFAULT 'main',
    state       TEXT    NOT NULL,
    outcome     TEXT,
    reason      TEXT    NOT NULL DEFAULT '',
    run_id      TEXT,
    merged_into INTEGER,
    notice_id   TEXT,
    node        TEXT    NOT NULL DEFAULT '', -- that accepted it
    accepted_at INTEGER NOT NULL DEFAULT 0,
    ended_at    INTEGER,
    PRIMARY KEY (session_key, seq)
) STRICT;
CREATE UNIQUE INDEX inbox_message ON inbox (message_id);
CREATE UNIQUE INDEX inbox_dedupe ON inbox (dedupe) WHERE dedupe IS NOT NULL;
-- What the sweep, the queues and done_seq read. Its size follows the unfinished work, not the history.
CREATE INDEX inbox_unfinished ON inbox (session_key, seq) WHERE state <> 'done';

CREATE TABLE runs (
    id            TEXT    NOT NULL PRIMARY KEY,
    session_key   TEXT    NOT NULL,
    session_id    TEXT    NOT NULL DEFAULT '', -- transcript that the run writes to, also after a reset
    seq_from      INTEGER NOT NULL,
    seq_to        INTEGER NOT NULL,
    lane          TEXT    NOT NULL DEFAULT 'main',
    owner         TEXT    NOT NULL DEFAULT '',
    epoch         INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 1,
    crashes       INTEGER NOT NULL DEFAULT 0,
    state         TEXT    NOT NULL,
    cause         TEXT    NOT NULL DEFAULT '',
    error         TEXT    NOT NULL DEFAULT '',
    stop_by       TEXT,
    queued_at     INTEGER NOT NULL DEFAULT 0,
    started_at    INTEGER NOT NULL DEFAULT 0,
    ended_at      INTEGER,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    model         TEXT    NOT NULL DEFAULT '',
    provider      TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_session ON runs (session_key, seq_from);
CREATE INDEX runs_active ON runs (session_key) WHERE state IN ('running', 'stopping');

CREATE TABLE outbox (
    place       INTEGER PRIMARY KEY, -- order of arrival
    id          TEXT    NOT NULL,
    run_id      TEXT,
    n           INTEGER NOT NULL DEFAULT 0,
    session_key TEXT    NOT NULL DEFAULT '',
    channel     TEXT    NOT NULL DEFAULT '',
    chat_id     TEXT    NOT NULL DEFAULT '',
    thread      TEXT    NOT NULL DEFAULT '',
    kind        TEXT    NOT NULL DEFAULT 'reply',
    payload     TEXT    NOT NULL DEFAULT '',
    text_many   TEXT    NOT NULL DEFAULT '',
    count       INTEGER NOT NULL DEFAULT 1,
    coalesce    TEXT    NOT NULL DEFAULT '',
    state       TEXT    NOT NULL DEFAULT 'pending',
    node        TEXT,
    attempt     INTEGER NOT NULL DEFAULT 0,
    epoch       INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER NOT NULL DEFAULT 0,
    expires_at  INTEGER,
    maybe_sent  INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT    NOT NULL DEFAULT '',
    provider_id TEXT,
    created_at  INTEGER NOT NULL DEFAULT 0,
    done_at     INTEGER
) STRICT;
CREATE UNIQUE INDEX outbox_id ON outbox (id);
CREATE UNIQUE INDEX outbox_run ON outbox (run_id, n) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_open ON outbox (channel, chat_id, place) WHERE state IN ('pending', 'sending');
CREATE INDEX outbox_failed ON outbox (channel) WHERE state = 'failed';

CREATE TABLE transcript (
    session_key TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    run_id      TEXT    NOT NULL DEFAULT '',
    role        TEXT    NOT NULL DEFAULT '',
    content     TEXT    NOT NULL DEFAULT '',
    sender      TEXT    NOT NULL DEFAULT '',
    tokens      INTEGER NOT NULL DEFAULT 0,
    stop_reason TEXT    NOT NULL DEFAULT '',
    command     INTEGER NOT NULL DEFAULT 0,
    at          INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session_key, session_id, seq)
) STRICT;

-- +goose Down
DROP TABLE transcript;
DROP TABLE outbox;
DROP TABLE runs;
DROP TABLE inbox;
DROP TABLE deleted_sessions;
DROP TABLE sessions;
DROP TABLE leases;
DROP TABLE nodes;
