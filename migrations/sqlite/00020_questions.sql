-- Calls of tools that are made when a person allows them. An allowed call is made by its node, or by another one after the end of that node.

-- +goose Up
CREATE TABLE tool_questions (
    id         TEXT NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL, -- the principal that may answer
    state      TEXT NOT NULL, -- open, denied, allowed: the call has to be made, done: it was made
    node       TEXT NOT NULL, -- that makes an allowed call
    expires_at INTEGER NOT NULL, -- an open question cannot be answered after it; milliseconds
    call       TEXT NOT NULL, -- JSON: what is to be done, for whom and where
    result     TEXT NOT NULL -- JSON; '' until the call was made
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_questions_owner ON tool_questions (owner);
CREATE INDEX tool_questions_expiry ON tool_questions (expires_at);
CREATE INDEX tool_questions_allowed ON tool_questions (id) WHERE state = 'allowed';

-- +goose Down
DROP TABLE tool_questions;
