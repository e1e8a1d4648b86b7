-- The whole schema of release 0.1.0. The file of the other engine has the same tables, columns and indexes by name, in the same order; what only one engine
-- has says so. Later steps are 00101 and up.
--
-- Times are integer milliseconds since the epoch. Text that is absent is NULL where a query asks for its absence, else ''. No table but one refers to another
-- by a foreign key: the lock of a session's row keeps its tables together, and the rows of a deleted session stay as history. Nothing here needs an extension.
-- A fillfactor leaves room in each page for the later versions of its rows: a version that fits into the page of the old one writes no index entry. For the
-- same reason no index of a busy table has a column that every turn changes (state, owner, epoch).

-- +goose Up

-- The processes of the gateway.
CREATE TABLE nodes (
    id             text NOT NULL PRIMARY KEY, -- incarnation: new at every start of a process
    started_at     bigint NOT NULL DEFAULT 0,
    lease_until    bigint NOT NULL DEFAULT 0, -- the process lives until then, unless it extends it
    lease_ms       bigint NOT NULL DEFAULT 15000,
    addr           text NOT NULL DEFAULT '',
    version        text NOT NULL DEFAULT '',
    draining       boolean NOT NULL DEFAULT false, -- it takes no session any more
    draining_since bigint,
    fires          boolean NOT NULL DEFAULT false, -- it fires jobs
    agents         text NOT NULL DEFAULT '' -- JSON list of those that it has; '' = all
) WITH (fillfactor = 50);

-- Named exclusive rights, such as to poll one bot.
CREATE TABLE leases (
    name  text NOT NULL PRIMARY KEY,
    owner text, -- a node; NULL = free
    epoch bigint NOT NULL DEFAULT 0 -- grows with each change of the owner
) WITH (fillfactor = 50);

-- One row holds the gateway: nothing is sent, received from channels or started by the clock. A backup has it.
CREATE TABLE hold (
    id     bigint NOT NULL PRIMARY KEY, -- always 1
    since  bigint NOT NULL,
    who    text NOT NULL,
    reason text NOT NULL
);

-- How many calls each principal has left in this minute, for all replicas together. It is lost with a crash of the server, which costs each principal at most
-- a minute's allowance; so the table is unlogged. SQLite has one process, which keeps them in memory.
CREATE UNLOGGED TABLE allowances (
    name   text             NOT NULL PRIMARY KEY,
    tokens double precision NOT NULL,
    got    bigint           NOT NULL, -- by the last call
    at     bigint           NOT NULL
) WITH (fillfactor = 50);

-- Sessions. A turn updates its row three times.
CREATE TABLE sessions (
    key             text NOT NULL PRIMARY KEY,
    agent           text NOT NULL DEFAULT '',
    principal       text NOT NULL DEFAULT '', -- that owns it
    session_id      text NOT NULL DEFAULT '', -- of the current transcript
    lane            text NOT NULL DEFAULT '',
    owner           text, -- the node that runs its turns; NULL = none
    epoch           bigint NOT NULL DEFAULT 0, -- grows with each change of the owner
    last_seq        bigint NOT NULL DEFAULT 0, -- given to a message
    taken_seq       bigint NOT NULL DEFAULT 0, -- given to a run, or ended
    done_seq        bigint NOT NULL DEFAULT 0, -- everything up to it has an outcome
    stop_seq        bigint NOT NULL DEFAULT 0, -- a stop covers everything up to it
    waiting         bigint NOT NULL DEFAULT 0, -- messages in state held or waiting
    run_limit       bigint NOT NULL DEFAULT 1, -- turns at once
    mode            text NOT NULL DEFAULT '', -- of the queue; '' = as configured
    notes           text NOT NULL DEFAULT '{}', -- JSON
    debounce_until  bigint NOT NULL DEFAULT 0,
    created_at      bigint NOT NULL DEFAULT 0,
    updated_at      bigint NOT NULL DEFAULT 0,
    last_message_at bigint NOT NULL DEFAULT 0,
    last_run_id     text NOT NULL DEFAULT '',
    last_state      text NOT NULL DEFAULT '',
    last_cause      text NOT NULL DEFAULT '',
    last_error      text NOT NULL DEFAULT '',
    preview         text NOT NULL DEFAULT '',
    total_tokens    bigint NOT NULL DEFAULT 0,
    transcript_seq  bigint NOT NULL DEFAULT 0, -- of the last entry
    summary_id      text NOT NULL DEFAULT '', -- the transcript of the newest summary
    summary_seq     bigint NOT NULL DEFAULT 0, -- its number
    summary_to      bigint NOT NULL DEFAULT 0 -- the last entry that it stands for
) WITH (fillfactor = 50);
CREATE INDEX sessions_principal ON sessions (principal);

-- What a deleted session leaves: a new session of the same key must reuse neither its sequence numbers nor its epochs.
CREATE TABLE tombstones (
    key      text NOT NULL PRIMARY KEY,
    last_seq bigint NOT NULL,
    epoch    bigint NOT NULL
);

-- Accepted messages.
CREATE TABLE inbox (
    session_key text NOT NULL,
    seq         bigint NOT NULL,
    message_id  text,
    dedupe      text, -- the idempotency key; NULL = none
    params_hash text NOT NULL DEFAULT '', -- tells a repeated call from another one with the same key
    channel     text NOT NULL DEFAULT '',
    external_id bigint NOT NULL DEFAULT 0, -- the number that the provider gave it
    principal   text NOT NULL DEFAULT '',
    sender      text NOT NULL DEFAULT '', -- JSON
    body        text NOT NULL DEFAULT '{}', -- JSON
    lane        text NOT NULL DEFAULT '',
    state       text NOT NULL, -- held, waiting, running, done
    outcome     text, -- NULL exactly as long as it is not done
    reason      text NOT NULL DEFAULT '',
    run_id      text,
    merged_into bigint, -- the number of the message whose turn it shares
    notice_id   text, -- the outgoing message that tells of the outcome
    node        text NOT NULL DEFAULT '', -- that accepted it
    accepted_at bigint NOT NULL DEFAULT 0,
    ended_at    bigint, -- NULL exactly as long as it is not done
    parent      text, -- run whose agent asked for the message; NULL = none did
    root        text, -- run at the root of its tree; NULL = it is in none
    announce    bigint NOT NULL DEFAULT 0, -- 1 = its end is to be announced in the session of the parent
    PRIMARY KEY (session_key, seq)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX inbox_message ON inbox (message_id);
CREATE UNIQUE INDEX inbox_dedupe ON inbox (dedupe) WHERE dedupe IS NOT NULL;
-- Unfinished work has an index of its own, whose size does not follow the history. PostgreSQL asks for the missing end, because the step from waiting to running
-- must leave every index alone; SQLite asks for the state. Queries name both conditions, or that of their engine.
CREATE INDEX inbox_unfinished ON inbox (session_key, seq) WHERE ended_at IS NULL;
-- Turns by their end, for lists that begin with the newest.
CREATE INDEX inbox_ended ON inbox (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX inbox_parent ON inbox (parent) WHERE parent IS NOT NULL;
CREATE INDEX inbox_root ON inbox (root) WHERE root IS NOT NULL;
CREATE INDEX inbox_tasks ON inbox (parent) WHERE parent IS NOT NULL AND (ended_at IS NULL OR announce = 1);
-- Sub-turns by the time of their acceptance, for lists that begin with the newest.
CREATE INDEX inbox_task_times ON inbox (accepted_at DESC, message_id) WHERE parent IS NOT NULL;

-- Turns.
CREATE TABLE runs (
    id            text NOT NULL PRIMARY KEY, -- of one of its messages
    session_key   text NOT NULL,
    session_id    text NOT NULL DEFAULT '', -- transcript that the run writes to, also after a reset
    seq_from      bigint NOT NULL, -- its messages
    seq_to        bigint NOT NULL,
    lane          text NOT NULL DEFAULT '',
    owner         text NOT NULL DEFAULT '',
    epoch         bigint NOT NULL DEFAULT 0,
    attempt       bigint NOT NULL DEFAULT 1,
    crashes       bigint NOT NULL DEFAULT 0, -- attempts whose node died
    state         text NOT NULL,
    cause         text NOT NULL DEFAULT '',
    error         text NOT NULL DEFAULT '',
    detail        text NOT NULL DEFAULT '', -- what the service of the agent wrote about a failure, without secrets; only administrators read it
    stop_by       text NOT NULL DEFAULT '', -- that asked to stop it
    queued_at     bigint NOT NULL DEFAULT 0,
    started_at    bigint NOT NULL DEFAULT 0,
    ended_at      bigint,
    input_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    model         text NOT NULL DEFAULT '',
    provider      text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
-- As for inbox_unfinished, SQLite has the states running, stopping and yielded as the condition.
CREATE INDEX runs_open ON runs (session_key) WHERE ended_at IS NULL;

-- What the model of a running turn asked for and was given, so that a turn that runs again goes on after it. The rows go when the turn ends, with what they
-- contain in its transcript; those of a run that never ends are deleted with the run.
CREATE TABLE turn_rounds (
    run_id text NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    round  bigint NOT NULL, -- from 1
    kind   text NOT NULL, -- asked: text and calls; result: of one call; input: a message that joined after the results
    n      bigint NOT NULL, -- asked: 0; result: the call, from 0; input: the number of the message in its session
    body   text NOT NULL, -- JSON; '' for input
    PRIMARY KEY (run_id, round, kind, n)
);

-- Calls of tools that are made when a person allows them. An allowed call is made by its node, or by another one after the end of that node.
CREATE TABLE tool_questions (
    id          text NOT NULL PRIMARY KEY,
    session_key text NOT NULL DEFAULT '',
    owner       text NOT NULL, -- the principal that may answer
    state       text NOT NULL, -- open, denied, allowed: the call has to be made, done: it was made
    node        text NOT NULL, -- that makes an allowed call
    asked_at    bigint NOT NULL,
    expires_at  bigint NOT NULL, -- an open question cannot be answered after it
    call        text NOT NULL, -- JSON: what is to be done, for whom and where
    result      text NOT NULL -- JSON; '' until the call was made
);
CREATE INDEX tool_questions_owner ON tool_questions (owner);
CREATE INDEX tool_questions_expiry ON tool_questions (expires_at);
CREATE INDEX tool_questions_open ON tool_questions (asked_at, id) WHERE state = 'open';
CREATE INDEX tool_questions_allowed ON tool_questions (id) WHERE state = 'allowed';

-- What a person has allowed an agent for all turns of a conversation. It counts for one transcript: after a reset nothing is allowed.
CREATE TABLE approvals (
    id          text NOT NULL PRIMARY KEY, -- of the question
    owner       text NOT NULL, -- the principal that answered
    session_key text NOT NULL, -- where it was asked
    transcript  text NOT NULL, -- session_id of the conversation
    agent       text NOT NULL,
    act         text NOT NULL, -- what was asked, without its details
    label       text NOT NULL, -- of the option
    created_at  bigint NOT NULL
);
CREATE INDEX approvals_session ON approvals (session_key, owner);

-- Outgoing messages. A file of an answer has a row of its own.
CREATE TABLE outbox (
    id          text NOT NULL PRIMARY KEY,
    place       bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY, -- order of arrival; on SQLite the primary key
    run_id      text,
    n           bigint NOT NULL DEFAULT 0, -- of the messages of the run
    session_key text NOT NULL DEFAULT '',
    principal   text NOT NULL DEFAULT '', -- that owns the session when the delivery of a reply to the web makes it
    channel     text NOT NULL DEFAULT '',
    chat_id     text NOT NULL DEFAULT '',
    thread      text NOT NULL DEFAULT '',
    kind        text NOT NULL DEFAULT 'reply',
    payload     text NOT NULL DEFAULT '',
    text_many   text NOT NULL DEFAULT '', -- what is sent instead when several notices became one
    count       bigint NOT NULL DEFAULT 1, -- how many they are
    coalesce    text NOT NULL DEFAULT '', -- notices of one key to one chat become one
    choice      text NOT NULL DEFAULT '', -- the choices that the message offers, JSON
    file        text NOT NULL DEFAULT '', -- JSON; the bytes are in the directory for attachments
    state       text NOT NULL DEFAULT 'pending', -- pending, sending, and how it ended
    node        text NOT NULL DEFAULT '', -- that sends it
    attempt     bigint NOT NULL DEFAULT 0,
    epoch       bigint NOT NULL DEFAULT 0,
    next_at     bigint NOT NULL DEFAULT 0,
    expires_at  bigint,
    progress    text NOT NULL DEFAULT '', -- the parts that have arrived, in the form of the channel
    maybe_sent  boolean NOT NULL DEFAULT false, -- an attempt ended without an answer of the provider
    last_error  text NOT NULL DEFAULT '',
    provider_id text,
    created_at  bigint NOT NULL DEFAULT 0,
    done_at     bigint -- NULL as long as it is pending or sending
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX outbox_run ON outbox (run_id, n);
CREATE INDEX outbox_open ON outbox (channel, chat_id, place) WHERE done_at IS NULL OR state = 'failed';
CREATE INDEX outbox_maybe_sent ON outbox (channel) WHERE state = 'maybe_sent';
-- PostgreSQL only: one message at a time is under way to a chat, from any node. SQLite has one writer.
CREATE UNIQUE INDEX outbox_under_way ON outbox (channel, chat_id) WHERE state = 'sending';
CREATE INDEX outbox_session ON outbox (session_key) WHERE session_key <> '';
CREATE INDEX outbox_to_session ON outbox (chat_id) WHERE channel = 'web';

-- The entries of conversations. A summary is an entry that stands for older ones.
CREATE TABLE transcript (
    session_key text NOT NULL,
    session_id  text NOT NULL,
    seq         bigint NOT NULL,
    run_id      text NOT NULL DEFAULT '',
    role        text NOT NULL DEFAULT '',
    content     text NOT NULL DEFAULT '',
    sender      text NOT NULL DEFAULT '', -- JSON
    tokens      bigint NOT NULL DEFAULT 0,
    stop_reason text NOT NULL DEFAULT '',
    command     boolean NOT NULL DEFAULT false, -- a chat command or the reply to it
    outside     boolean NOT NULL DEFAULT false, -- it has text from outside, or was made from rows that have
    at          bigint NOT NULL DEFAULT 0,
    reply_id    text NOT NULL DEFAULT '', -- the outgoing message to the web that it delivers; '' = none
    from_seq    bigint NOT NULL DEFAULT 0, -- of a summary: the first entry that it stands for; 0 = no summary
    to_seq      bigint NOT NULL DEFAULT 0, -- the last one
    PRIMARY KEY (session_key, session_id, seq)
);
CREATE UNIQUE INDEX transcript_reply ON transcript (session_key, reply_id) WHERE reply_id <> '';

-- Transcripts that begin with the entries of another one, up to a number. Their own entries have higher numbers.
CREATE TABLE branches (
    session_key text NOT NULL,
    session_id  text NOT NULL,
    parent_key  text NOT NULL,
    parent_id   text NOT NULL,
    parent_seq  bigint NOT NULL,
    depth       bigint NOT NULL, -- how many branches lie between it and the first transcript, or have lain
    PRIMARY KEY (session_key, session_id)
);
CREATE INDEX branches_parent ON branches (parent_key, parent_id, parent_seq);

-- Transcripts that a deletion keeps belong to the principal of their session: a later session of the same key does not own them.
CREATE TABLE kept_transcripts (
    session_key text NOT NULL,
    session_id  text NOT NULL,
    principal   text NOT NULL, -- '' = unknown: only principals that may read everything may read it
    PRIMARY KEY (session_key, session_id)
);

-- The search over transcripts, in the form of PostgreSQL's index. An entry has the words that the program makes of a text, see the package words; the index keeps
-- no texts and no positions. Entries of a session above search_progress.upto are not in it yet.
CREATE TABLE search_progress (
    session_key text   NOT NULL PRIMARY KEY,
    upto        bigint NOT NULL -- the highest number of an entry that is in the index
) WITH (fillfactor = 70);
-- Transcripts by number: the entries are many, and a key with an id has some hundred bytes.
CREATE TABLE search_transcripts (
    id          bigint NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    session_key text   NOT NULL,
    session_id  text   NOT NULL
);
CREATE UNIQUE INDEX search_transcripts_key ON search_transcripts (session_key, session_id);
CREATE TABLE search_entries (
    transcript bigint   NOT NULL,
    seq        bigint   NOT NULL,
    at         bigint   NOT NULL,
    words      tsvector NOT NULL,
    PRIMARY KEY (transcript, seq)
);
CREATE INDEX search_entries_at ON search_entries (at);
CREATE INDEX search_entries_words ON search_entries USING gin (words);

-- The table of contents of conversations: what the sessions of an owner were about on a day (toc_parts), and summaries of those by week and by month
-- (toc_nodes). Entries of a session above toc_progress.upto belong to no part yet.
CREATE TABLE toc_progress (
    session_key text NOT NULL PRIMARY KEY,
    upto        bigint NOT NULL -- the highest number of an entry that a part stands for
);
CREATE TABLE toc_parts (
    session_key text NOT NULL,
    day         text NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    owner       text NOT NULL,
    week        text NOT NULL, -- as in 2026-W11
    month       text NOT NULL, -- of the Thursday of the week, as in 2026-03
    from_seq    bigint NOT NULL,
    to_seq      bigint NOT NULL,
    entries     bigint NOT NULL, -- how many it stands for
    text        text NOT NULL,
    made        bigint NOT NULL, -- how many times it was made: more than once for a long day, and for entries that came late
    made_at     bigint NOT NULL,
    PRIMARY KEY (session_key, day)
);
CREATE INDEX toc_parts_day ON toc_parts (owner, day);
CREATE TABLE toc_nodes (
    owner      text NOT NULL,
    level      text NOT NULL, -- week, month
    period     text NOT NULL,
    month      text NOT NULL, -- of a week
    text       text NOT NULL DEFAULT '',
    stale      bigint NOT NULL DEFAULT 1, -- it is to be made, or to be made again
    claim      text NOT NULL DEFAULT '', -- of the last one that began to make it; '' = what it is made of has changed since
    claimed_at bigint NOT NULL DEFAULT 0,
    made       bigint NOT NULL DEFAULT 0,
    made_at    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, level, period)
);
CREATE INDEX toc_nodes_stale ON toc_nodes (level, period, owner) WHERE stale = 1;

-- Jobs that fire by the clock.
CREATE TABLE cron_jobs (
    id                      text COLLATE "C" NOT NULL PRIMARY KEY,
    owner                   text NOT NULL,
    key                     text NOT NULL,
    key_derived             boolean NOT NULL DEFAULT false,
    list_mark               bigint NOT NULL DEFAULT 0, -- a number of the job and its changes: a list knows by its sum that it has changed
    name                    text NOT NULL DEFAULT '',
    display_name            text NOT NULL DEFAULT '',
    description             text NOT NULL DEFAULT '',
    principal               text NOT NULL DEFAULT '',
    agent                   text NOT NULL DEFAULT '',
    account_id              text NOT NULL DEFAULT '',
    lane                    text NOT NULL DEFAULT 'cron',
    kind                    text NOT NULL DEFAULT '',
    schedule                text NOT NULL, -- JSON, as the four below
    tz                      text NOT NULL DEFAULT '',
    jitter_ms               bigint NOT NULL DEFAULT 0,
    starts_at               bigint,
    ends_at                 bigint,
    max_runs                bigint NOT NULL DEFAULT 0, -- 0 = no bound
    session                 text NOT NULL DEFAULT 'isolated',
    wake_mode               text NOT NULL DEFAULT '',
    payload                 text NOT NULL,
    delivery                text NOT NULL,
    alert                   text NOT NULL,
    policy                  text NOT NULL,
    enabled                 boolean NOT NULL DEFAULT true,
    paused_note             text NOT NULL DEFAULT '',
    paused_by               text NOT NULL DEFAULT '',
    paused_at               bigint, -- NULL = not paused
    paused_until            bigint,
    auto_disabled           boolean NOT NULL DEFAULT false,
    invalid                 text NOT NULL DEFAULT '', -- why the row cannot be decoded
    revision                text NOT NULL DEFAULT '',
    created_at              bigint NOT NULL DEFAULT 0,
    updated_at              bigint NOT NULL DEFAULT 0,
    next_slot               bigint,
    next_run_at             bigint, -- with jitter; of a paused job the moment to resume; NULL = nothing is planned
    activated_at            bigint,
    fired                   bigint NOT NULL DEFAULT 0,
    run_count               bigint NOT NULL DEFAULT 0,
    error_count             bigint NOT NULL DEFAULT 0,
    last_run_at             bigint,
    last_state              text NOT NULL DEFAULT '',
    last_error              text NOT NULL DEFAULT '',
    last_error_class        text NOT NULL DEFAULT '',
    last_duration_ms        bigint NOT NULL DEFAULT 0,
    last_delivery           text NOT NULL DEFAULT '',
    last_delivery_error     text NOT NULL DEFAULT '',
    last_alert_at           bigint,
    consecutive_errors      bigint NOT NULL DEFAULT 0,
    consecutive_skipped     bigint NOT NULL DEFAULT 0,
    delivery_paused_at      bigint, -- the chat does not exist any more: answers are kept and not sent; NULL = they are sent
    delivery_paused_why     text NOT NULL DEFAULT '',
    delivery_paused_channel text NOT NULL DEFAULT '', -- the address, as it stands in the outbox
    delivery_paused_chat    text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX cron_jobs_key ON cron_jobs (owner, key);
-- The claim reads this index only; the id decides the order of jobs of one instant without sorting them.
CREATE INDEX cron_jobs_due ON cron_jobs (next_run_at, id) WHERE enabled AND invalid = '';
CREATE INDEX cron_jobs_listed ON cron_jobs (owner, list_mark);

-- The ledger of their runs. A run that executes is a message of the inbox: run_id names it, so that ownership, takeover and fence are those of every message.
CREATE TABLE cron_run_logs (
    id                  text COLLATE "C" NOT NULL PRIMARY KEY, -- <trigger>:<job>:<slot>
    job_id              text COLLATE "C" NOT NULL,
    job_name            text NOT NULL DEFAULT '',
    job_key             text NOT NULL DEFAULT '',
    owner               text NOT NULL DEFAULT '',
    agent               text NOT NULL DEFAULT '',
    lane                text NOT NULL DEFAULT '',
    session_key         text NOT NULL DEFAULT '',
    scheduled_for       bigint NOT NULL,
    trigger             text NOT NULL,
    state               text NOT NULL,
    reason              text,
    dst                 text NOT NULL DEFAULT '',
    slot_count          bigint NOT NULL DEFAULT 1, -- a row may stand for several missed slots
    slot_until          bigint,
    fire_at             bigint,
    claimed_at          bigint,
    started_at          bigint,
    finished_at         bigint, -- NULL exactly as long as it is queued, running or retrying
    next_attempt_at     bigint, -- while it is retrying
    duration_ms         bigint NOT NULL DEFAULT 0,
    attempt             bigint NOT NULL DEFAULT 0,
    attempts            text NOT NULL DEFAULT '[]', -- JSON: those that ended
    error               text NOT NULL DEFAULT '',
    error_class         text NOT NULL DEFAULT '',
    summary             text NOT NULL DEFAULT '',
    model               text NOT NULL DEFAULT '',
    provider            text NOT NULL DEFAULT '',
    input_tokens        bigint NOT NULL DEFAULT 0,
    output_tokens       bigint NOT NULL DEFAULT 0,
    run_id              text NOT NULL DEFAULT '', -- message of the current attempt; '' = it has none
    delivery            text NOT NULL DEFAULT '',
    delivery_error      text NOT NULL DEFAULT '',
    provider_message_id text NOT NULL DEFAULT '',
    suppressed_by       text NOT NULL DEFAULT '',
    node                text NOT NULL DEFAULT ''
) WITH (fillfactor = 40);
CREATE UNIQUE INDEX cron_runs_slot ON cron_run_logs (job_id, scheduled_for, trigger);
-- Active rows have indexes of their own, so that no plan reads the history to find them.
CREATE INDEX cron_runs_active ON cron_run_logs (job_id) WHERE finished_at IS NULL;
CREATE INDEX cron_runs_retry ON cron_run_logs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
-- The order of planned times, which no update changes. A job's rows have it in the index of their slots.
CREATE INDEX cron_runs_planned_of_owner ON cron_run_logs (owner, scheduled_for DESC);
-- The claims of a day that a budget counts are found by the planned time too, but for those that came more than an hour after it.
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE run_id <> '' AND claimed_at - scheduled_for > 3600000;
-- PostgreSQL only: what is searched by the time of an end or of a claim reads ranges of pages, which costs an update nothing.
CREATE INDEX cron_runs_times ON cron_run_logs USING brin (claimed_at, finished_at) WITH (pages_per_range = 32, autosummarize = on);
-- The runs in a session that is not theirs alone, for its deletion. The others are found by their id.
CREATE INDEX cron_runs_shared ON cron_run_logs (session_key) WHERE session_key NOT LIKE '%:cron:%';

-- The times during which no process fired jobs.
CREATE TABLE cron_outages (
    from_at  bigint NOT NULL PRIMARY KEY,
    until_at bigint -- NULL: it goes on
);

-- What agents use: counters of a day by principal, agent, model and job, the totals that budgets are compared with, and the last batch of each writer.
CREATE TABLE usage_counters (
    day           text NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    principal     text NOT NULL,
    agent         text NOT NULL,
    model         text NOT NULL,
    job           text NOT NULL, -- '' = the turn of a person
    turns         bigint NOT NULL,
    requests      bigint NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL, -- a part of input_tokens
    cost          bigint NOT NULL, -- billionths of the currency
    unreported    bigint NOT NULL, -- milliseconds of turns whose agents reported no tokens
    PRIMARY KEY (day, principal, agent, model, job)
) WITH (fillfactor = 50);
CREATE TABLE usage_totals (
    day    text NOT NULL,
    scope  text NOT NULL, -- day, principal, job
    name   text NOT NULL, -- of the principal or the job; '' for day
    tokens bigint NOT NULL,
    cost   bigint NOT NULL,
    PRIMARY KEY (day, scope, name)
) WITH (fillfactor = 50);
-- A batch that was committed without an answer is written again: the number shows that it is there.
CREATE TABLE usage_writers (
    writer text NOT NULL PRIMARY KEY,
    batch  bigint NOT NULL,
    day    text NOT NULL -- of its last batch
);

-- How the tokens that an endpoint counts for a model relate to the estimates of the gateway.
CREATE TABLE token_ratios (
    endpoint text NOT NULL,
    model    text NOT NULL,
    permille bigint NOT NULL, -- counted tokens for each thousand that were estimated
    PRIMARY KEY (endpoint, model)
);

-- The session of an agent's own that has a conversation, and the process that had it last. An agent that can load sessions goes on with it in another process.
CREATE TABLE agent_sessions (
    session_key   text NOT NULL PRIMARY KEY,
    transcript    text NOT NULL, -- session_id of the conversation; another one has another session of the agent
    agent_session text NOT NULL, -- the agent's id
    runs          text NOT NULL, -- the latest turns that the agent has seen, separated by spaces
    seen          bigint NOT NULL, -- number of the last entry of the transcript that it has seen
    used_input    bigint NOT NULL, -- tokens of the session, of agents that report these instead of those of a turn
    used_output   bigint NOT NULL,
    used_cached   bigint NOT NULL, -- of used_input
    dir           text NOT NULL, -- for which it was made
    host          text NOT NULL,
    pid           bigint NOT NULL,
    pid_started   text NOT NULL, -- identifies the process among those that have had its number
    updated_at    bigint NOT NULL
);

-- What channels keep beside messages. Ids of people and chats are the provider's numbers. Open requests of pairing:
CREATE TABLE pairings (
    code       text NOT NULL PRIMARY KEY, -- shown to the person
    id         text NOT NULL, -- shown to operators
    channel    text NOT NULL,
    user_id    bigint NOT NULL,
    chat_id    bigint NOT NULL,
    name       text NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);
CREATE UNIQUE INDEX pairings_id ON pairings (id);
-- Requests that an operator approved.
CREATE TABLE pairing_grants (
    channel     text NOT NULL,
    user_id     bigint NOT NULL,
    chat_id     bigint NOT NULL,
    name        text NOT NULL DEFAULT '',
    approved_by text NOT NULL DEFAULT '',
    approved_at bigint NOT NULL,
    PRIMARY KEY (channel, user_id, chat_id)
);
-- Settings of groups.
CREATE TABLE channel_groups (
    channel    text NOT NULL,
    chat_id    bigint NOT NULL,
    activation text NOT NULL DEFAULT '',
    moved_from bigint NOT NULL DEFAULT 0, -- the number that the group had before; 0 = none
    PRIMARY KEY (channel, chat_id)
);
-- Open buttons below messages.
CREATE TABLE buttons (
    id         text NOT NULL PRIMARY KEY,
    set_id     text NOT NULL, -- the buttons of one message work once between them
    channel    text NOT NULL,
    chat_id    bigint NOT NULL,
    user_id    bigint NOT NULL, -- 0 = every user who may talk in the chat
    text       text NOT NULL,
    expires_at bigint NOT NULL,
    used_by    bigint -- the press that used the button; the other buttons of its message are deleted
);
CREATE INDEX buttons_by_set ON buttons (set_id);

-- The time zone that a principal chose for the times that it writes and reads in a chat.
CREATE TABLE zones (
    principal text NOT NULL PRIMARY KEY,
    zone      text NOT NULL -- a name of the IANA database, or an offset such as +02:00
);

-- Results of calls with an idempotency key. The row is written in the transaction of the effect and deleted by retention.
CREATE TABLE answers (
    owner  text NOT NULL,
    method text NOT NULL,
    key    text NOT NULL,
    hash   text NOT NULL, -- of the params
    answer text NOT NULL, -- JSON
    at     bigint NOT NULL,
    PRIMARY KEY (owner, method, key)
);
CREATE INDEX answers_at ON answers (at);

-- Named tokens. A secret is never here, only its SHA-256.
CREATE TABLE credentials (
    name       text NOT NULL PRIMARY KEY,
    digest     text NOT NULL, -- 64 hexadecimal digits
    scopes     text NOT NULL, -- with blanks between them
    visible    text NOT NULL DEFAULT 'all',
    created_at bigint NOT NULL,
    expires_at bigint -- NULL = never
);
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);

-- The log of changes: rows are only inserted.
CREATE TABLE audit_log (
    id          text NOT NULL PRIMARY KEY, -- UUIDv7: sorts by time
    who         text NOT NULL,
    verb        text NOT NULL,
    object      text NOT NULL DEFAULT '',
    before_hash text NOT NULL DEFAULT '',
    after_hash  text NOT NULL DEFAULT '',
    peer        text NOT NULL DEFAULT '',
    request_id  text NOT NULL DEFAULT '',
    at          bigint NOT NULL
);
CREATE INDEX audit_log_object ON audit_log (object, at);

-- +goose Down
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
DROP TABLE search_entries;
DROP TABLE search_transcripts;
DROP TABLE search_progress;
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
DROP TABLE allowances;
DROP TABLE hold;
DROP TABLE leases;
DROP TABLE nodes;
