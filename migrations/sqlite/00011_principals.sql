-- Counts the sessions of a principal before it names one more.

-- +goose Up
CREATE INDEX sessions_principal ON sessions (principal);

-- +goose Down
DROP INDEX sessions_principal;
