-- PostgreSQL leaves half of each page free for later versions of its rows. SQLite updates rows in place, so this step changes nothing.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
