-- What agents use: counters of a day by principal, agent, model and job, the totals that budgets are compared with, and the last batch of each writer.

-- +goose Up
CREATE TABLE usage_counters (
    day           TEXT NOT NULL, -- 2026-03-14, in the zone of the gateway
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

-- +goose Down
DROP TABLE usage_writers;
DROP TABLE usage_totals;
DROP TABLE usage_counters;
