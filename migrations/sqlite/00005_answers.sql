-- What calls with an idempotency key were answered. The row is written with the effect and removed by retention.

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
