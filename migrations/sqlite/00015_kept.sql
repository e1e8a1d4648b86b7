-- A transcript that a deletion keeps belongs to the principal of the session: a later session of the same key does not own it.

-- +goose Up
CREATE TABLE kept_transcripts (
    session_key TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    principal   TEXT NOT NULL, -- '' = unknown: kept before this table existed; only principals that may read everything may read it
    PRIMARY KEY (session_key, session_id)
) STRICT, WITHOUT ROWID;
INSERT INTO kept_transcripts (session_key, session_id, principal)
SELECT t.session_key, t.session_id, '' FROM deleted_sessions d JOIN transcript t ON t.session_key = d.key LEFT JOIN sessions s ON s.key = d.key
WHERE s.key IS NULL OR t.session_id <> s.session_id GROUP BY t.session_key, t.session_id
HAVING s.key IS NULL OR max(t.at) < s.created_at;

-- +goose Down
DROP TABLE kept_transcripts;
