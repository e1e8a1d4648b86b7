-- A summary is a row of a transcript that stands for older rows of it. The session has the number of the newest one.

-- +goose Up
ALTER TABLE transcript ADD COLUMN from_seq INTEGER NOT NULL DEFAULT 0; -- of a summary: the first row that it stands for; 0 = no summary
ALTER TABLE transcript ADD COLUMN to_seq INTEGER NOT NULL DEFAULT 0; -- the last one
ALTER TABLE sessions ADD COLUMN summary_id TEXT NOT NULL DEFAULT ''; -- the transcript of the newest summary
ALTER TABLE sessions ADD COLUMN summary_seq INTEGER NOT NULL DEFAULT 0; -- its number
ALTER TABLE sessions ADD COLUMN summary_to INTEGER NOT NULL DEFAULT 0; -- the last row that it stands for

-- +goose Down
ALTER TABLE sessions DROP COLUMN summary_to;
ALTER TABLE sessions DROP COLUMN summary_seq;
ALTER TABLE sessions DROP COLUMN summary_id;
ALTER TABLE transcript DROP COLUMN to_seq;
ALTER TABLE transcript DROP COLUMN from_seq;
