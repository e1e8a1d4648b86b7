-- A message that is sent in parts has what has arrived in its row, so that any process continues after the last recorded part. A row in the state maybe_sent
-- has ended although it is not known whether it arrived.

-- +goose Up
ALTER TABLE outbox ADD COLUMN progress text NOT NULL DEFAULT ''; -- in the form of its channel, '' = nothing
CREATE INDEX outbox_maybe_sent ON outbox (channel) WHERE state = 'maybe_sent';

-- +goose Down
DROP INDEX outbox_maybe_sent;
ALTER TABLE outbox DROP COLUMN progress;
