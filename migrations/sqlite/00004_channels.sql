-- What channels keep beside messages: grants and open requests of pairing, settings of groups, open buttons.
-- Ids of people and chats are the provider's numbers.

-- +goose Up
CREATE TABLE pairings (
    code       TEXT    NOT NULL PRIMARY KEY, -- shown to the person
    id         TEXT    NOT NULL UNIQUE,      -- shown to operators
    channel    TEXT    NOT NULL,
    user_id    INTEGER NOT NULL,
    chat_id    INTEGER NOT NULL,
    name       TEXT    NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pairing_grants (
    channel     TEXT    NOT NULL,
    user_id     INTEGER NOT NULL,
    chat_id     INTEGER NOT NULL,
    name        TEXT    NOT NULL DEFAULT '',
    approved_by TEXT    NOT NULL DEFAULT '',
    approved_at INTEGER NOT NULL,
    PRIMARY KEY (channel, user_id, chat_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE channel_groups (
    channel    TEXT    NOT NULL,
    chat_id    INTEGER NOT NULL,
    activation TEXT    NOT NULL DEFAULT '',
    moved_from INTEGER NOT NULL DEFAULT 0, -- the number that the group had before; 0 = none
    PRIMARY KEY (channel, chat_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE buttons (
    id         TEXT    NOT NULL PRIMARY KEY,
    set_id     TEXT    NOT NULL, -- the buttons of one message work once between them
    channel    TEXT    NOT NULL,
    chat_id    INTEGER NOT NULL,
    user_id    INTEGER NOT NULL, -- 0 = every user who may talk in the chat
    text       TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX buttons_by_set ON buttons (set_id);

-- +goose Down
DROP TABLE buttons;
DROP TABLE channel_groups;
DROP TABLE pairing_grants;
DROP TABLE pairings;
