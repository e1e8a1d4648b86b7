-- What a deleted session leaves has one name on both engines.

-- +goose Up
ALTER TABLE deleted_sessions RENAME TO tombstones;

-- +goose Down
ALTER TABLE tombstones RENAME TO deleted_sessions;
