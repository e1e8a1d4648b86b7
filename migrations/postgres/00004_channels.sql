-- What channels keep beside messages: grants and open requests of pairing, settings of groups, open buttons.
-- Ids of people and chats are the provider's numbers.

-- +goose Up
CREATE TABLE pairings (
    code       text   NOT NULL PRIMARY KEY, -- shown to the person
    id         text   NOT NULL,             -- shown to operators
    channel    text   NOT NULL,
    user_id    bigint NOT NULL,
    chat_id    bigint NOT NULL,
    name       text   NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    CONSTRAINT pairings_id UNIQUE (id)
);

CREATE TABLE pairing_grants (
    channel     text   NOT NULL,
    user_id     bigint NOT NULL,
    chat_id     bigint NOT NULL,
    name        text   NOT NULL DEFAULT '',
    approved_by text   NOT NULL DEFAULT '',
    approved_at bigint NOT NULL,
    PRIMARY KEY (channel, user_id, chat_id)
);

CREATE TABLE channel_groups (
    channel    text   NOT NULL,
    chat_id    bigint NOT NULL,
    activation text   NOT NULL DEFAULT '',
    moved_from bigint NOT NULL DEFAULT 0, -- the number that the group had before; 0 = none
    PRIMARY KEY (channel, chat_id)
);

CREATE TABLE buttons (
    id         text   NOT NULL PRIMARY KEY,
    set_id     text   NOT NULL, -- the buttons of one message work once between them
    channel    text   NOT NULL,
    chat_id    bigint NOT NULL,
    user_id    bigint NOT NULL, -- 0 = every user who may talk in the chat
    text       text   NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX buttons_by_set ON buttons (set_id);

-- +goose Down
DROP TABLE buttons;
DROP TABLE channel_groups;
DROP TABLE pairing_grants;
DROP TABLE pairings;
