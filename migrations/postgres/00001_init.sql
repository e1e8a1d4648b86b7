-- Times are integer milliseconds since the epoch. Text that is absent is NULL where a query asks for its absence, else ''.
-- There are no foreign keys: the row lock of the session keeps its tables together, and the rows of a deleted session
-- stay as history. Nothing here needs an extension or a procedural language.

-- +goose Up
CREATE TABLE nodes (
    id             text    NOT NULL PRIMARY KEY, -- incarnation: new at every start of a process
    started_at     bigint  NOT NULL DEFAULT 0,
    lease_until    bigint  NOT NULL DEFAULT 0,
    lease_ms       bigint  NOT NULL DEFAULT 15000,
    addr           text    NOT NULL DEFAULT '',
    version        text    NOT NULL DEFAULT '',
    draining       boolean NOT NULL DEFAULT false,
    draining_since bigint
) WITH (fillfactor = 50);

CREATE TABLE leases (
    name        text   NOT NULL PRIMARY KEY,
    owner       text,
    epoch       bigint NOT NULL DEFAULT 0,
    next_offset bigint
) WITH (fillfactor = 50);

-- Three updates per turn must fit into the row's own page, so that no index is touched: hence the fillfactor, and hence
-- no index over owner, epoch or the sequence columns. The sweep finds its work through inbox_unfinished.
CREATE TABLE sessions (
    key             text   NOT NULL PRIMARY KEY,
    agent           text   NOT NULL DEFAULT '',
    principal       text   NOT NULL DEFAULT '',
    session_id      text   NOT NULL DEFAULT '', -- of the current transcript
    lane            text   NOT NULL DEFAULT '',
    owner           text,
    epoch           bigint NOT NULL DEFAULT 0,
    last_seq        bigint NOT NULL DEFAULT 0,  -- given to a message
    taken_seq       bigint NOT NULL DEFAULT 0,  -- given to a run, or ended
    done_seq        bigint NOT NULL DEFAULT 0,  -- everything up to it has an outcome
    stop_seq        bigint NOT NULL DEFAULT 0,
    waiting         bigint NOT NULL DEFAULT 0,  -- messages in state held or waiting
    run_limit       bigint NOT NULL DEFAULT 1,
    mode            text   NOT NULL DEFAULT '',
    notes           text   NOT NULL DEFAULT '{}',
    debounce_until  bigint NOT NULL DEFAULT 0,
    created_at      bigint NOT NULL DEFAULT 0,
    updated_at      bigint NOT NULL DEFAULT 0,
    last_message_at bigint NOT NULL DEFAULT 0,
    last_run_id     text   NOT NULL DEFAULT '',
    last_state      text   NOT NULL DEFAULT '',
    last_cause      text   NOT NULL DEFAULT '',
    last_error      text   NOT NULL DEFAULT '',
    preview         text   NOT NULL DEFAULT '',
    total_tokens    bigint NOT NULL DEFAULT 0,
    transcript_seq  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

-- The tombstone of a deleted session: a new session of the same key must reuse neither its sequence numbers nor its epochs.
CREATE TABLE graves (
    key      text   NOT NULL PRIMARY KEY,
    last_seq bigint NOT NULL,
    epoch    bigint NOT NULL
);

CREATE TABLE inbox (
    session_key text   NOT NULL,
    seq         bigint NOT NULL,
    message_id  text,
    dedupe      text,
    params_hash text   NOT NULL DEFAULT '',
    channel     text   NOT NULL DEFAULT '',
    external_id bigint NOT NULL DEFAULT 0,
    principal   text   NOT NULL DEFAULT '',
    sender      text   NOT NULL DEFAULT '',
    body        text   NOT NULL DEFAULT '{}',
    lane        text   NOT NULL DEFAULT '',
    state       text   NOT NULL,
    outcome     text,
    reason      text   NOT NULL DEFAULT '',
    run_id      text,
    merged_into bigint,
    notice_id   text,
    node        text   NOT NULL DEFAULT '', -- that accepted it
    accepted_at bigint NOT NULL DEFAULT 0,
    ended_at    bigint,                     -- NULL exactly as long as there is no outcome
    PRIMARY KEY (session_key, seq),
    CONSTRAINT inbox_message UNIQUE (message_id),
    CONSTRAINT inbox_dedupe UNIQUE (dedupe)
) WITH (fillfactor = 70);
-- Its size follows the unfinished work, not the history. The predicate is ended_at and not state, so that the step from waiting
-- to running leaves every index alone.
CREATE INDEX inbox_unfinished ON inbox (session_key, seq) WHERE ended_at IS NULL;

CREATE TABLE runs (
    id            text   NOT NULL PRIMARY KEY,
    session_key   text   NOT NULL,
    session_id    text   NOT NULL DEFAULT '', -- transcript that the run writes to, also after a reset
    seq_from      bigint NOT NULL,
    seq_to        bigint NOT NULL,
    lane          text   NOT NULL DEFAULT '',
    owner         text   NOT NULL DEFAULT '',
    epoch         bigint NOT NULL DEFAULT 0,
    attempt       bigint NOT NULL DEFAULT 1,
    crashes       bigint NOT NULL DEFAULT 0,
    state         text   NOT NULL,
    cause         text   NOT NULL DEFAULT '',
    error         text   NOT NULL DEFAULT '',
    stop_by       text   NOT NULL DEFAULT '',
    queued_at     bigint NOT NULL DEFAULT 0,
    started_at    bigint NOT NULL DEFAULT 0,
    ended_at      bigint,
    input_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    model         text   NOT NULL DEFAULT '',
    provider      text   NOT NULL DEFAULT ''
) WITH (fillfactor = 80);
CREATE INDEX runs_active ON runs (session_key) WHERE ended_at IS NULL;

CREATE TABLE outbox (
    id          text    NOT NULL PRIMARY KEY,
    place       bigint  NOT NULL GENERATED BY DEFAULT AS IDENTITY, -- order of arrival
    run_id      text,
    n           bigint  NOT NULL DEFAULT 0,
    session_key text    NOT NULL DEFAULT '',
    channel     text    NOT NULL DEFAULT '',
    chat_id     text    NOT NULL DEFAULT '',
    thread      text    NOT NULL DEFAULT '',
    kind        text    NOT NULL DEFAULT 'reply',
    payload     text    NOT NULL DEFAULT '',
    text_many   text    NOT NULL DEFAULT '',
    count       bigint  NOT NULL DEFAULT 1,
    coalesce    text    NOT NULL DEFAULT '',
    state       text    NOT NULL DEFAULT 'pending',
    node        text    NOT NULL DEFAULT '', -- that sends it
    attempt     bigint  NOT NULL DEFAULT 0,
    epoch       bigint  NOT NULL DEFAULT 0,
    next_at     bigint  NOT NULL DEFAULT 0,
    expires_at  bigint,
    maybe_sent  boolean NOT NULL DEFAULT false,
    last_error  text    NOT NULL DEFAULT '',
    provider_id text,
    created_at  bigint  NOT NULL DEFAULT 0,
    done_at     bigint,                      -- NULL as long as it is pending or sending
    CONSTRAINT outbox_run UNIQUE (run_id, n)
) WITH (fillfactor = 80);
CREATE INDEX outbox_open ON outbox (channel, chat_id, place) WHERE done_at IS NULL OR state = 'failed';
-- One message at a time is under way to a chat, from any node.
CREATE UNIQUE INDEX outbox_under_way ON outbox (channel, chat_id) WHERE state = 'sending';

CREATE TABLE transcript (
    session_key text    NOT NULL,
    session_id  text    NOT NULL,
    seq         bigint  NOT NULL,
    run_id      text    NOT NULL DEFAULT '',
    role        text    NOT NULL DEFAULT '',
    content     text    NOT NULL DEFAULT '',
    sender      text    NOT NULL DEFAULT '',
    tokens      bigint  NOT NULL DEFAULT 0,
    stop_reason text    NOT NULL DEFAULT '',
    command     boolean NOT NULL DEFAULT false,
    at          bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (session_key, session_id, seq)
);

-- +goose Down
DROP TABLE transcript;
DROP TABLE outbox;
DROP TABLE runs;
DROP TABLE inbox;
DROP TABLE graves;
DROP TABLE sessions;
DROP TABLE leases;
DROP TABLE nodes;
