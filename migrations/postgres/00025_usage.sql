-- What agents use: counters of a day by principal, agent, model and job, the totals that budgets are compared with, and the last batch of each writer.
-- The rows of a day are updated often: half of each page is free for later versions.

-- +goose Up
CREATE TABLE usage_counters (
    day           text NOT NULL, -- 2026-03-14, in the zone of the gateway
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
    writer text PRIMARY KEY,
    batch  bigint NOT NULL,
    day    text NOT NULL -- of its last batch
);

-- +goose Down
DROP TABLE usage_writers;
DROP TABLE usage_totals;
DROP TABLE usage_counters;
