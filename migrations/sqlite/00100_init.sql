-- The whole schema of release 0.1.0. The file of the other engine has the same tables, columns and indexes by name, in the same order; differences are marked.
-- Later steps are 00101 and up.
--
-- Times are integer milliseconds since the epoch. An absent string is NULL where a query tests for its absence, else ''. Only one table has a foreign key: the
-- lock of a session's row keeps its tables consistent, and the rows of a deleted session stay as history. No extension is needed. Booleans are 0 and 1. Tables
-- that are read only by key have no rowid.

-- +goose Up

-- The processes of the gateway.
CREATE TABLE nodes (
    id             TEXT NOT NULL PRIMARY KEY, -- incarnation: new at every start of a process
    started_at     INTEGER NOT NULL DEFAULT 0,
    lease_until    INTEGER NOT NULL DEFAULT 0, -- the process counts as alive until then
    lease_ms       INTEGER NOT NULL DEFAULT 15000,
    addr           TEXT NOT NULL DEFAULT '',
    version        TEXT NOT NULL DEFAULT '',
    draining       INTEGER NOT NULL DEFAULT 0, -- it takes no further sessions
    draining_since INTEGER,
    fires          INTEGER NOT NULL DEFAULT 0, -- it fires jobs
    agents         TEXT NOT NULL DEFAULT '' -- JSON list of its agents; '' = all
) STRICT, WITHOUT ROWID;

-- Named exclusive rights, such as polling one bot.
CREATE TABLE leases (
    name  TEXT NOT NULL PRIMARY KEY,
    owner TEXT, -- a node; NULL = free
    epoch INTEGER NOT NULL DEFAULT 0 -- grows with each change of the owner
) STRICT, WITHOUT ROWID;

-- While the row exists, the gateway is held: it does not send, does not receive from channels and starts no work by the clock. A backup contains the row.
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
    principal       TEXT NOT NULL DEFAULT '', -- its owner
    session_id      TEXT NOT NULL DEFAULT '', -- the current transcript
    lane            TEXT NOT NULL DEFAULT '',
    owner           TEXT, -- the node that runs its turns; NULL = no owner
    epoch           INTEGER NOT NULL DEFAULT 0, -- grows with each change of the owner
    last_seq        INTEGER NOT NULL DEFAULT 0, -- the last number given to a message
    taken_seq       INTEGER NOT NULL DEFAULT 0, -- the last number that was given to a run, or ended
    done_seq        INTEGER NOT NULL DEFAULT 0, -- every message up to it has an outcome
    stop_seq        INTEGER NOT NULL DEFAULT 0, -- a stop covers everything up to it
    waiting         INTEGER NOT NULL DEFAULT 0, -- messages in state waiting
    run_limit       INTEGER NOT NULL DEFAULT 1, -- the maximum number of concurrent turns
    mode            TEXT NOT NULL DEFAULT '', -- the queue mode; '' = as configured
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
    transcript_seq  INTEGER NOT NULL DEFAULT 0, -- the number of the last entry
    summary_id      TEXT NOT NULL DEFAULT '', -- the transcript of the newest summary
    summary_seq     INTEGER NOT NULL DEFAULT 0, -- its number
    summary_to      INTEGER NOT NULL DEFAULT 0 -- the last entry that it summarizes
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_principal ON sessions (principal);
CREATE INDEX sessions_passing ON sessions (key) WHERE key LIKE 'agent:%:api:passing-%' AND key NOT LIKE 'agent:%:api:passing-%:%'; -- deleted after their end

-- Sessions that jobs and hooks name. A session that another principal has made since named_at gets nothing from the holder. A session without an entry
-- (updated_at = 0) is deleted with its last name.
CREATE TABLE session_names (
    session_key TEXT NOT NULL,
    holder      TEXT NOT NULL, -- the id of a job, or the principal of a hook
    principal   TEXT NOT NULL, -- for which it names the session
    named_at    INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL, -- of a hook: when a process with it last started
    PRIMARY KEY (session_key, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_names_holder ON session_names (holder);

-- The remains of deleted sessions: a new session of the same key must reuse neither its sequence numbers nor its epochs.
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
    dedupe      TEXT, -- the idempotency key; NULL when it has none
    params_hash TEXT NOT NULL DEFAULT '', -- distinguishes a repeated call from a different one with the same key
    channel     TEXT NOT NULL DEFAULT '',
    external_id INTEGER NOT NULL DEFAULT 0, -- the provider's number of the message
    principal   TEXT NOT NULL DEFAULT '',
    sender      TEXT NOT NULL DEFAULT '', -- the id of its sender
    body        TEXT NOT NULL DEFAULT '{}', -- JSON
    lane        TEXT NOT NULL DEFAULT '',
    thread      TEXT NOT NULL DEFAULT '',
    mode        TEXT NOT NULL DEFAULT '', -- the queue mode that it asks for; '' = that of the session
    flags       INTEGER NOT NULL DEFAULT -1, -- 1 typed, 2 alone in its turn, 4 gathers; -1 = written by an older version: thread, mode, flags and size are in the body
    size        INTEGER NOT NULL DEFAULT 0, -- the bytes of its text
    state       TEXT NOT NULL, -- waiting, running, done
    outcome     TEXT, -- NULL exactly while it is not done
    reason      TEXT NOT NULL DEFAULT '',
    run_id      TEXT,
    merged_into INTEGER, -- the number of the message whose turn it shares
    notice_id   TEXT, -- the outgoing message about the outcome
    node        TEXT NOT NULL DEFAULT '', -- the node that accepted it
    accepted_at INTEGER NOT NULL DEFAULT 0,
    ended_at    INTEGER, -- NULL exactly while it is not done
    parent      TEXT, -- the run whose agent requested the message; NULL for other messages
    root        TEXT, -- the run at the root of its tree; NULL for other messages
    announce    INTEGER NOT NULL DEFAULT 0, -- 1 = its end is to be announced in the session of the parent
    PRIMARY KEY (session_key, seq)
) STRICT;
CREATE UNIQUE INDEX inbox_message ON inbox (message_id);
CREATE UNIQUE INDEX inbox_dedupe ON inbox (dedupe) WHERE dedupe IS NOT NULL;
-- Unfinished work has an index of its own, whose size does not depend on the history. SQLite uses the state as the condition; PostgreSQL uses the missing end,
-- because there the step from waiting to running must not change any index. Queries contain both conditions, or that of their engine.
CREATE INDEX inbox_unfinished ON inbox (session_key, seq) WHERE state <> 'done';
CREATE INDEX inbox_principal ON inbox (principal) WHERE state <> 'done';
-- Turns by their end, for lists that begin with the newest.
CREATE INDEX inbox_ended ON inbox (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX inbox_parent ON inbox (parent) WHERE parent IS NOT NULL;
CREATE INDEX inbox_root ON inbox (root) WHERE root IS NOT NULL;
CREATE INDEX inbox_tasks ON inbox (parent) WHERE parent IS NOT NULL AND (state <> 'done' OR announce = 1);
-- Sub-turns by the time of their acceptance, for lists that begin with the newest.
CREATE INDEX inbox_task_times ON inbox (accepted_at DESC, message_id) WHERE parent IS NOT NULL;

-- Turns.
CREATE TABLE runs (
    id            TEXT NOT NULL PRIMARY KEY, -- the id of one of its messages
    session_key   TEXT NOT NULL,
    session_id    TEXT NOT NULL DEFAULT '', -- the transcript to which the run writes, even after a reset
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
    detail        TEXT NOT NULL DEFAULT '', -- the failure description of the service behind the agent, without secrets; only administrators can read it
    stop_by       TEXT NOT NULL DEFAULT '', -- the requester of a stop
    program       TEXT NOT NULL DEFAULT '', -- the process of its latest attempt, JSON: a later attempt ends it when the gateway has left it running
    outside       INTEGER NOT NULL DEFAULT 0, -- its agent has read text from outside by its own tools, or its answer is such text
    preview       TEXT NOT NULL DEFAULT '', -- the message of a channel that shows the unfinished answer, in the form of the channel
    queued_at     INTEGER NOT NULL DEFAULT 0,
    started_at    INTEGER NOT NULL DEFAULT 0,
    ended_at      INTEGER,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    requests      INTEGER NOT NULL DEFAULT 0, -- to its model in its last attempt that has ended
    limited       INTEGER NOT NULL DEFAULT 0, -- how many of them were refused because of the provider's limits
    model         TEXT NOT NULL DEFAULT '',
    provider      TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
-- As for inbox_unfinished, PostgreSQL has the missing end as the condition.
CREATE INDEX runs_open ON runs (session_key) WHERE state IN ('running', 'stopping', 'yielded');
-- SQLite only: PostgreSQL finds the history of a session through inbox.
CREATE INDEX runs_session ON runs (session_key, seq_from);

-- The requests of the model of a running turn and their results, so that a restarted turn continues after them. The rows are deleted when the turn ends, and
-- its transcript then has their content; those of a run that never ends are deleted with the run.
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

-- Tool calls that need the permission of a person. The node of an allowed call makes it, or another node after that one has died.
CREATE TABLE tool_questions (
    id          TEXT NOT NULL PRIMARY KEY,
    session_key TEXT NOT NULL DEFAULT '',
    owner       TEXT NOT NULL, -- the principal that may answer
    state       TEXT NOT NULL, -- open, denied, allowed: the call is still to be made, done: it was made
    node        TEXT NOT NULL, -- the node that makes an allowed call
    asked_at    INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL, -- an open question cannot be answered after it
    call        TEXT NOT NULL, -- JSON: the call, its principal and its place
    result      TEXT NOT NULL -- JSON; '' until the call was made
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_questions_owner ON tool_questions (owner);
CREATE INDEX tool_questions_expiry ON tool_questions (expires_at);
CREATE INDEX tool_questions_open ON tool_questions (asked_at, id) WHERE state = 'open';
CREATE INDEX tool_questions_allowed ON tool_questions (id) WHERE state = 'allowed';

-- The permissions that a person gave an agent for all turns of a conversation. They apply to one transcript: after a reset nothing is allowed.
CREATE TABLE approvals (
    id          TEXT NOT NULL PRIMARY KEY, -- the id of the question
    owner       TEXT NOT NULL, -- the principal that answered
    session_key TEXT NOT NULL, -- the session of the question
    transcript  TEXT NOT NULL, -- session_id of the conversation
    agent       TEXT NOT NULL,
    act         TEXT NOT NULL, -- the allowed action, without details
    label       TEXT NOT NULL, -- the label of the option
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_session ON approvals (session_key, owner);

-- Outgoing messages. A file of an answer has a row of its own.
CREATE TABLE outbox (
    id          TEXT NOT NULL, -- the primary key on PostgreSQL
    place       INTEGER PRIMARY KEY, -- order of arrival
    run_id      TEXT,
    n           INTEGER NOT NULL DEFAULT 0, -- the number among the messages of the run
    session_key TEXT NOT NULL DEFAULT '',
    principal   TEXT NOT NULL DEFAULT '', -- the owner of the session if the delivery of a reply to the web creates it
    channel     TEXT NOT NULL DEFAULT '',
    chat_id     TEXT NOT NULL DEFAULT '',
    thread      TEXT NOT NULL DEFAULT '',
    kind        TEXT NOT NULL DEFAULT 'reply',
    payload     TEXT NOT NULL DEFAULT '',
    text_many   TEXT NOT NULL DEFAULT '', -- the text when several notices were joined
    count       INTEGER NOT NULL DEFAULT 1, -- the number of joined notices
    coalesce    TEXT NOT NULL DEFAULT '', -- notices with one key to one chat are joined
    choice      TEXT NOT NULL DEFAULT '', -- the choices that the message offers, JSON
    file        TEXT NOT NULL DEFAULT '', -- JSON; the bytes are in the directory for attachments
    origin      TEXT NOT NULL DEFAULT '', -- what sent it into a conversation other than its own, JSON
    state       TEXT NOT NULL DEFAULT 'pending', -- pending, sending, or the final state
    node        TEXT NOT NULL DEFAULT '', -- the node that sends it, or sends it first while it is pending
    attempt     INTEGER NOT NULL DEFAULT 0,
    epoch       INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER NOT NULL DEFAULT 0,
    expires_at  INTEGER,
    quiet       TEXT NOT NULL DEFAULT '', -- it waits for the end of quiet hours, and a later one with this word supersedes it
    held_until  INTEGER, -- until when quiet hours hold it or have held it
    progress    TEXT NOT NULL DEFAULT '', -- the parts that have arrived, in the form of the channel
    maybe_sent  INTEGER NOT NULL DEFAULT 0, -- an attempt ended without a response of the provider
    last_error  TEXT NOT NULL DEFAULT '',
    provider_id TEXT,
    created_at  INTEGER NOT NULL DEFAULT 0,
    done_at     INTEGER -- NULL while it is pending or sending
) STRICT;
CREATE UNIQUE INDEX outbox_id ON outbox (id);
CREATE UNIQUE INDEX outbox_run ON outbox (run_id, n) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_open ON outbox (channel, chat_id, place) WHERE state IN ('pending', 'sending');
-- SQLite only: on PostgreSQL outbox_open contains these rows.
CREATE INDEX outbox_failed ON outbox (channel) WHERE state = 'failed';
CREATE INDEX outbox_maybe_sent ON outbox (channel) WHERE state = 'maybe_sent';
CREATE INDEX outbox_session ON outbox (session_key) WHERE session_key <> '';
CREATE INDEX outbox_to_session ON outbox (chat_id) WHERE channel = 'web';

-- Which message of a chat network shows which outgoing message, or a part of it.
CREATE TABLE sent (
    channel     TEXT NOT NULL,
    chat_id     TEXT NOT NULL,
    message     TEXT NOT NULL, -- its id in the network
    outgoing_id TEXT NOT NULL,
    from_byte   INTEGER NOT NULL, -- what it shows of the text as people see it
    to_byte     INTEGER NOT NULL,
    PRIMARY KEY (channel, chat_id, message)
) STRICT, WITHOUT ROWID;
CREATE INDEX sent_outgoing ON sent (outgoing_id);

-- The entries of conversations. A summary is an entry that replaces older ones for the model.
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
    outside     INTEGER NOT NULL DEFAULT 0, -- it contains untrusted text, or was made from rows that do
    at          INTEGER NOT NULL DEFAULT 0,
    reply_id    TEXT NOT NULL DEFAULT '', -- the outgoing message that it shows; '' for other entries
    origin      TEXT NOT NULL DEFAULT '', -- what wrote it from outside of the conversation, JSON; '' for other entries
    from_seq    INTEGER NOT NULL DEFAULT 0, -- for a summary: the first summarized entry; 0 for other entries
    to_seq      INTEGER NOT NULL DEFAULT 0, -- the last summarized entry
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
    depth       INTEGER NOT NULL, -- the number of branches between it and the first transcript, including deleted ones
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

-- The search index over transcripts, with FTS5. An entry of the index has the rowid of its row of transcript and the words that the program extracts from its
-- content, see the package words; the index does not contain the content. Rows above search_state.upto are not indexed yet.
CREATE VIRTUAL TABLE transcript_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '='"
);
CREATE TABLE search_state (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    upto        INTEGER NOT NULL, -- the highest indexed rowid of transcript
    session_key TEXT NOT NULL, -- of the row with that rowid: when a different row has it, VACUUM has renumbered the table; '' = unknown
    session_id  TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    removals    INTEGER NOT NULL -- grows with each deletion, so that rows read before a deletion are not indexed after it
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

-- The table of contents of conversations: summaries of the sessions of an owner by day (toc_parts), and of these by week and by month (toc_nodes). Entries of a
-- session above toc_progress.upto are not covered yet.
CREATE TABLE toc_progress (
    session_key TEXT NOT NULL PRIMARY KEY,
    upto        INTEGER NOT NULL -- the highest number of an entry that a part covers
) STRICT, WITHOUT ROWID;
CREATE TABLE toc_parts (
    session_key TEXT NOT NULL,
    day         TEXT NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    owner       TEXT NOT NULL,
    week        TEXT NOT NULL, -- as in 2026-W11
    month       TEXT NOT NULL, -- the month of the Thursday of the week, as in 2026-03
    from_seq    INTEGER NOT NULL,
    to_seq      INTEGER NOT NULL,
    entries     INTEGER NOT NULL, -- the number of covered entries
    text        TEXT NOT NULL,
    made        INTEGER NOT NULL, -- how many times it was made: more than once for a long day, and for late entries
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
    stale      INTEGER NOT NULL DEFAULT 1, -- the summary is missing or outdated
    claim      TEXT NOT NULL DEFAULT '', -- the claim of the last process that began to make it; '' = its sources have changed since
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
    list_mark               INTEGER NOT NULL DEFAULT 0, -- a number that changes with the job: a list detects changes by the sum
    name                    TEXT NOT NULL DEFAULT '',
    display_name            TEXT NOT NULL DEFAULT '',
    description             TEXT NOT NULL DEFAULT '',
    principal               TEXT NOT NULL DEFAULT '',
    agent                   TEXT NOT NULL DEFAULT '',
    account_id              TEXT NOT NULL DEFAULT '',
    lane                    TEXT NOT NULL DEFAULT 'cron',
    kind                    TEXT NOT NULL DEFAULT '',
    schedule                TEXT NOT NULL, -- JSON, like the next four columns
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
    next_run_at             INTEGER, -- with jitter; for a paused job the time to resume; NULL = nothing is planned
    next_wall               INTEGER, -- the wall time of the slot by the zone rules that found it, as if it were UTC; NULL = no rules of a zone
    zone_release            TEXT NOT NULL DEFAULT '', -- the release of these rules
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
    delivery_paused_at      INTEGER, -- since when the chat no longer exists: answers are kept and not sent; NULL = they are sent
    delivery_paused_why     TEXT NOT NULL DEFAULT '',
    delivery_paused_channel TEXT NOT NULL DEFAULT '', -- the address, as in the outbox
    delivery_paused_chat    TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX cron_jobs_key ON cron_jobs (owner, key);
-- The claim reads only this index; the id orders jobs with the same time, which saves a sort.
CREATE INDEX cron_jobs_due ON cron_jobs (next_run_at, id)
    WHERE enabled = 1 AND next_run_at IS NOT NULL AND invalid = '' AND (paused_at IS NULL OR paused_until IS NOT NULL);
CREATE INDEX cron_jobs_rules ON cron_jobs (zone_release, id) WHERE zone_release <> ''; -- slots that older zone rules have planned
CREATE INDEX cron_jobs_listed ON cron_jobs (owner, list_mark);

-- The ledger of their runs. A run that executes is a message of the inbox, run_id, with the ownership, takeover and fence of every message.
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
    finished_at         INTEGER, -- NULL exactly while it is queued, running or retrying
    next_attempt_at     INTEGER, -- while it is retrying
    duration_ms         INTEGER NOT NULL DEFAULT 0,
    attempt             INTEGER NOT NULL DEFAULT 0,
    attempts            TEXT NOT NULL DEFAULT '[]', -- JSON: the ended attempts
    error               TEXT NOT NULL DEFAULT '',
    error_class         TEXT NOT NULL DEFAULT '',
    summary             TEXT NOT NULL DEFAULT '',
    model               TEXT NOT NULL DEFAULT '',
    provider            TEXT NOT NULL DEFAULT '',
    input_tokens        INTEGER NOT NULL DEFAULT 0,
    output_tokens       INTEGER NOT NULL DEFAULT 0,
    run_id              TEXT NOT NULL DEFAULT '', -- the message of the current attempt; '' when it has none
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
-- The order of planned times, which no update changes. The rows of one job have this order in the index of their slots.
CREATE INDEX cron_runs_planned_of_owner ON cron_run_logs (owner, scheduled_for, id);
-- A budget counts the claims of a day by their planned time, except those that were made more than an hour after it, which use this index.
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE run_id <> '' AND claimed_at - scheduled_for > 3600000;
-- SQLite only: PostgreSQL reads ranges of pages (cron_runs_times) instead.
CREATE INDEX cron_runs_planned ON cron_run_logs (scheduled_for, id);
CREATE INDEX cron_runs_finished ON cron_run_logs (finished_at) WHERE finished_at IS NOT NULL;
-- The runs in shared sessions, for the deletion of these. The others are found by their id.
CREATE INDEX cron_runs_shared ON cron_run_logs (session_key) WHERE session_key NOT LIKE '%:cron:%';

-- The times during which no process fired jobs.
CREATE TABLE cron_outages (
    from_at  INTEGER NOT NULL PRIMARY KEY,
    until_at INTEGER -- NULL while it continues
) STRICT;

-- The usage of agents: daily counters by principal, agent, model and job, the totals for budgets, and the last batch of each writer.
CREATE TABLE usage_counters (
    day           TEXT NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    principal     TEXT NOT NULL,
    agent         TEXT NOT NULL,
    model         TEXT NOT NULL,
    job           TEXT NOT NULL, -- '' for the turn of a person
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
-- A batch whose commit is unknown is written again: the number shows whether it was committed.
CREATE TABLE usage_writers (
    writer TEXT NOT NULL PRIMARY KEY,
    batch  INTEGER NOT NULL,
    day    TEXT NOT NULL -- the day of its last batch
) STRICT, WITHOUT ROWID;

-- The ratio of the tokens that an endpoint counts for a model to the estimates of the gateway.
CREATE TABLE token_ratios (
    endpoint TEXT NOT NULL,
    model    TEXT NOT NULL,
    permille INTEGER NOT NULL, -- counted tokens per thousand estimated
    PRIMARY KEY (endpoint, model)
) STRICT, WITHOUT ROWID;

-- The session that an agent itself keeps of a conversation, and the process that had it last. An agent that can load sessions continues it in another process.
CREATE TABLE agent_sessions (
    session_key   TEXT NOT NULL PRIMARY KEY,
    transcript    TEXT NOT NULL, -- session_id of the conversation; another transcript has another session of the agent
    agent_session TEXT NOT NULL, -- the agent's id
    runs          TEXT NOT NULL, -- the latest turns that the agent has received, separated by spaces
    seen          INTEGER NOT NULL, -- the number of the last transcript entry that it has received
    used_input    INTEGER NOT NULL, -- tokens of the session, for agents that report these instead of those of a turn
    used_output   INTEGER NOT NULL,
    used_cached   INTEGER NOT NULL, -- the cached part of used_input
    dir           TEXT NOT NULL, -- the directory for which it was created
    host          TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    pid_started   TEXT NOT NULL, -- distinguishes the process from others with the same number
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Records of channels besides messages. Ids of people and chats are the provider's numbers. Open pairing requests:
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
    moved_from INTEGER NOT NULL DEFAULT 0, -- the previous number of the group; 0 when it has not moved
    PRIMARY KEY (channel, chat_id)
) STRICT, WITHOUT ROWID;
-- Open buttons below messages.
CREATE TABLE buttons (
    id         TEXT NOT NULL PRIMARY KEY,
    set_id     TEXT NOT NULL, -- only one of the buttons of a message can be used
    channel    TEXT NOT NULL,
    chat_id    INTEGER NOT NULL,
    user_id    INTEGER NOT NULL, -- 0 = every user with the right to write in the chat
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

-- The hours of the day during which what jobs send into a chat waits, in minutes since midnight.
CREATE TABLE quiet_hours (
    chat_id     TEXT NOT NULL,
    network     TEXT NOT NULL,
    from_minute INTEGER NOT NULL,
    to_minute   INTEGER NOT NULL,
    zone        TEXT NOT NULL, -- unless the principal has chosen one
    principal   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (chat_id, network)
) STRICT, WITHOUT ROWID;

-- Results of calls with an idempotency key. The row is written in the transaction of the effect and deleted by retention.
CREATE TABLE answers (
    owner  TEXT NOT NULL,
    method TEXT NOT NULL,
    key    TEXT NOT NULL,
    hash   TEXT NOT NULL, -- of the parameters
    answer TEXT NOT NULL, -- JSON
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, method, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_at ON answers (at);

-- Named tokens. The table contains no secret, only its SHA-256.
CREATE TABLE credentials (
    name       TEXT NOT NULL PRIMARY KEY,
    digest     TEXT NOT NULL, -- 64 hexadecimal digits
    scopes     TEXT NOT NULL, -- separated by spaces
    visible    TEXT NOT NULL DEFAULT 'all',
    created_at INTEGER NOT NULL,
    expires_at INTEGER -- NULL = never
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);

-- The audit log: rows are inserted, and deleted when they are too old.
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
CREATE INDEX audit_log_at ON audit_log (at);

-- +goose Down
DROP TRIGGER transcript_words_end;
DROP TRIGGER turn_rounds_end;
DROP TABLE audit_log;
DROP TABLE credentials;
DROP TABLE answers;
DROP TABLE quiet_hours;
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
DROP TABLE sent;
DROP TABLE outbox;
DROP TABLE approvals;
DROP TABLE tool_questions;
DROP TABLE turn_rounds;
DROP TABLE runs;
DROP TABLE inbox;
DROP TABLE tombstones;
DROP TABLE session_names;
DROP TABLE sessions;
DROP TABLE hold;
DROP TABLE leases;
DROP TABLE nodes;
