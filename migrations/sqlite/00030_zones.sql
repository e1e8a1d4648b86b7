-- The time zone that a principal chose for the times that it writes and reads in a chat.

-- +goose Up
CREATE TABLE zones (
    principal TEXT NOT NULL PRIMARY KEY,
    zone      TEXT NOT NULL -- a name of the IANA database, or an offset such as +02:00
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE zones;
