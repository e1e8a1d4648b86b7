-- Jobs that start by the clock, the ledger of their slots, and the log of changes. A slot that is to run is a message of the inbox;
-- these rows hold no lease of their own.

-- +goose Up
CREATE TABLE cron_jobs (
    id                  TEXT    NOT NULL PRIMARY KEY,
    owner               TEXT    NOT NULL,
    key                 TEXT    NOT NULL,
    key_derived         INTEGER NOT NULL DEFAULT 0,
    name                TEXT    NOT NULL DEFAULT '',
    display_name        TEXT    NOT NULL DEFAULT '',
    description         TEXT    NOT NULL DEFAULT '',
    principal           TEXT    NOT NULL DEFAULT '',
    agent               TEXT    NOT NULL DEFAULT '',
    account_id          TEXT    NOT NULL DEFAULT '',
    lane                TEXT    NOT NULL DEFAULT '',
    kind                TEXT    NOT NULL DEFAULT '',
    schedule            TEXT    NOT NULL,
    tz                  TEXT    NOT NULL DEFAULT '',
    jitter_ms           INTEGER NOT NULL DEFAULT 0,
    starts_at           INTEGER,
    ends_at             INTEGER,
    max_runs            INTEGER NOT NULL DEFAULT 0,
    session             TEXT    NOT NULL DEFAULT '',
    wake_mode           TEXT    NOT NULL DEFAULT '',
    payload             TEXT    NOT NULL,
    delivery            TEXT    NOT NULL,
    alert               TEXT    NOT NULL,
    policy              TEXT    NOT NULL,
    enabled             INTEGER NOT NULL DEFAULT 1,
    paused_note         TEXT    NOT NULL DEFAULT '',
    paused_by           TEXT    NOT NULL DEFAULT '',
    paused_at           INTEGER,                     -- NULL = not paused
    paused_until        INTEGER,
    auto_disabled       INTEGER NOT NULL DEFAULT 0,
    invalid             TEXT    NOT NULL DEFAULT '',
    revision            TEXT    NOT NULL DEFAULT '',
    created_at          INTEGER NOT NULL DEFAULT 0,
    updated_at          INTEGER NOT NULL DEFAULT 0,
    next_slot           INTEGER,
    next_run_at         INTEGER,                     -- while paused: when it resumes by itself
    activated_at        INTEGER,
    fired               INTEGER NOT NULL DEFAULT 0,
    run_count           INTEGER NOT NULL DEFAULT 0,
    error_count         INTEGER NOT NULL DEFAULT 0,
    last_run_at         INTEGER,
    last_state          TEXT    NOT NULL DEFAULT '',
    last_error          TEXT    NOT NULL DEFAULT '',
    last_error_class    TEXT    NOT NULL DEFAULT '',
    last_duration_ms    INTEGER NOT NULL DEFAULT 0,
    last_delivery       TEXT    NOT NULL DEFAULT '',
    last_delivery_error TEXT    NOT NULL DEFAULT '',
    last_alert_at       INTEGER,
    consecutive_errors  INTEGER NOT NULL DEFAULT 0,
    consecutive_skipped INTEGER NOT NULL DEFAULT 0,
    UNIQUE (owner, key)
) STRICT;
-- What a claim reads; its cost follows what is due.
CREATE INDEX cron_jobs_due ON cron_jobs (next_run_at, id)
    WHERE enabled = 1 AND next_run_at IS NOT NULL AND invalid = '' AND (paused_at IS NULL OR paused_until IS NOT NULL);

-- One row, counted up whenever a job is added, changed or removed: a page of a changed list is recognised.
CREATE TABLE cron_changes (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    n  INTEGER NOT NULL
) STRICT;
INSERT INTO cron_changes (id, n) VALUES (1, 0);

CREATE TABLE cron_run_logs (
    id                  TEXT    NOT NULL PRIMARY KEY, -- <trigger>:<job>:<slot>
    job_id              TEXT    NOT NULL,
    job_name            TEXT    NOT NULL DEFAULT '',
    job_key             TEXT    NOT NULL DEFAULT '',
    owner               TEXT    NOT NULL DEFAULT '',
    agent               TEXT    NOT NULL DEFAULT '',
    lane                TEXT    NOT NULL DEFAULT '',
    session_key         TEXT    NOT NULL DEFAULT '',
    scheduled_for       INTEGER NOT NULL,
    trigger             TEXT    NOT NULL,
    state               TEXT    NOT NULL,
    reason              TEXT,
    dst                 TEXT    NOT NULL DEFAULT '',
    slot_count          INTEGER NOT NULL DEFAULT 1,
    slot_until          INTEGER,
    fire_at             INTEGER,
    claimed_at          INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    next_attempt_at     INTEGER,
    duration_ms         INTEGER NOT NULL DEFAULT 0,
    attempt             INTEGER NOT NULL DEFAULT 0,
    attempts            TEXT    NOT NULL DEFAULT '[]',
    error               TEXT    NOT NULL DEFAULT '',
    error_class         TEXT    NOT NULL DEFAULT '',
    summary             TEXT    NOT NULL DEFAULT '',
    model               TEXT    NOT NULL DEFAULT '',
    provider            TEXT    NOT NULL DEFAULT '',
    input_tokens        INTEGER NOT NULL DEFAULT 0,
    output_tokens       INTEGER NOT NULL DEFAULT 0,
    run_id              TEXT    NOT NULL DEFAULT '', -- message of the current attempt
    delivery            TEXT    NOT NULL DEFAULT '',
    delivery_error      TEXT    NOT NULL DEFAULT '',
    provider_message_id TEXT    NOT NULL DEFAULT '',
    suppressed_by       TEXT    NOT NULL DEFAULT '',
    node                TEXT    NOT NULL DEFAULT '',
    UNIQUE (job_id, scheduled_for, trigger)
) STRICT;
-- A row enters these once, when its outcome is written.
CREATE INDEX cron_runs_of_job ON cron_run_logs (job_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX cron_runs_of_owner ON cron_run_logs (owner, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX cron_runs_finished ON cron_run_logs (finished_at) WHERE finished_at IS NOT NULL;
-- What claims, cancellations and status pages read; their size follows the unfinished work, not the history.
CREATE INDEX cron_runs_active ON cron_run_logs (job_id, owner, claimed_at) WHERE state IN ('queued', 'running', 'retrying');
CREATE INDEX cron_runs_retry ON cron_run_logs (next_attempt_at) WHERE state = 'retrying';

CREATE TABLE audit_log (
    id          TEXT    NOT NULL PRIMARY KEY, -- sorts by time
    who         TEXT    NOT NULL,
    verb        TEXT    NOT NULL,
    object      TEXT    NOT NULL DEFAULT '',
    before_hash TEXT    NOT NULL DEFAULT '',
    after_hash  TEXT    NOT NULL DEFAULT '',
    peer        TEXT    NOT NULL DEFAULT '',
    request_id  TEXT    NOT NULL DEFAULT '',
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE audit_log;
DROP TABLE cron_run_logs;
DROP TABLE cron_changes;
DROP TABLE cron_jobs;
