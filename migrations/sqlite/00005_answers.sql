-- Results of calls with an idempotency key. The row is written in the transaction of the effect and deleted by retention.

-- +goose Up
CREATE TABLE answers (
    owner  TEXT    NOT NULL,
    method TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    hash   TEXT    NOT NULL, -- of the params
    answer TEXT    NOT NULL, -- JSON
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, method, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_at ON answers (at);

-- +goose Down
DROP TABLE answers;
