-- Named tokens, and who made and revoked them. A secret is never here, only its SHA-256.

-- +goose Up
CREATE TABLE credentials (
    name       TEXT    NOT NULL PRIMARY KEY,
    digest     TEXT    NOT NULL UNIQUE, -- SHA-256 of the secret, 64 hexadecimal digits
    scopes     TEXT    NOT NULL,        -- with blanks between them
    visible    TEXT    NOT NULL DEFAULT 'all',
    created_at INTEGER NOT NULL,
    expires_at INTEGER                  -- NULL = never
) STRICT, WITHOUT ROWID;

-- The log of changes belongs to every part that changes something; the first step that needs it makes it, and it is dropped only by the step
-- that made everything else that writes to it.
CREATE TABLE IF NOT EXISTS audit_log (
    id          TEXT    NOT NULL PRIMARY KEY, -- sorts by time
    who         TEXT    NOT NULL,
    verb        TEXT    NOT NULL,
    object      TEXT    NOT NULL DEFAULT '',
    before_hash TEXT    NOT NULL DEFAULT '',
    after_hash  TEXT    NOT NULL DEFAULT '',
    peer        TEXT    NOT NULL DEFAULT '',
    request_id  TEXT    NOT NULL DEFAULT '',
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE credentials;
