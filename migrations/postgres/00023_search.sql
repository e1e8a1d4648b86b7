-- The search over transcripts. An entry of the index has the words that the program makes of a text, see the package words; the index keeps no texts and
-- no positions. Entries of a session above search_progress.upto are not in it yet.

-- +goose Up
CREATE TABLE search_progress (
    session_key text   NOT NULL PRIMARY KEY,
    upto        bigint NOT NULL -- the highest number of an entry that is in the index
) WITH (fillfactor = 70);
-- Transcripts by number: the entries are many, and a key with an id has some hundred bytes.
CREATE TABLE search_transcripts (
    id          bigint NOT NULL PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    session_key text   NOT NULL,
    session_id  text   NOT NULL,
    UNIQUE (session_key, session_id)
);
CREATE TABLE search_entries (
    transcript bigint   NOT NULL,
    seq        bigint   NOT NULL,
    at         bigint   NOT NULL,
    words      tsvector NOT NULL,
    PRIMARY KEY (transcript, seq)
);
CREATE INDEX search_entries_at ON search_entries (at);
CREATE INDEX search_entries_words ON search_entries USING gin (words);

-- +goose Down
DROP TABLE search_entries;
DROP TABLE search_transcripts;
DROP TABLE search_progress;
