-- What the model of a running turn asked for and was given, so that a turn that runs again goes on behind it. The rows go when the turn ends, with
-- what they contain in its transcript; those of a run that never ends are deleted with the run.

-- +goose Up
CREATE TABLE turn_rounds (
    run_id TEXT NOT NULL,
    round  INTEGER NOT NULL, -- from 1
    kind   TEXT NOT NULL, -- asked: text and calls; result: of one call; input: a message that joined behind the results
    n      INTEGER NOT NULL, -- asked: 0; result: the call, from 0; input: the number of the message in its session
    body   TEXT NOT NULL, -- JSON; '' for input
    PRIMARY KEY (run_id, round, kind, n)
) STRICT, WITHOUT ROWID;
-- +goose StatementBegin
CREATE TRIGGER turn_rounds_end AFTER DELETE ON runs BEGIN
    DELETE FROM turn_rounds WHERE run_id = OLD.id;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER turn_rounds_end;
DROP TABLE turn_rounds;
