-- The whole schema of release 0.1.0. The file of the other engine has the same tables, columns and indexes by name, in the same order; what only one engine
-- has says so. Later steps are 00101 and up.
--
-- Times are integer milliseconds since the epoch. Text that is absent is NULL where a query asks for its absence, else ''. No table but one refers to another
-- by a foreign key: the lock of a session's row keeps its tables together, and the rows of a deleted session stay as history. Nothing here needs an extension.
-- Booleans are 0 and 1. Tables that are read by their key alone have no rowid.

-- +goose Up

-- The processes of the gateway.
CREATE TABLE nodes (
    id             TEXT NOT NULL PRIMARY KEY, -- incarnation: new at every start of a process
    started_at     INTEGER NOT NULL DEFAULT 0,
    lease_until    INTEGER NOT NULL DEFAULT 0, -- the process lives until then, unless it extends it
    lease_ms       INTEGER NOT NULL DEFAULT 15000,
    addr           TEXT NOT NULL DEFAULT '',
    version        TEXT NOT NULL DEFAULT '',
    draining       INTEGER NOT NULL DEFAULT 0, -- it takes no session any more
    draining_since INTEGER,
    fires          INTEGER NOT NULL DEFAULT 0, -- it fires jobs
    agents         TEXT NOT NULL DEFAULT '' -- JSON list of those that it has; '' = all
) STRICT, WITHOUT ROWID;

-- Named exclusive rights, such as to poll one bot.
CREATE TABLE leases (
    name  TEXT NOT NULL PRIMARY KEY,
    owner TEXT, -- a node; NULL = free
    epoch INTEGER NOT NULL DEFAULT 0 -- grows with each change of the owner
) STRICT, WITHOUT ROWID;

-- One row holds the gateway: nothing is sent, received from channels or started by the clock. A backup has it.
CREATE TABLE hold (
    id     INTEGER NOT NULL PRIMARY KEY, -- always 1
    since  INTEGER NOT NULL,
    who    TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

-- Sessions. A turn updates its row three times.
CREATE TABLE sessions (
    key             TEXT NOT NULL PRIMARY KEY,
    agent           TEXT NOT NULL DEFAULT '',
    principal       TEXT NOT NULL DEFAULT '', -- that owns it
    session_id      TEXT NOT NULL DEFAULT '', -- of the current transcript
    lane            TEXT NOT NULL DEFAULT '',
    owner           TEXT, -- the node that runs its turns; NULL = none
    epoch           INTEGER NOT NULL DEFAULT 0, -- grows with each change of the owner
    last_seq        INTEGER NOT NULL DEFAULT 0, -- given to a message
    taken_seq       INTEGER NOT NULL DEFAULT 0, -- given to a run, or ended
    done_seq        INTEGER NOT NULL DEFAULT 0, -- everything up to it has an outcome
    stop_seq        INTEGER NOT NULL DEFAULT 0, -- a stop covers everything up to it
    waiting         INTEGER NOT NULL DEFAULT 0, -- messages in state held or waiting
    run_limit       INTEGER NOT NULL DEFAULT 1, -- turns at once
    mode            TEXT NOT NULL DEFAULT '', -- of the queue; '' = as configured
    notes           TEXT NOT NULL DEFAULT '{}', -- JSON
    debounce_until  INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL DEFAULT 0,
    updated_at      INTEGER NOT NULL DEFAULT 0,
    last_message_at INTEGER NOT NULL DEFAULT 0,
    last_run_id     TEXT NOT NULL DEFAULT '',
    last_state      TEXT NOT NULL DEFAULT '',
    last_cause      TEXT NOT NULL DEFAULT '',
    last_error      TEXT NOT NULL DEFAULT '',
    preview         TEXT NOT NULL DEFAULT '',
    total_tokens    INTEGER NOT NULL DEFAULT 0,
    transcript_seq  INTEGER NOT NULL DEFAULT 0, -- of the last entry
    summary_id      TEXT NOT NULL DEFAULT '', -- the transcript of the newest summary
    summary_seq     INTEGER NOT NULL DEFAULT 0, -- its number
    summary_to      INTEGER NOT NULL DEFAULT 0 -- the last entry that it stands for
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_principal ON sessions (principal);

-- What a deleted session leaves: a new session of the same key must reuse neither its sequence numbers nor its epochs.
CREATE TABLE tombstones (
    key      TEXT NOT NULL PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    epoch    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Accepted messages.
CREATE TABLE inbox (
    session_key TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    message_id  TEXT,
    dedupe      TEXT, -- the idempotency key; NULL = none
    params_hash TEXT NOT NULL DEFAULT '', -- tells a repeated call from another one with the same key
    channel     TEXT NOT NULL DEFAULT '',
    external_id INTEGER NOT NULL DEFAULT 0, -- the number that the provider gave it
    principal   TEXT NOT NULL DEFAULT '',
    sender      TEXT NOT NULL DEFAULT '', -- JSON
    body        TEXT NOT NULL DEFAULT '{}', -- JSON
    lane        TEXT NOT NULL DEFAULT '',
    state       TEXT NOT NULL, -- held, waiting, running, done
    outcome     TEXT, -- NULL exactly as long as it is not done
    reason      TEXT NOT NULL DEFAULT '',
    run_id      TEXT,
    merged_into INTEGER, -- the number of the message whose turn it shares
    notice_id   TEXT, -- the outgoing message that tells of the outcome
    node        TEXT NOT NULL DEFAULT '', -- that accepted it
    accepted_at INTEGER NOT NULL DEFAULT 0,
    ended_at    INTEGER, -- NULL exactly as long as it is not done
    parent      TEXT, -- run whose agent asked for the message; NULL = none did
    root        TEXT, -- run at the root of its tree; NULL = it is in none
    announce    INTEGER NOT NULL DEFAULT 0, -- 1 = its end is to be announced in the session of the parent
    PRIMARY KEY (session_key, seq)
) STRICT;
CREATE UNIQUE INDEX inbox_message ON inbox (message_id);
CREATE UNIQUE INDEX inbox_dedupe ON inbox (dedupe) WHERE dedupe IS NOT NULL;
-- Unfinished work has an index of its own, whose size does not follow the history. SQLite asks for the state; PostgreSQL asks for the missing end, because the
-- step from waiting to running must leave every index alone there. Queries name both conditions, or that of their engine.
CREATE INDEX inbox_unfinished ON inbox (session_key, seq) WHERE state <> 'done';
-- Turns by their end, for lists that begin with the newest.
CREATE INDEX inbox_ended ON inbox (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX inbox_parent ON inbox (parent) WHERE parent IS NOT NULL;
CREATE INDEX inbox_root ON inbox (root) WHERE root IS NOT NULL;
CREATE INDEX inbox_tasks ON inbox (parent) WHERE parent IS NOT NULL AND (state <> 'done' OR announce = 1);
-- Sub-turns by the time of their acceptance, for lists that begin with the newest.
CREATE INDEX inbox_task_times ON inbox (accepted_at DESC, message_id) WHERE parent IS NOT NULL;

-- Turns.
CREATE TABLE runs (
    id            TEXT NOT NULL PRIMARY KEY, -- of one of its messages
    session_key   TEXT NOT NULL,
    session_id    TEXT NOT NULL DEFAULT '', -- transcript that the run writes to, also after a reset
    seq_from      INTEGER NOT NULL, -- its messages
    seq_to        INTEGER NOT NULL,
    lane          TEXT NOT NULL DEFAULT '',
    owner         TEXT NOT NULL DEFAULT '',
    epoch         INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 1,
    crashes       INTEGER NOT NULL DEFAULT 0, -- attempts whose node died
    state         TEXT NOT NULL,
    cause         TEXT NOT NULL DEFAULT '',
    error         TEXT NOT NULL DEFAULT '',
    detail        TEXT NOT NULL DEFAULT '', -- what the service of the agent wrote about a failure, without secrets; only administrators read it
    stop_by       TEXT NOT NULL DEFAULT '', -- that asked to stop it
    queued_at     INTEGER NOT NULL DEFAULT 0,
    started_at    INTEGER NOT NULL DEFAULT 0,
    ended_at      INTEGER,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    model         TEXT NOT NULL DEFAULT '',
    provider      TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
-- As for inbox_unfinished, PostgreSQL has the missing end as the condition.
CREATE INDEX runs_open ON runs (session_key) WHERE state IN ('running', 'stopping', 'yielded');
-- SQLite only: PostgreSQL finds the history of a session through inbox.
CREATE INDEX runs_session ON runs (session_key, seq_from);

-- What the model of a running turn asked for and was given, so that a turn that runs again goes on after it. The rows go when the turn ends, with what they
-- contain in its transcript; those of a run that never ends are deleted with the run.
CREATE TABLE turn_rounds (
    run_id TEXT NOT NULL,
    round  INTEGER NOT NULL, -- from 1
    kind   TEXT NOT NULL, -- asked: text and calls; result: of one call; input: a message that joined after the results
    n      INTEGER NOT NULL, -- asked: 0; result: the call, from 0; input: the number of the message in its session
    body   TEXT NOT NULL, -- JSON; '' for input
    PRIMARY KEY (run_id, round, kind, n)
) STRICT, WITHOUT ROWID;
-- SQLite checks foreign keys only on connections that ask for it.
-- +goose StatementBegin
CREATE TRIGGER turn_rounds_end AFTER DELETE ON runs BEGIN
    DELETE FROM turn_rounds WHERE run_id = OLD.id;
END;
-- +goose StatementEnd

-- Calls of tools that are made when a person allows them. An allowed call is made by its node, or by another one after the end of that node.
CREATE TABLE tool_questions (
    id          TEXT NOT NULL PRIMARY KEY,
    session_key TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL, -- the principal that may answer
    state       TEXT NOT NULL, -- open, denied, allowed: the call has to be made, done: it was made
    node        TEXT NOT NULL, -- that makes an allowed call
    asked_at    INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL, -- an open question cannot be answered after it
    call        TEXT NOT NULL, -- JSON: what is to be done, for whom and where
    result      TEXT NOT NULL -- JSON; '' until the call was made
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_questions_owner ON tool_questions (owner);
CREATE INDEX tool_questions_expiry ON tool_questions (expires_at);
CREATE INDEX tool_questions_open ON tool_questions (asked_at, id) WHERE state = 'open';
CREATE INDEX tool_questions_allowed ON tool_questions (id) WHERE state = 'allowed';

-- What a person has allowed an agent for all turns of a conversation. It counts for one transcript: after a reset nothing is allowed.
CREATE TABLE approvals (
    id          TEXT NOT NULL PRIMARY KEY, -- of the question
    owner       TEXT NOT NULL, -- the principal that answered
    session_key TEXT NOT NULL, -- where it was asked
    transcript  TEXT NOT NULL, -- session_id of the conversation
    agent       TEXT NOT NULL,
    act         TEXT NOT NULL, -- what was asked, without its details
    label       TEXT NOT NULL, -- of the option
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_session ON approvals (session_key, owner);

-- Outgoing messages. A file of an answer has a row of its own.
CREATE TABLE outbox (
    id          TEXT NOT NULL, -- the primary key on PostgreSQL
    place       INTEGER PRIMARY KEY, -- order of arrival
    run_id      TEXT,
    n           INTEGER NOT NULL DEFAULT 0, -- of the messages of the run
    session_key TEXT NOT NULL DEFAULT '',
    principal   TEXT NOT NULL DEFAULT '', -- that owns the session when the delivery of a reply to the web makes it
    channel     TEXT NOT NULL DEFAULT '',
    chat_id     TEXT NOT NULL DEFAULT '',
    thread      TEXT NOT NULL DEFAULT '',
    kind        TEXT NOT NULL DEFAULT 'reply',
    payload     TEXT NOT NULL DEFAULT '',
    text_many   TEXT NOT NULL DEFAULT '', -- what is sent instead when several notices became one
    count       INTEGER NOT NULL DEFAULT 1, -- how many they are
    coalesce    TEXT NOT NULL DEFAULT '', -- notices of one key to one chat become one
    choice      TEXT NOT NULL DEFAULT '', -- the choices that the message offers, JSON
    file        TEXT NOT NULL DEFAULT '', -- JSON; the bytes are in the directory for attachments
    state       TEXT NOT NULL DEFAULT 'pending', -- pending, sending, and how it ended
    node        TEXT NOT NULL DEFAULT '', -- that sends it
    attempt     INTEGER NOT NULL DEFAULT 0,
    epoch       INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER NOT NULL DEFAULT 0,
    expires_at  INTEGER,
    progress    TEXT NOT NULL DEFAULT '', -- the parts that have arrived, in the form of the channel
    maybe_sent  INTEGER NOT NULL DEFAULT 0, -- an attempt ended without an answer of the provider
    last_error  TEXT NOT NULL DEFAULT '',
    provider_id TEXT,
    created_at  INTEGER NOT NULL DEFAULT 0,
    done_at     INTEGER -- NULL as long as it is pending or sending
) STRICT;
CREATE UNIQUE INDEX outbox_id ON outbox (id);
CREATE UNIQUE INDEX outbox_run ON outbox (run_id, n) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_open ON outbox (channel, chat_id, place) WHERE state IN ('pending', 'sending');
-- SQLite only: on PostgreSQL outbox_open has them.
CREATE INDEX outbox_failed ON outbox (channel) WHERE state = 'failed';
CREATE INDEX outbox_maybe_sent ON outbox (channel) WHERE state = 'maybe_sent';
CREATE INDEX outbox_session ON outbox (session_key) WHERE session_key <> '';
CREATE INDEX outbox_to_session ON outbox (chat_id) WHERE channel = 'web';

-- The entries of conversations. A summary is an entry that stands for older ones.
CREATE TABLE transcript (
    session_key TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    run_id      TEXT NOT NULL DEFAULT '',
    role        TEXT NOT NULL DEFAULT '',
    content     TEXT NOT NULL DEFAULT '',
    sender      TEXT NOT NULL DEFAULT '', -- JSON
    tokens      INTEGER NOT NULL DEFAULT 0,
    stop_reason TEXT NOT NULL DEFAULT '',
    command     INTEGER NOT NULL DEFAULT 0, -- a chat command or the reply to it
    outside     INTEGER NOT NULL DEFAULT 0, -- it has text from outside, or was made from rows that have
    at          INTEGER NOT NULL DEFAULT 0,
    reply_id    TEXT NOT NULL DEFAULT '', -- the outgoing message to the web that it delivers; '' = none
    from_seq    INTEGER NOT NULL DEFAULT 0, -- of a summary: the first entry that it stands for; 0 = no summary
    to_seq      INTEGER NOT NULL DEFAULT 0, -- the last one
    PRIMARY KEY (session_key, session_id, seq)
) STRICT;
CREATE UNIQUE INDEX transcript_reply ON transcript (session_key, reply_id) WHERE reply_id <> '';

-- Transcripts that begin with the entries of another one, up to a number. Their own entries have higher numbers.
CREATE TABLE branches (
    session_key TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    parent_key  TEXT NOT NULL,
    parent_id   TEXT NOT NULL,
    parent_seq  INTEGER NOT NULL,
    depth       INTEGER NOT NULL, -- how many branches lie between it and the first transcript, or have lain
    PRIMARY KEY (session_key, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX branches_parent ON branches (parent_key, parent_id, parent_seq);

-- Transcripts that a deletion keeps belong to the principal of their session: a later session of the same key does not own them.
CREATE TABLE kept_transcripts (
    session_key TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    principal   TEXT NOT NULL, -- '' = unknown: only principals that may read everything may read it
    PRIMARY KEY (session_key, session_id)
) STRICT, WITHOUT ROWID;

-- The search over transcripts, in the form of FTS5. An entry of the index has the rowid of its row of transcript and the words that the program makes of its
-- text, see the package words; the index keeps no texts. Rows above search_state.upto are not in it yet.
CREATE VIRTUAL TABLE transcript_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '='"
);
CREATE TABLE search_state (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    upto        INTEGER NOT NULL, -- the highest rowid of transcript that is in the index
    session_key TEXT NOT NULL, -- of the row with that rowid: when another row has it, VACUUM has numbered the table again; '' = not known
    session_id  TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    removals    INTEGER NOT NULL -- grows with each deletion, so that what was read before is not indexed after it
) STRICT;
INSERT INTO search_state (id, upto, session_key, session_id, seq, removals) VALUES (1, 0, '', '', 0, 0);
-- SQLite gives the rowid of a deleted last row to the next one, so upto follows the table down.
-- +goose StatementBegin
CREATE TRIGGER transcript_words_end AFTER DELETE ON transcript BEGIN
    DELETE FROM transcript_words WHERE rowid = OLD.rowid;
    UPDATE search_state SET removals = removals + 1;
    UPDATE search_state SET upto = coalesce((SELECT max(rowid) FROM transcript), 0), session_key = ''
    WHERE upto > coalesce((SELECT max(rowid) FROM transcript), 0);
END;
-- +goose StatementEnd

-- The table of contents of conversations: what the sessions of an owner were about on a day (toc_parts), and summaries of those by week and by month
-- (toc_nodes). Entries of a session above toc_progress.upto belong to no part yet.
CREATE TABLE toc_progress (
    session_key TEXT NOT NULL PRIMARY KEY,
    upto        INTEGER NOT NULL -- the highest number of an entry that a part stands for
) STRICT, WITHOUT ROWID;
CREATE TABLE toc_parts (
    session_key TEXT NOT NULL,
    day         TEXT NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    owner       TEXT NOT NULL,
    week        TEXT NOT NULL, -- as in 2026-W11
    month       TEXT NOT NULL, -- of the Thursday of the week, as in 2026-03
    from_seq    INTEGER NOT NULL,
    to_seq      INTEGER NOT NULL,
    entries     INTEGER NOT NULL, -- how many it stands for
    text        TEXT NOT NULL,
    made        INTEGER NOT NULL, -- how many times it was made: more than once for a long day, and for entries that came late
    made_at     INTEGER NOT NULL,
    PRIMARY KEY (session_key, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX toc_parts_day ON toc_parts (owner, day);
CREATE TABLE toc_nodes (
    owner      TEXT NOT NULL,
    level      TEXT NOT NULL, -- week, month
    period     TEXT NOT NULL,
    month      TEXT NOT NULL, -- of a week
    text       TEXT NOT NULL DEFAULT '',
    stale      INTEGER NOT NULL DEFAULT 1, -- it is to be made, or to be made again
    claim      TEXT NOT NULL DEFAULT '', -- of the last one that began to make it; '' = what it is made of has changed since
    claimed_at INTEGER NOT NULL DEFAULT 0,
    made       INTEGER NOT NULL DEFAULT 0,
    made_at    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, level, period)
) STRICT, WITHOUT ROWID;
CREATE INDEX toc_nodes_stale ON toc_nodes (level, period, owner) WHERE stale = 1;

-- Jobs that fire by the clock.
CREATE TABLE cron_jobs (
    id                      TEXT NOT NULL PRIMARY KEY,
    owner                   TEXT NOT NULL,
    key                     TEXT NOT NULL,
    key_derived             INTEGER NOT NULL DEFAULT 0,
    list_mark               INTEGER NOT NULL DEFAULT 0, -- a number of the job and its changes: a list knows by its sum that it has changed
    name                    TEXT NOT NULL DEFAULT '',
    display_name            TEXT NOT NULL DEFAULT '',
    description             TEXT NOT NULL DEFAULT '',
    principal               TEXT NOT NULL DEFAULT '',
    agent                   TEXT NOT NULL DEFAULT '',
    account_id              TEXT NOT NULL DEFAULT '',
    lane                    TEXT NOT NULL DEFAULT 'cron',
    kind                    TEXT NOT NULL DEFAULT '',
    schedule                TEXT NOT NULL, -- JSON, as the four below
    tz                      TEXT NOT NULL DEFAULT '',
    jitter_ms               INTEGER NOT NULL DEFAULT 0,
    starts_at               INTEGER,
    ends_at                 INTEGER,
    max_runs                INTEGER NOT NULL DEFAULT 0, -- 0 = no bound
    session                 TEXT NOT NULL DEFAULT 'isolated',
    wake_mode               TEXT NOT NULL DEFAULT '',
    payload                 TEXT NOT NULL,
    delivery                TEXT NOT NULL,
    alert                   TEXT NOT NULL,
    policy                  TEXT NOT NULL,
    enabled                 INTEGER NOT NULL DEFAULT 1,
    paused_note             TEXT NOT NULL DEFAULT '',
    paused_by               TEXT NOT NULL DEFAULT '',
    paused_at               INTEGER, -- NULL = not paused
    paused_until            INTEGER,
    auto_disabled           INTEGER NOT NULL DEFAULT 0,
    invalid                 TEXT NOT NULL DEFAULT '', -- why the row cannot be decoded
    revision                TEXT NOT NULL DEFAULT '',
    created_at              INTEGER NOT NULL DEFAULT 0,
    updated_at              INTEGER NOT NULL DEFAULT 0,
    next_slot               INTEGER,
    next_run_at             INTEGER, -- with jitter; of a paused job the moment to resume; NULL = nothing is planned
    activated_at            INTEGER,
    fired                   INTEGER NOT NULL DEFAULT 0,
    run_count               INTEGER NOT NULL DEFAULT 0,
    error_count             INTEGER NOT NULL DEFAULT 0,
    last_run_at             INTEGER,
    last_state              TEXT NOT NULL DEFAULT '',
    last_error              TEXT NOT NULL DEFAULT '',
    last_error_class        TEXT NOT NULL DEFAULT '',
    last_duration_ms        INTEGER NOT NULL DEFAULT 0,
    last_delivery           TEXT NOT NULL DEFAULT '',
    last_delivery_error     TEXT NOT NULL DEFAULT '',
    last_alert_at           INTEGER,
    consecutive_errors      INTEGER NOT NULL DEFAULT 0,
    consecutive_skipped     INTEGER NOT NULL DEFAULT 0,
    delivery_paused_at      INTEGER, -- the chat does not exist any more: answers are kept and not sent; NULL = they are sent
    delivery_paused_why     TEXT NOT NULL DEFAULT '',
    delivery_paused_channel TEXT NOT NULL DEFAULT '', -- the address, as it stands in the outbox
    delivery_paused_chat    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX cron_jobs_key ON cron_jobs (owner, key);
-- The claim reads this index only; the id decides the order of jobs of one instant without sorting them.
CREATE INDEX cron_jobs_due ON cron_jobs (next_run_at, id)
    WHERE enabled = 1 AND next_run_at IS NOT NULL AND invalid = '' AND (paused_at IS NULL OR paused_until IS NOT NULL);
CREATE INDEX cron_jobs_listed ON cron_jobs (owner, list_mark);

-- The ledger of their runs. A run that executes is a message of the inbox: run_id names it, so that ownership, takeover and fence are those of every message.
CREATE TABLE cron_run_logs (
    id                  TEXT NOT NULL PRIMARY KEY, -- <trigger>:<job>:<slot>
    job_id              TEXT NOT NULL,
    job_name            TEXT NOT NULL DEFAULT '',
    job_key             TEXT NOT NULL DEFAULT '',
    owner               TEXT NOT NULL DEFAULT '',
    agent               TEXT NOT NULL DEFAULT '',
    lane                TEXT NOT NULL DEFAULT '',
    session_key         TEXT NOT NULL DEFAULT '',
    scheduled_for       INTEGER NOT NULL,
    trigger             TEXT NOT NULL,
    state               TEXT NOT NULL,
    reason              TEXT,
    dst                 TEXT NOT NULL DEFAULT '',
    slot_count          INTEGER NOT NULL DEFAULT 1, -- a row may stand for several missed slots
    slot_until          INTEGER,
    fire_at             INTEGER,
    claimed_at          INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER, -- NULL exactly as long as it is queued, running or retrying
    next_attempt_at     INTEGER, -- while it is retrying
    duration_ms         INTEGER NOT NULL DEFAULT 0,
    attempt             INTEGER NOT NULL DEFAULT 0,
    attempts            TEXT NOT NULL DEFAULT '[]', -- JSON: those that ended
    error               TEXT NOT NULL DEFAULT '',
    error_class         TEXT NOT NULL DEFAULT '',
    summary             TEXT NOT NULL DEFAULT '',
    model               TEXT NOT NULL DEFAULT '',
    provider            TEXT NOT NULL DEFAULT '',
    input_tokens        INTEGER NOT NULL DEFAULT 0,
    output_tokens       INTEGER NOT NULL DEFAULT 0,
    run_id              TEXT NOT NULL DEFAULT '', -- message of the current attempt; '' = it has none
    delivery            TEXT NOT NULL DEFAULT '',
    delivery_error      TEXT NOT NULL DEFAULT '',
    provider_message_id TEXT NOT NULL DEFAULT '',
    suppressed_by       TEXT NOT NULL DEFAULT '',
    node                TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX cron_runs_slot ON cron_run_logs (job_id, scheduled_for, trigger);
-- Active rows have indexes of their own, so that no plan reads the history to find them.
CREATE INDEX cron_runs_active ON cron_run_logs (job_id, owner, claimed_at) WHERE finished_at IS NULL;
CREATE INDEX cron_runs_retry ON cron_run_logs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
-- The order of planned times, which no update changes. A job's rows have it in the index of their slots.
CREATE INDEX cron_runs_planned_of_owner ON cron_run_logs (owner, scheduled_for, id);
-- The claims of a day that a budget counts are found by the planned time too, but for those that came more than an hour after it.
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE run_id <> '' AND claimed_at - scheduled_for > 3600000;
-- SQLite only: PostgreSQL reads ranges of pages (cron_runs_times) instead.
CREATE INDEX cron_runs_planned ON cron_run_logs (scheduled_for, id);
CREATE INDEX cron_runs_finished ON cron_run_logs (finished_at) WHERE finished_at IS NOT NULL;
-- The runs in a session that is not theirs alone, for its deletion. The others are found by their id.
CREATE INDEX cron_runs_shared ON cron_run_logs (session_key) WHERE session_key NOT LIKE '%:cron:%';

-- The times during which no process fired jobs.
CREATE TABLE cron_outages (
    from_at  INTEGER NOT NULL PRIMARY KEY,
    until_at INTEGER -- NULL: it goes on
) STRICT;

-- What agents use: counters of a day by principal, agent, model and job, the totals that budgets are compared with, and the last batch of each writer.
CREATE TABLE usage_counters (
    day           TEXT NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    principal     TEXT NOT NULL,
    agent         TEXT NOT NULL,
    model         TEXT NOT NULL,
    job           TEXT NOT NULL, -- '' = the turn of a person
    turns         INTEGER NOT NULL,
    requests      INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, -- a part of input_tokens
    cost          INTEGER NOT NULL, -- billionths of the currency
    unreported    INTEGER NOT NULL, -- milliseconds of turns whose agents reported no tokens
    PRIMARY KEY (day, principal, agent, model, job)
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_totals (
    day    TEXT NOT NULL,
    scope  TEXT NOT NULL, -- day, principal, job
    name   TEXT NOT NULL, -- of the principal or the job; '' for day
    tokens INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (day, scope, name)
) STRICT, WITHOUT ROWID;
-- A batch that was committed without an answer is written again: the number shows that it is there.
CREATE TABLE usage_writers (
    writer TEXT NOT NULL PRIMARY KEY,
    batch  INTEGER NOT NULL,
    day    TEXT NOT NULL -- of its last batch
) STRICT, WITHOUT ROWID;

-- How the tokens that an endpoint counts for a model relate to the estimates of the gateway.
CREATE TABLE token_ratios (
    endpoint TEXT NOT NULL,
    model    TEXT NOT NULL,
    permille INTEGER NOT NULL, -- counted tokens for each thousand that were estimated
    PRIMARY KEY (endpoint, model)
) STRICT, WITHOUT ROWID;

-- The session of an agent's own that has a conversation, and the process that had it last. An agent that can load sessions goes on with it in another process.
CREATE TABLE agent_sessions (
    session_key   TEXT NOT NULL PRIMARY KEY,
    transcript    TEXT NOT NULL, -- session_id of the conversation; another one has another session of the agent
    agent_session TEXT NOT NULL, -- the agent's id
    runs          TEXT NOT NULL, -- the latest turns that the agent has seen, separated by spaces
    seen          INTEGER NOT NULL, -- number of the last entry of the transcript that it has seen
    used_input    INTEGER NOT NULL, -- tokens of the session, of agents that report these instead of those of a turn
    used_output   INTEGER NOT NULL,
    used_cached   INTEGER NOT NULL, -- of used_input
    dir           TEXT NOT NULL, -- for which it was made
    host          TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    pid_started   TEXT NOT NULL, -- identifies the process among those that have had its number
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What channels keep beside messages. Ids of people and chats are the provider's numbers. Open requests of pairing:
CREATE TABLE pairings (
    code       TEXT NOT NULL PRIMARY KEY, -- shown to the person
    id         TEXT NOT NULL, -- shown to operators
    channel    TEXT NOT NULL,
    user_id    INTEGER NOT NULL,
    chat_id    INTEGER NOT NULL,
    name       TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX pairings_id ON pairings (id);
-- Requests that an operator approved.
CREATE TABLE pairing_grants (
    channel     TEXT NOT NULL,
    user_id     INTEGER NOT NULL,
    chat_id     INTEGER NOT NULL,
    name        TEXT NOT NULL DEFAULT '',
    approved_by TEXT NOT NULL DEFAULT '',
    approved_at INTEGER NOT NULL,
    PRIMARY KEY (channel, user_id, chat_id)
) STRICT, WITHOUT ROWID;
-- Settings of groups.
CREATE TABLE channel_groups (
    channel    TEXT NOT NULL,
    chat_id    INTEGER NOT NULL,
    activation TEXT NOT NULL DEFAULT '',
    moved_from INTEGER NOT NULL DEFAULT 0, -- the number that the group had before; 0 = none
    PRIMARY KEY (channel, chat_id)
) STRICT, WITHOUT ROWID;
-- Open buttons below messages.
CREATE TABLE buttons (
    id         TEXT NOT NULL PRIMARY KEY,
    set_id     TEXT NOT NULL, -- the buttons of one message work once between them
    channel    TEXT NOT NULL,
    chat_id    INTEGER NOT NULL,
    user_id    INTEGER NOT NULL, -- 0 = every user who may talk in the chat
    text       TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    used_by    INTEGER -- the press that used the button; the other buttons of its message are deleted
) STRICT, WITHOUT ROWID;
CREATE INDEX buttons_by_set ON buttons (set_id);

-- The time zone that a principal chose for the times that it writes and reads in a chat.
CREATE TABLE zones (
    principal TEXT NOT NULL PRIMARY KEY,
    zone      TEXT NOT NULL -- a name of the IANA database, or an offset such as +02:00
) STRICT, WITHOUT ROWID;

-- Results of calls with an idempotency key. The row is written in the transaction of the effect and deleted by retention.
CREATE TABLE answers (
    owner  TEXT NOT NULL,
    method TEXT NOT NULL,
    key    TEXT NOT NULL,
    hash   TEXT NOT NULL, -- of the params
    answer TEXT NOT NULL, -- JSON
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, method, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_at ON answers (at);

-- Named tokens. A secret is never here, only its SHA-256.
CREATE TABLE credentials (
    name       TEXT NOT NULL PRIMARY KEY,
    digest     TEXT NOT NULL, -- 64 hexadecimal digits
    scopes     TEXT NOT NULL, -- with blanks between them
    visible    TEXT NOT NULL DEFAULT 'all',
    created_at INTEGER NOT NULL,
    expires_at INTEGER -- NULL = never
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);

-- The log of changes: rows are only inserted.
CREATE TABLE audit_log (
    id          TEXT NOT NULL PRIMARY KEY, -- UUIDv7: sorts by time
    who         TEXT NOT NULL,
    verb        TEXT NOT NULL,
    object      TEXT NOT NULL DEFAULT '',
    before_hash TEXT NOT NULL DEFAULT '',
    after_hash  TEXT NOT NULL DEFAULT '',
    peer        TEXT NOT NULL DEFAULT '',
    request_id  TEXT NOT NULL DEFAULT '',
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_log_object ON audit_log (object, at);

-- +goose Down
DROP TRIGGER transcript_words_end;
DROP TRIGGER turn_rounds_end;
DROP TABLE audit_log;
DROP TABLE credentials;
DROP TABLE answers;
DROP TABLE zones;
DROP TABLE buttons;
DROP TABLE channel_groups;
DROP TABLE pairing_grants;
DROP TABLE pairings;
DROP TABLE agent_sessions;
DROP TABLE token_ratios;
DROP TABLE usage_writers;
DROP TABLE usage_totals;
DROP TABLE usage_counters;
DROP TABLE cron_outages;
DROP TABLE cron_run_logs;
DROP TABLE cron_jobs;
DROP TABLE toc_nodes;
DROP TABLE toc_parts;
DROP TABLE toc_progress;
DROP TABLE search_state;
DROP TABLE transcript_words;
DROP TABLE kept_transcripts;
DROP TABLE branches;
DROP TABLE transcript;
DROP TABLE outbox;
DROP TABLE approvals;
DROP TABLE tool_questions;
DROP TABLE turn_rounds;
DROP TABLE runs;
DROP TABLE inbox;
DROP TABLE tombstones;
DROP TABLE sessions;
DROP TABLE hold;
DROP TABLE leases;
DROP TABLE nodes;
