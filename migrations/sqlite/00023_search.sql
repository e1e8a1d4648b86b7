-- The search over transcripts. An entry of the index has the rowid of its row of transcript and the words that the program makes of its text, see the
-- package words; the index keeps no texts. Rows above search_state.upto are not in it yet.

-- +goose Up
CREATE VIRTUAL TABLE transcript_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '='"
);
CREATE TABLE search_state (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    upto        INTEGER NOT NULL, -- the highest rowid of transcript that is in the index
    session_key TEXT    NOT NULL, -- of the row with that rowid: when another row has it, VACUUM has numbered the table again; '' = not known
    session_id  TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    removals    INTEGER NOT NULL  -- grows with each deletion, so that what was read before is not indexed after it
) STRICT;
INSERT INTO search_state (id, upto, session_key, session_id, seq, removals) VALUES (1, 0, '', '', 0, 0);
-- SQLite gives the rowid of a deleted last row to the next one, so upto follows the table down.
-- +goose StatementBegin
CREATE TRIGGER transcript_words_end AFTER DELETE ON transcript BEGIN
    DELETE FROM transcript_words WHERE rowid = OLD.rowid;
    UPDATE search_state SET removals = removals + 1;
    UPDATE search_state SET upto = coalesce((SELECT max(rowid) FROM transcript), 0), session_key = ''
    WHERE upto > coalesce((SELECT max(rowid) FROM transcript), 0);
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER transcript_words_end;
DROP TABLE search_state;
DROP TABLE transcript_words;
