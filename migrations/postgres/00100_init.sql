-- The whole schema of release 0.1.0. The file of the other engine has the same tables, columns and indexes by name, in the same order; differences are marked.
-- Later steps are 00101 and up.
--
-- Times are integer milliseconds since the epoch. An absent string is NULL where a query tests for its absence, else ''. Only one table has a foreign key: the
-- lock of a session's row keeps its tables consistent, and the rows of a deleted session stay as history. No extension is needed. A fillfactor leaves room in
-- each page for later versions of its rows: a version that fits into the page of the old one writes no index entry. For the same reason no index of a busy
-- table contains a column that every turn changes (state, owner, epoch).

-- +goose Up

-- The processes of the gateway.
CREATE TABLE nodes (
    id             text NOT NULL PRIMARY KEY, -- incarnation: new at every start of a process
    started_at     bigint NOT NULL DEFAULT 0,
    lease_until    bigint NOT NULL DEFAULT 0, -- the process counts as alive until then
    lease_ms       bigint NOT NULL DEFAULT 15000,
    addr           text NOT NULL DEFAULT '',
    version        text NOT NULL DEFAULT '',
    draining       boolean NOT NULL DEFAULT false, -- it takes no further sessions
    draining_since bigint,
    fires          boolean NOT NULL DEFAULT false, -- it fires jobs
    agents         text NOT NULL DEFAULT '' -- JSON list of its agents; '' = all
) WITH (fillfactor = 50);

-- Named exclusive rights, such as polling one bot.
CREATE TABLE leases (
    name  text NOT NULL PRIMARY KEY,
    owner text, -- a node; NULL = free
    epoch bigint NOT NULL DEFAULT 0 -- grows with each change of the owner
) WITH (fillfactor = 50);

-- While the row exists, the gateway is held: it does not send, does not receive from channels and starts no work by the clock. A backup contains the row.
CREATE TABLE hold (
    id     bigint NOT NULL PRIMARY KEY, -- always 1
    since  bigint NOT NULL,
    who    text NOT NULL,
    reason text NOT NULL
);

-- The remaining calls of each principal in this minute, for all replicas together. The table is unlogged, because its loss in a server crash affects each
-- principal for at most a minute. On SQLite the only process keeps them in memory.
CREATE UNLOGGED TABLE allowances (
    name   text             NOT NULL PRIMARY KEY,
    tokens double precision NOT NULL,
    got    bigint           NOT NULL, -- taken by the last call
    at     bigint           NOT NULL
) WITH (fillfactor = 50);

-- Sessions. A turn updates its row three times.
CREATE TABLE sessions (
    key             text NOT NULL PRIMARY KEY,
    agent           text NOT NULL DEFAULT '',
    principal       text NOT NULL DEFAULT '', -- its owner
    session_id      text NOT NULL DEFAULT '', -- the current transcript
    lane            text NOT NULL DEFAULT '',
    owner           text, -- the node that runs its turns; NULL = no owner
    epoch           bigint NOT NULL DEFAULT 0, -- grows with each change of the owner
    last_seq        bigint NOT NULL DEFAULT 0, -- the last number given to a message
    taken_seq       bigint NOT NULL DEFAULT 0, -- the last number that was given to a run, or ended
    done_seq        bigint NOT NULL DEFAULT 0, -- every message up to it has an outcome
    stop_seq        bigint NOT NULL DEFAULT 0, -- a stop covers everything up to it
    waiting         bigint NOT NULL DEFAULT 0, -- messages in state waiting
    run_limit       bigint NOT NULL DEFAULT 1, -- the maximum number of concurrent turns
    mode            text NOT NULL DEFAULT '', -- the queue mode; '' = as configured
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
    transcript_seq  bigint NOT NULL DEFAULT 0, -- the number of the last entry
    summary_id      text NOT NULL DEFAULT '', -- the transcript of the newest summary
    summary_seq     bigint NOT NULL DEFAULT 0, -- its number
    summary_to      bigint NOT NULL DEFAULT 0 -- the last entry that it summarizes
) WITH (fillfactor = 50);
CREATE INDEX sessions_principal ON sessions (principal);
CREATE INDEX sessions_passing ON sessions (key) WHERE key LIKE 'agent:%:api:passing-%' AND key NOT LIKE 'agent:%:api:passing-%:%'; -- deleted after their end

-- Sessions that jobs and hooks name. A session that another principal has made since named_at gets nothing from the holder. A session without an entry
-- (updated_at = 0) is deleted with its last name.
CREATE TABLE session_names (
    session_key text NOT NULL,
    holder      text NOT NULL, -- the id of a job, or the principal of a hook
    principal   text NOT NULL, -- for which it names the session
    named_at    bigint NOT NULL,
    seen_at     bigint NOT NULL, -- of a hook: when a process with it last started
    PRIMARY KEY (session_key, holder)
);
CREATE INDEX session_names_holder ON session_names (holder);

-- The remains of deleted sessions: a new session of the same key must reuse neither its sequence numbers nor its epochs.
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
    dedupe      text, -- the idempotency key; NULL when it has none
    params_hash text NOT NULL DEFAULT '', -- distinguishes a repeated call from a different one with the same key
    channel     text NOT NULL DEFAULT '',
    external_id bigint NOT NULL DEFAULT 0, -- the provider's number of the message
    principal   text NOT NULL DEFAULT '',
    sender      text NOT NULL DEFAULT '', -- the id of its sender
    body        text NOT NULL DEFAULT '{}', -- JSON
    lane        text NOT NULL DEFAULT '',
    thread      text NOT NULL DEFAULT '',
    mode        text NOT NULL DEFAULT '', -- the queue mode that it asks for; '' = that of the session
    flags       bigint NOT NULL DEFAULT -1, -- 1 typed, 2 alone in its turn, 4 gathers; -1 = written by an older version: thread, mode, flags and size are in the body
    size        bigint NOT NULL DEFAULT 0, -- the bytes of its text
    state       text NOT NULL, -- waiting, running, done
    outcome     text, -- NULL exactly while it is not done
    reason      text NOT NULL DEFAULT '',
    run_id      text,
    merged_into bigint, -- the number of the message whose turn it shares
    notice_id   text, -- the outgoing message about the outcome
    node        text NOT NULL DEFAULT '', -- the node that accepted it
    accepted_at bigint NOT NULL DEFAULT 0,
    ended_at    bigint, -- NULL exactly while it is not done
    parent      text, -- the run whose agent requested the message; NULL for other messages
    root        text, -- the run at the root of its tree; NULL for other messages
    announce    bigint NOT NULL DEFAULT 0, -- 1 = its end is to be announced in the session of the parent
    PRIMARY KEY (session_key, seq)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX inbox_message ON inbox (message_id);
CREATE UNIQUE INDEX inbox_dedupe ON inbox (dedupe) WHERE dedupe IS NOT NULL;
-- Unfinished work has an index of its own, whose size does not depend on the history. PostgreSQL uses the missing end as the condition, because the step from
-- waiting to running must not change any index; SQLite uses the state. Queries contain both conditions, or that of their engine.
CREATE INDEX inbox_unfinished ON inbox (session_key, seq) WHERE ended_at IS NULL;
CREATE INDEX inbox_principal ON inbox (principal) WHERE ended_at IS NULL;
-- Turns by their end, for lists that begin with the newest.
CREATE INDEX inbox_ended ON inbox (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX inbox_parent ON inbox (parent) WHERE parent IS NOT NULL;
CREATE INDEX inbox_root ON inbox (root) WHERE root IS NOT NULL;
CREATE INDEX inbox_tasks ON inbox (parent) WHERE parent IS NOT NULL AND (ended_at IS NULL OR announce = 1);
-- Sub-turns by the time of their acceptance, for lists that begin with the newest.
CREATE INDEX inbox_task_times ON inbox (accepted_at DESC, message_id) WHERE parent IS NOT NULL;

-- Turns.
CREATE TABLE runs (
    id            text NOT NULL PRIMARY KEY, -- the id of one of its messages
    session_key   text NOT NULL,
    session_id    text NOT NULL DEFAULT '', -- the transcript to which the run writes, even after a reset
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
    detail        text NOT NULL DEFAULT '', -- the failure description of the service behind the agent, without secrets; only administrators can read it
    stop_by       text NOT NULL DEFAULT '', -- the requester of a stop
    program       text NOT NULL DEFAULT '', -- the process of its latest attempt, JSON: a later attempt ends it when the gateway has left it running
    outside       boolean NOT NULL DEFAULT false, -- its agent has read text from outside by its own tools, or its answer is such text
    preview       text NOT NULL DEFAULT '', -- the message of a channel that shows the unfinished answer, in the form of the channel
    queued_at     bigint NOT NULL DEFAULT 0,
    started_at    bigint NOT NULL DEFAULT 0,
    ended_at      bigint,
    input_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    requests      bigint NOT NULL DEFAULT 0, -- to its model in its last attempt that has ended
    limited       bigint NOT NULL DEFAULT 0, -- how many of them were refused because of the provider's limits
    model         text NOT NULL DEFAULT '',
    provider      text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
-- As for inbox_unfinished, SQLite has the states running, stopping and yielded as the condition.
CREATE INDEX runs_open ON runs (session_key) WHERE ended_at IS NULL;

-- The requests of the model of a running turn and their results, so that a restarted turn continues after them. The rows are deleted when the turn ends, and
-- its transcript then has their content; those of a run that never ends are deleted with the run.
CREATE TABLE turn_rounds (
    run_id text NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    round  bigint NOT NULL, -- from 1
    kind   text NOT NULL, -- asked: text and calls; result: of one call; input: a message that joined after the results
    n      bigint NOT NULL, -- asked: 0; result: the call, from 0; input: the number of the message in its session
    body   text NOT NULL, -- JSON; '' for input
    PRIMARY KEY (run_id, round, kind, n)
);

-- Tool calls that need the permission of a person. The node of an allowed call makes it, or another node after that one has died.
CREATE TABLE tool_questions (
    id          text NOT NULL PRIMARY KEY,
    session_key text NOT NULL DEFAULT '',
    owner       text NOT NULL, -- the principal that may answer
    state       text NOT NULL, -- open, denied, allowed: the call is still to be made, done: it was made
    node        text NOT NULL, -- the node that makes an allowed call
    asked_at    bigint NOT NULL,
    expires_at  bigint NOT NULL, -- an open question cannot be answered after it
    call        text NOT NULL, -- JSON: the call, its principal and its place
    result      text NOT NULL -- JSON; '' until the call was made
);
CREATE INDEX tool_questions_owner ON tool_questions (owner);
CREATE INDEX tool_questions_expiry ON tool_questions (expires_at);
CREATE INDEX tool_questions_open ON tool_questions (asked_at, id) WHERE state = 'open';
CREATE INDEX tool_questions_allowed ON tool_questions (id) WHERE state = 'allowed';

-- The permissions that a person gave an agent for all turns of a conversation. They apply to one transcript: after a reset nothing is allowed.
CREATE TABLE approvals (
    id          text NOT NULL PRIMARY KEY, -- the id of the question
    owner       text NOT NULL, -- the principal that answered
    session_key text NOT NULL, -- the session of the question
    transcript  text NOT NULL, -- session_id of the conversation
    agent       text NOT NULL,
    act         text NOT NULL, -- the allowed action, without details
    label       text NOT NULL, -- the label of the option
    created_at  bigint NOT NULL
);
CREATE INDEX approvals_session ON approvals (session_key, owner);

-- Outgoing messages. A file of an answer has a row of its own.
CREATE TABLE outbox (
    id          text NOT NULL PRIMARY KEY,
    place       bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY, -- order of arrival; on SQLite the primary key
    run_id      text,
    n           bigint NOT NULL DEFAULT 0, -- the number among the messages of the run
    session_key text NOT NULL DEFAULT '',
    principal   text NOT NULL DEFAULT '', -- the owner of the session if the delivery of a reply to the web creates it
    channel     text NOT NULL DEFAULT '',
    chat_id     text NOT NULL DEFAULT '',
    thread      text NOT NULL DEFAULT '',
    kind        text NOT NULL DEFAULT 'reply',
    payload     text NOT NULL DEFAULT '',
    text_many   text NOT NULL DEFAULT '', -- the text when several notices were joined
    count       bigint NOT NULL DEFAULT 1, -- the number of joined notices
    coalesce    text NOT NULL DEFAULT '', -- notices with one key to one chat are joined
    choice      text NOT NULL DEFAULT '', -- the choices that the message offers, JSON
    file        text NOT NULL DEFAULT '', -- JSON; the bytes are in the directory for attachments
    origin      text NOT NULL DEFAULT '', -- what sent it into a conversation other than its own, JSON
    state       text NOT NULL DEFAULT 'pending', -- pending, sending, or the final state
    node        text NOT NULL DEFAULT '', -- the node that sends it, or sends it first while it is pending
    attempt     bigint NOT NULL DEFAULT 0,
    epoch       bigint NOT NULL DEFAULT 0,
    next_at     bigint NOT NULL DEFAULT 0,
    expires_at  bigint,
    quiet       text NOT NULL DEFAULT '', -- it waits for the end of quiet hours, and a later one with this word supersedes it
    held_until  bigint, -- until when quiet hours hold it or have held it
    progress    text NOT NULL DEFAULT '', -- the parts that have arrived, in the form of the channel
    maybe_sent  boolean NOT NULL DEFAULT false, -- an attempt ended without a response of the provider
    last_error  text NOT NULL DEFAULT '',
    provider_id text,
    created_at  bigint NOT NULL DEFAULT 0,
    done_at     bigint -- NULL while it is pending or sending
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX outbox_run ON outbox (run_id, n);
CREATE INDEX outbox_open ON outbox (channel, chat_id, place) WHERE done_at IS NULL OR state = 'failed';
CREATE INDEX outbox_maybe_sent ON outbox (channel) WHERE state = 'maybe_sent';
-- PostgreSQL only: at most one message per chat is being sent, over all nodes. SQLite has one writer.
CREATE UNIQUE INDEX outbox_under_way ON outbox (channel, chat_id) WHERE state = 'sending';
CREATE INDEX outbox_session ON outbox (session_key) WHERE session_key <> '';
CREATE INDEX outbox_to_session ON outbox (chat_id) WHERE channel = 'web';

-- Which message of a chat network shows which outgoing message, or a part of it.
CREATE TABLE sent (
    channel     text NOT NULL,
    chat_id     text NOT NULL,
    message     text NOT NULL, -- its id in the network
    outgoing_id text NOT NULL,
    from_byte   bigint NOT NULL, -- what it shows of the text as people see it
    to_byte     bigint NOT NULL,
    PRIMARY KEY (channel, chat_id, message)
);
CREATE INDEX sent_outgoing ON sent (outgoing_id);

-- The entries of conversations. A summary is an entry that replaces older ones for the model.
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
    outside     boolean NOT NULL DEFAULT false, -- it contains untrusted text, or was made from rows that do
    at          bigint NOT NULL DEFAULT 0,
    reply_id    text NOT NULL DEFAULT '', -- the outgoing message that it shows; '' for other entries
    origin      text NOT NULL DEFAULT '', -- what wrote it from outside of the conversation, JSON; '' for other entries
    from_seq    bigint NOT NULL DEFAULT 0, -- for a summary: the first summarized entry; 0 for other entries
    to_seq      bigint NOT NULL DEFAULT 0, -- the last summarized entry
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
    depth       bigint NOT NULL, -- the number of branches between it and the first transcript, including deleted ones
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

-- The search index over transcripts for PostgreSQL. An entry has the words that the program extracts from the content, see the package words; the index
-- contains neither the content nor positions. Entries of a session above search_progress.upto are not indexed yet.
CREATE TABLE search_progress (
    session_key text   NOT NULL PRIMARY KEY,
    upto        bigint NOT NULL -- the highest indexed number of an entry
) WITH (fillfactor = 70);
-- Short numbers for transcripts: there are many entries, and a key with an id has some hundred bytes.
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

-- The table of contents of conversations: summaries of the sessions of an owner by day (toc_parts), and of these by week and by month (toc_nodes). Entries of a
-- session above toc_progress.upto are not covered yet.
CREATE TABLE toc_progress (
    session_key text NOT NULL PRIMARY KEY,
    upto        bigint NOT NULL -- the highest number of an entry that a part covers
);
CREATE TABLE toc_parts (
    session_key text NOT NULL,
    day         text NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    owner       text NOT NULL,
    week        text NOT NULL, -- as in 2026-W11
    month       text NOT NULL, -- the month of the Thursday of the week, as in 2026-03
    from_seq    bigint NOT NULL,
    to_seq      bigint NOT NULL,
    entries     bigint NOT NULL, -- the number of covered entries
    text        text NOT NULL,
    made        bigint NOT NULL, -- how many times it was made: more than once for a long day, and for late entries
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
    stale      bigint NOT NULL DEFAULT 1, -- the summary is missing or outdated
    claim      text NOT NULL DEFAULT '', -- the claim of the last process that began to make it; '' = its sources have changed since
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
    list_mark               bigint NOT NULL DEFAULT 0, -- a number that changes with the job: a list detects changes by the sum
    name                    text NOT NULL DEFAULT '',
    display_name            text NOT NULL DEFAULT '',
    description             text NOT NULL DEFAULT '',
    principal               text NOT NULL DEFAULT '',
    agent                   text NOT NULL DEFAULT '',
    account_id              text NOT NULL DEFAULT '',
    lane                    text NOT NULL DEFAULT 'cron',
    kind                    text NOT NULL DEFAULT '',
    schedule                text NOT NULL, -- JSON, like the next four columns
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
    next_run_at             bigint, -- with jitter; for a paused job the time to resume; NULL = nothing is planned
    next_wall               bigint, -- the wall time of the slot by the zone rules that found it, as if it were UTC; NULL = no rules of a zone
    zone_release            text NOT NULL DEFAULT '', -- the release of these rules
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
    delivery_paused_at      bigint, -- since when the chat no longer exists: answers are kept and not sent; NULL = they are sent
    delivery_paused_why     text NOT NULL DEFAULT '',
    delivery_paused_channel text NOT NULL DEFAULT '', -- the address, as in the outbox
    delivery_paused_chat    text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX cron_jobs_key ON cron_jobs (owner, key);
-- The claim reads only this index; the id orders jobs with the same time, which saves a sort.
CREATE INDEX cron_jobs_due ON cron_jobs (next_run_at, id) WHERE enabled AND invalid = '';
CREATE INDEX cron_jobs_rules ON cron_jobs (zone_release, id) WHERE zone_release <> ''; -- slots that older zone rules have planned
CREATE INDEX cron_jobs_listed ON cron_jobs (owner, list_mark);

-- The ledger of their runs. A run that executes is a message of the inbox, run_id, with the ownership, takeover and fence of every message.
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
    finished_at         bigint, -- NULL exactly while it is queued, running or retrying
    next_attempt_at     bigint, -- while it is retrying
    duration_ms         bigint NOT NULL DEFAULT 0,
    attempt             bigint NOT NULL DEFAULT 0,
    attempts            text NOT NULL DEFAULT '[]', -- JSON: the ended attempts
    error               text NOT NULL DEFAULT '',
    error_class         text NOT NULL DEFAULT '',
    summary             text NOT NULL DEFAULT '',
    model               text NOT NULL DEFAULT '',
    provider            text NOT NULL DEFAULT '',
    input_tokens        bigint NOT NULL DEFAULT 0,
    output_tokens       bigint NOT NULL DEFAULT 0,
    run_id              text NOT NULL DEFAULT '', -- the message of the current attempt; '' when it has none
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
-- The order of planned times, which no update changes. The rows of one job have this order in the index of their slots.
CREATE INDEX cron_runs_planned_of_owner ON cron_run_logs (owner, scheduled_for DESC);
-- A budget counts the claims of a day by their planned time, except those that were made more than an hour after it, which use this index.
CREATE INDEX cron_runs_late ON cron_run_logs (owner, claimed_at) WHERE run_id <> '' AND claimed_at - scheduled_for > 3600000;
-- PostgreSQL only: a search by the time of an end or of a claim reads ranges of pages, which makes updates no more expensive.
CREATE INDEX cron_runs_times ON cron_run_logs USING brin (claimed_at, finished_at) WITH (pages_per_range = 32, autosummarize = on);
-- The runs in shared sessions, for the deletion of these. The others are found by their id.
CREATE INDEX cron_runs_shared ON cron_run_logs (session_key) WHERE session_key NOT LIKE '%:cron:%';

-- The times during which no process fired jobs.
CREATE TABLE cron_outages (
    from_at  bigint NOT NULL PRIMARY KEY,
    until_at bigint -- NULL while it continues
);

-- The usage of agents: daily counters by principal, agent, model and job, the totals for budgets, and the last batch of each writer.
CREATE TABLE usage_counters (
    day           text NOT NULL, -- as in 2026-03-14, in the zone of the gateway
    principal     text NOT NULL,
    agent         text NOT NULL,
    model         text NOT NULL,
    job           text NOT NULL, -- '' for the turn of a person
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
-- A batch whose commit is unknown is written again: the number shows whether it was committed.
CREATE TABLE usage_writers (
    writer text NOT NULL PRIMARY KEY,
    batch  bigint NOT NULL,
    day    text NOT NULL -- the day of its last batch
);

-- The ratio of the tokens that an endpoint counts for a model to the estimates of the gateway.
CREATE TABLE token_ratios (
    endpoint text NOT NULL,
    model    text NOT NULL,
    permille bigint NOT NULL, -- counted tokens per thousand estimated
    PRIMARY KEY (endpoint, model)
);

-- The session that an agent itself keeps of a conversation, and the process that had it last. An agent that can load sessions continues it in another process.
CREATE TABLE agent_sessions (
    session_key   text NOT NULL PRIMARY KEY,
    transcript    text NOT NULL, -- session_id of the conversation; another transcript has another session of the agent
    agent_session text NOT NULL, -- the agent's id
    runs          text NOT NULL, -- the latest turns that the agent has received, separated by spaces
    seen          bigint NOT NULL, -- the number of the last transcript entry that it has received
    used_input    bigint NOT NULL, -- tokens of the session, for agents that report these instead of those of a turn
    used_output   bigint NOT NULL,
    used_cached   bigint NOT NULL, -- the cached part of used_input
    dir           text NOT NULL, -- the directory for which it was created
    host          text NOT NULL,
    pid           bigint NOT NULL,
    pid_started   text NOT NULL, -- distinguishes the process from others with the same number
    updated_at    bigint NOT NULL
);

-- Records of channels besides messages. Ids of people and chats are the provider's numbers. Open pairing requests:
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
    moved_from bigint NOT NULL DEFAULT 0, -- the previous number of the group; 0 when it has not moved
    PRIMARY KEY (channel, chat_id)
);
-- Open buttons below messages.
CREATE TABLE buttons (
    id         text NOT NULL PRIMARY KEY,
    set_id     text NOT NULL, -- only one of the buttons of a message can be used
    channel    text NOT NULL,
    chat_id    bigint NOT NULL,
    user_id    bigint NOT NULL, -- 0 = every user with the right to write in the chat
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

-- The hours of the day during which what jobs send into a chat waits, in minutes since midnight.
CREATE TABLE quiet_hours (
    chat_id     text NOT NULL,
    network     text NOT NULL,
    from_minute bigint NOT NULL,
    to_minute   bigint NOT NULL,
    zone        text NOT NULL, -- unless the principal has chosen one
    principal   text NOT NULL DEFAULT '',
    PRIMARY KEY (chat_id, network)
);

-- Results of calls with an idempotency key. The row is written in the transaction of the effect and deleted by retention.
CREATE TABLE answers (
    owner  text NOT NULL,
    method text NOT NULL,
    key    text NOT NULL,
    hash   text NOT NULL, -- of the parameters
    answer text NOT NULL, -- JSON
    at     bigint NOT NULL,
    PRIMARY KEY (owner, method, key)
);
CREATE INDEX answers_at ON answers (at);

-- Named tokens. The table contains no secret, only its SHA-256.
CREATE TABLE credentials (
    name       text NOT NULL PRIMARY KEY,
    digest     text NOT NULL, -- 64 hexadecimal digits
    scopes     text NOT NULL, -- separated by spaces
    visible    text NOT NULL DEFAULT 'all',
    created_at bigint NOT NULL,
    expires_at bigint -- NULL = never
);
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);

-- The audit log: rows are inserted, and deleted when they are too old.
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
CREATE INDEX audit_log_at ON audit_log (at);

-- +goose Down
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
DROP TABLE search_entries;
DROP TABLE search_transcripts;
DROP TABLE search_progress;
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
DROP TABLE allowances;
DROP TABLE hold;
DROP TABLE leases;
DROP TABLE nodes;
