-- Which rows of a transcript have text from outside, or were made from such rows.

-- +goose Up
ALTER TABLE transcript ADD COLUMN outside boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE transcript DROP COLUMN outside;
