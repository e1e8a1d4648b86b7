-- What a deleted session leaves has one name on both engines.

-- +goose Up
ALTER TABLE graves RENAME TO tombstones;

-- +goose Down
ALTER TABLE tombstones RENAME TO graves;
