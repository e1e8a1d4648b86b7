-- Named tokens, and who made and revoked them. A secret is never here, only its SHA-256.

-- +goose Up
CREATE TABLE credentials (
    name       text   NOT NULL PRIMARY KEY,
    digest     text   NOT NULL, -- SHA-256 of the secret, 64 hexadecimal digits
    scopes     text   NOT NULL, -- with blanks between them
    visible    text   NOT NULL DEFAULT 'all',
    created_at bigint NOT NULL,
    expires_at bigint,          -- NULL = never
    CONSTRAINT credentials_digest UNIQUE (digest)
);

-- The log of changes belongs to every part that changes something; the first step that needs it makes it, and it is dropped only by the step
-- that made everything else that writes to it.
CREATE TABLE IF NOT EXISTS audit_log (
    id          text   NOT NULL PRIMARY KEY, -- UUIDv7: sorts by time
    who         text   NOT NULL DEFAULT '',
    verb        text   NOT NULL DEFAULT '',
    object      text   NOT NULL DEFAULT '',
    before_hash text   NOT NULL DEFAULT '',
    after_hash  text   NOT NULL DEFAULT '',
    peer        text   NOT NULL DEFAULT '',
    request_id  text   NOT NULL DEFAULT '',
    at          bigint NOT NULL DEFAULT 0
);

-- +goose Down
DROP TABLE credentials;
