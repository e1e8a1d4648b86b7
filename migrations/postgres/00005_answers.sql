-- Results of calls with an idempotency key. The row is written in the transaction of the effect and deleted by retention.

-- +goose Up
CREATE TABLE answers (
    owner  text   NOT NULL,
    method text   NOT NULL,
    key    text   NOT NULL,
    hash   text   NOT NULL, -- of the params
    answer text   NOT NULL, -- JSON
    at     bigint NOT NULL,
    PRIMARY KEY (owner, method, key)
);
CREATE INDEX answers_at ON answers (at);

-- +goose Down
DROP TABLE answers;
