-- How many sessions a principal has is asked before it names one more.

-- +goose Up
CREATE INDEX sessions_principal ON sessions (principal);

-- +goose Down
DROP INDEX sessions_principal;
