-- A reply to the web is delivered as one transcript entry. Its principal owns the session when the delivery makes it.

-- +goose Up
ALTER TABLE outbox ADD COLUMN principal TEXT NOT NULL DEFAULT '';
ALTER TABLE transcript ADD COLUMN reply_id TEXT NOT NULL DEFAULT ''; -- id of the outbox row that it delivers, '' = none
CREATE UNIQUE INDEX transcript_reply ON transcript (session_key, reply_id) WHERE reply_id <> '';

-- +goose Down
DROP INDEX transcript_reply;
ALTER TABLE transcript DROP COLUMN reply_id;
ALTER TABLE outbox DROP COLUMN principal;
