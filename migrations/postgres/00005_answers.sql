-- What calls with an idempotency key were answered. The row is written with the effect and removed by retention.

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
