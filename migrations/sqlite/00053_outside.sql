-- Which rows of a transcript have text from outside, or were made from such rows.

-- +goose Up
ALTER TABLE transcript ADD COLUMN outside INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE transcript DROP COLUMN outside;
