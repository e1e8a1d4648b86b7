-- Jobs that fire by the clock, the ledger of their runs, and the log of changes. A run that executes is a message of the
-- inbox: run_id names it, so that ownership, takeover and fence are those of every message.

-- +goose Up
CREATE TABLE cron_jobs (
    id                   text    COLLATE "C" NOT NULL PRIMARY KEY,
    owner                text    NOT NULL,
    key                  text    NOT NULL,
    key_derived          boolean NOT NULL DEFAULT false,
    name                 text    NOT NULL DEFAULT '',
    display_name         text    NOT NULL DEFAULT '',
    description          text    NOT NULL DEFAULT '',
    principal            text    NOT NULL DEFAULT '',
    agent                text    NOT NULL DEFAULT '',
    account_id           text    NOT NULL DEFAULT '',
    lane                 text    NOT NULL DEFAULT 'cron',
    kind                 text    NOT NULL DEFAULT '',
    schedule             text    NOT NULL DEFAULT '{}',
    tz                   text    NOT NULL DEFAULT '',
    jitter_ms            bigint  NOT NULL DEFAULT 0,
    starts_at            bigint,
    ends_at              bigint,
    max_runs             bigint  NOT NULL DEFAULT 0,
    session              text    NOT NULL DEFAULT 'isolated',
    wake_mode            text    NOT NULL DEFAULT '',
    payload              text    NOT NULL DEFAULT '{}',
    delivery             text    NOT NULL DEFAULT '{}',
    alert                text    NOT NULL DEFAULT '{}',
    policy               text    NOT NULL DEFAULT '{}',
    enabled              boolean NOT NULL DEFAULT true,
    paused_note          text    NOT NULL DEFAULT '',
    paused_by            text    NOT NULL DEFAULT '',
    paused_at            bigint,                      -- NULL = not paused
    paused_until         bigint,
    auto_disabled        boolean NOT NULL DEFAULT false,
    invalid              text    NOT NULL DEFAULT '', -- why the row cannot be decoded
    revision             text    NOT NULL DEFAULT '',
    created_at           bigint  NOT NULL DEFAULT 0,
    updated_at           bigint  NOT NULL DEFAULT 0,
    next_slot            bigint,
    next_run_at          bigint,                      -- with jitter; of a paused job the moment to resume; NULL = nothing is planned
    activated_at         bigint,
    fired                bigint  NOT NULL DEFAULT 0,
    run_count            bigint  NOT NULL DEFAULT 0,
    error_count          bigint  NOT NULL DEFAULT 0,
    last_run_at          bigint,
    last_state           text    NOT NULL DEFAULT '',
    last_error           text    NOT NULL DEFAULT '',
    last_error_class     text    NOT NULL DEFAULT '',
    last_duration_ms     bigint  NOT NULL DEFAULT 0,
    last_delivery        text    NOT NULL DEFAULT '',
    last_delivery_error  text    NOT NULL DEFAULT '',
    last_alert_at        bigint,
    consecutive_errors   bigint  NOT NULL DEFAULT 0,
    consecutive_skipped  bigint  NOT NULL DEFAULT 0,
    CONSTRAINT cron_jobs_key UNIQUE (owner, key)
) WITH (fillfactor = 70);
-- The claim reads this index only; the id decides the order of jobs of one instant without sorting them.
CREATE INDEX cron_jobs_due ON cron_jobs (next_run_at, id) WHERE enabled AND invalid = '';

CREATE TABLE cron_run_logs (
    id                  text   COLLATE "C" NOT NULL PRIMARY KEY,
    job_id              text   COLLATE "C" NOT NULL,
    job_name            text   NOT NULL DEFAULT '',
    job_key             text   NOT NULL DEFAULT '',
    owner               text   NOT NULL DEFAULT '',
    agent               text   NOT NULL DEFAULT '',
    lane                text   NOT NULL DEFAULT '',
    session_key         text   NOT NULL DEFAULT '',
    scheduled_for       bigint NOT NULL,
    trigger             text   NOT NULL,
    state               text   NOT NULL,
    reason              text,
    dst                 text   NOT NULL DEFAULT '',
    slot_count          bigint NOT NULL DEFAULT 1,
    slot_until          bigint,
    fire_at             bigint,
    claimed_at          bigint,
    started_at          bigint,
    finished_at         bigint,                     -- NULL exactly as long as it is queued, running or retrying
    next_attempt_at     bigint,                     -- while it is retrying
    duration_ms         bigint NOT NULL DEFAULT 0,
    attempt             bigint NOT NULL DEFAULT 0,
    attempts            text   NOT NULL DEFAULT '[]',
    error               text   NOT NULL DEFAULT '',
    error_class         text   NOT NULL DEFAULT '',
    summary             text   NOT NULL DEFAULT '',
    model               text   NOT NULL DEFAULT '',
    provider            text   NOT NULL DEFAULT '',
    input_tokens        bigint NOT NULL DEFAULT 0,
    output_tokens       bigint NOT NULL DEFAULT 0,
    run_id              text,                       -- message of the current attempt; NULL = none runs
    delivery            text   NOT NULL DEFAULT '',
    delivery_error      text   NOT NULL DEFAULT '',
    provider_message_id text   NOT NULL DEFAULT '',
    suppressed_by       text   NOT NULL DEFAULT '',
    node                text   NOT NULL DEFAULT '',
    CONSTRAINT cron_run_logs_slot UNIQUE (job_id, scheduled_for, trigger)
) WITH (fillfactor = 70);
-- Finished and active rows are in different indexes, so that no plan reads the history to find active rows.
CREATE INDEX cron_run_logs_of_job ON cron_run_logs (job_id, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX cron_run_logs_finished ON cron_run_logs (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX cron_run_logs_active ON cron_run_logs (job_id) WHERE finished_at IS NULL;
CREATE INDEX cron_run_logs_retry ON cron_run_logs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
-- Counts the runs of an owner within a day, for its budget.
CREATE INDEX cron_run_logs_budget ON cron_run_logs (owner, claimed_at) WHERE run_id IS NOT NULL;

CREATE TABLE audit_log (
    id          text   NOT NULL PRIMARY KEY, -- UUIDv7: sorts by time
    who         text   NOT NULL DEFAULT '',
    verb        text   NOT NULL DEFAULT '',
    object      text   NOT NULL DEFAULT '',
    before_hash text   NOT NULL DEFAULT '',
    after_hash  text   NOT NULL DEFAULT '',
    peer        text   NOT NULL DEFAULT '',
    request_id  text   NOT NULL DEFAULT '',
    at          bigint NOT NULL DEFAULT 0
);
CREATE INDEX audit_log_at ON audit_log (at);

-- +goose Down
DROP TABLE audit_log;
DROP TABLE cron_run_logs;
DROP TABLE cron_jobs;
